-- When the last claim filled a lane's slots, null where it left some free. Such a lane is closed for as long as something
-- of it is under way: what waits behind its own slots is not late, and its tenant is told what it waits for.
alter table endpoint_state add column full_at timestamptz;

-- What waits for an explicit ack is under way without taking a slot.
create function is_full(s endpoint_state) returns boolean language sql stable as $$
    select s.full_at is not null
       and exists (select from deliveries d where d.endpoint_id = s.endpoint_id and d.status = 'in_flight'
                                              and d.lease_token is not null)
$$;

-- Which gate of an endpoint's lane is closed now, as a column of its row.
create function lane_closed_by(e endpoints) returns text language sql stable as $$
    select coalesce(closed_by(e, s, true, now()), case when is_full(s) then 'endpoint_concurrency' end)
    from endpoint_state s where s.endpoint_id = e.id
$$;

-- As in 0013_quorum, and with every gate: `held_reason` is the one that is closed, `held_until` when it opens, which of a
-- full lane nobody knows.
create or replace view shown_deliveries as
select d.id, d.receipt_id, d.endpoint_id, d.tenant, e.name as consumer, d.status::text as status, d.attempts, d.acked_at,
       d.due_at, d.generation, d.dead_reason::text as dead_reason, d.dead_at, d.last_error, d.received_at, d.redriven_at,
       d.discarded_at, e.status::text as endpoint_status, g.gate is not null as lane_held, g.gate as held_reason,
       case when g.gate <> 'endpoint_concurrency' then opens_at(e, s, true) end as held_until
from deliveries d
join endpoints e on e.id = d.endpoint_id
join endpoint_state s on s.endpoint_id = d.endpoint_id
cross join lateral (
    select coalesce(closed_by(e, s, true, now()),
                    case when d.status = 'pending' and is_full(s) then 'endpoint_concurrency' end) as gate
) g
where d.status <> 'void';
