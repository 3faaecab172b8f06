-- The gates of a lane: what closes it, when it opens again, and what the ends of sends do to its breaker. The sums are
-- those of domain/bucket.py and domain/breaker.py.

-- What tells which lanes share a credential: a chat platform's 429 holds all of them. Null where only the lane counts.
alter table endpoints add column credential bytea;
create index endpoints_credential on endpoints (credential) where credential is not null and removed_at is null;

-- For the gauge. Tokens change with every claim and a breaker rarely, so the updates of a lane stay HOT.
create index endpoint_state_breaker on endpoint_state (endpoint_id) where breaker <> 'closed';

-- Tokens in the lane's bucket at that moment, fractions included. One that was last looked at more than a minute ahead of
-- now begins anew: a database whose clock was set back closes no lane until it is where it was. These are called stable,
-- which sums of instants are to PostgreSQL: else they would not be put into the statements that use them.
create function available_tokens(e endpoints, s endpoint_state, p_now timestamptz) returns double precision
language sql stable as $$
    select case when s.tokens_at > p_now + interval '1 minute' then e.burst else least(
        e.burst,
        coalesce(s.tokens, e.burst)
            + e.rate_per_second * greatest(extract(epoch from p_now - s.tokens_at), 0)::double precision
    ) end
$$;

-- Which gate of the lane is closed at that moment, null if none. What a dispatcher has under way it knows itself.
create function closed_by(e endpoints, s endpoint_state, p_breaker boolean, p_now timestamptz) returns text
language sql stable as $$
    select case
        when e.status <> 'active' then 'paused'
        when s.held_until > p_now then coalesce(s.held_reason, 'retry_after')
        when p_breaker and s.breaker = 'open' and s.cooldown_until > p_now then 'breaker'
        when p_breaker and s.breaker = 'half_open' and s.probe_until > p_now then 'breaker'
        when available_tokens(e, s, p_now) + 1e-9 < 1 then 'rate_limit'
    end
$$;

-- From when on the gates that time opens are open, as far as is known; null if none was ever closed.
create function opens_at(e endpoints, s endpoint_state, p_breaker boolean) returns timestamptz
language sql stable as $$
    select greatest(
        s.held_until,
        case when p_breaker then s.cooldown_until end,
        case when p_breaker and s.breaker = 'half_open' then s.probe_until end,
        case when s.tokens + 1e-9 < 1
             then s.tokens_at + least((1 - s.tokens) / e.rate_per_second, 1e9) * interval '1 second' end
    )
$$;

-- A lane after the end of one of its sends: `observe` of domain/breaker.py. `p_answered` is null where nothing was
-- learned. The instant of a recovery stays in `cooldown_until`: what waited for it was not late before.
create function breaker_after(
    s endpoint_state, p_token uuid, p_began timestamptz, p_answered boolean, p_threshold integer,
    p_cooldown double precision, p_max_cooldown double precision, p_now timestamptz
) returns endpoint_state language plpgsql immutable as $$
begin
    if s.breaker = 'half_open' then
        if s.probe_token is distinct from p_token then
            return s;
        end if;
        s.probe_token := null;
        s.probe_until := null;
        s.cooldown_until := p_now;
        if p_answered is null then
            s.breaker := 'open';
            return s;
        elsif p_answered then
            s.breaker := 'closed';
            s.failures := 0;
            s.trips := 0;
            return s;
        end if;
    elsif s.breaker = 'open' or p_answered is null or p_began < s.opened_at then
        return s;
    elsif p_answered then
        s.failures := 0;
        s.trips := 0;
        return s;
    elsif s.failures + 1 < p_threshold then
        s.failures := s.failures + 1;
        return s;
    end if;
    s.breaker := 'open';
    s.failures := 0;
    s.trips := s.trips + 1;
    s.opened_at := p_now;
    s.cooldown_until := p_now
        + least(p_cooldown * 2.0::double precision ^ least(s.trips - 1, 1000), p_max_cooldown) * interval '1 second';
    return s;
end $$;
