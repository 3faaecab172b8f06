-- What an endpoint's tenant sees of its lane: which gate is closed now, and when time opens it. As columns of an
-- endpoint's row, so that whatever answers one can tell it.
create function lane_closed_by(e endpoints) returns text language sql stable as $$
    select coalesce(closed_by(e, s, true, now()),
                    case when s.found_closed_reason = 'endpoint_concurrency' then s.found_closed_reason end)
    from endpoint_state s where s.endpoint_id = e.id
$$;
create function lane_opens_at(e endpoints) returns timestamptz language sql stable as $$
    select opens_at(e, s, true) from endpoint_state s
    where s.endpoint_id = e.id and opens_at(e, s, true) > now() and e.status = 'active'
$$;
