-- When time opens an endpoint's lane, as a column of its row: so whatever answers an endpoint can tell it.
create function lane_opens_at(e endpoints) returns timestamptz language sql stable as $$
    select opens_at(e, s, true) from endpoint_state s
    where s.endpoint_id = e.id and opens_at(e, s, true) > now() and e.status = 'active'
$$;
