-- The instant of a bucket that is written now: transactions that run side by side may come out of order.
create function looked_at(p_before timestamptz, p_now timestamptz) returns timestamptz
language sql stable as $$
    select case when p_before > p_now + interval '1 minute' then p_now else greatest(p_before, p_now) end
$$;
