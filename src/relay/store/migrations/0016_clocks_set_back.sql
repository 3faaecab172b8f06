-- A database whose clock was set back closes no lane for the time until it is where it was. The sums are those of
-- domain/bucket.py.

-- As in 0014_gates; a bucket that was last looked at more than a minute ahead of now begins anew.
create or replace function available_tokens(e endpoints, s endpoint_state, p_now timestamptz) returns double precision
language sql immutable as $$
    select case when s.tokens_at > p_now + interval '1 minute' then e.burst else least(
        e.burst,
        coalesce(s.tokens, e.burst)
            + e.rate_per_second * greatest(extract(epoch from p_now - s.tokens_at), 0)::double precision
    ) end
$$;

-- The instant of a bucket that is written now: transactions that run side by side may come out of order.
create function looked_at(p_before timestamptz, p_now timestamptz) returns timestamptz
language sql immutable as $$
    select case when p_before > p_now + interval '1 minute' then p_now else greatest(p_before, p_now) end
$$;
