-- What happened, newest first. A walk goes down one index from a place (`before`, excluded) to a bound (`from`, included)
-- for `window` rows and answers one row: `floor`, the place where the next walk goes on (null: nothing is left), and
-- `found`, the first `wanted` receipts of that stretch which have everything asked for. Where two indexes would
-- give the order, a comparison of whole rows and an order by the whole key leave the planner only the one that is meant.

-- name: walk_receipts
-- parameters: tenant, before id, from id, window, wanted, open boolean, exact type, type prefix
-- index: receipts_page
with seen as materialized (
    select r.id, r.type, r.outcome is null as open, r.void_at from receipts r
    where (r.tenant, r.id) < ($1, $2::uuid) and (r.tenant, r.id) >= ($1, $3::uuid)
    order by r.tenant desc, r.id desc limit $4
)
select (select s.id from seen s order by s.id desc offset $4::bigint - 1 limit 1) as floor,
       array(select s.id from seen s
             where s.void_at is null and ($6::boolean is null or s.open = $6) and ($7::text is null or s.type = $7)
               and ($8::text is null or starts_with(s.type, $8))
             order by s.id desc limit $5) as found;

-- name: walk_receipts_of_type
-- parameters: tenant, before id, from id, window, wanted, open boolean, exact type
-- index: receipts_type
with seen as materialized (
    select r.id, r.outcome is null as open, r.void_at from receipts r
    where r.tenant = $1 and (r.type, r.id) < ($7::text, $2::uuid) and (r.type, r.id) >= ($7, $3::uuid)
    order by r.type desc, r.id desc limit $4
)
select (select s.id from seen s order by s.id desc offset $4::bigint - 1 limit 1) as floor,
       array(select s.id from seen s where s.void_at is null and ($6::boolean is null or s.open = $6)
             order by s.id desc limit $5) as found;

-- name: walk_receipts_of_event
-- parameters: tenant, before id, from id, window, wanted, open boolean, exact type, type prefix, event_id,
--             receipt of that event id, endpoints uuid[], every endpoint boolean
-- index: receipts_event, receipts_pkey or receipts_page, deliveries_pkey or deliveries_of_endpoint
-- An event id that Relay made names its receipt, which is then no part of the index.
with named as materialized (
    select r.id, r.type, r.outcome is null as open, r.void_at from receipts r
    where r.tenant = $1 and r.event_id = $9::text and r.id < $2::uuid and r.id >= $3::uuid
      and r.event_id <> 'evt_' || replace(r.id::text, '-', '')
    order by r.id desc limit $4
), floor as materialized (
    select n.id from named n order by n.id desc offset $4::bigint - 1 limit 1
), seen as (
    select n.id, n.type, n.open, n.void_at from named n
    union all
    select r.id, r.type, r.outcome is null, r.void_at from receipts r
    where r.id = $10::uuid and r.tenant = $1 and r.event_id = $9
      and r.id < $2::uuid and r.id >= coalesce((select f.id from floor f), $3::uuid)
      and r.event_id = 'evt_' || replace(r.id::text, '-', '')
)
select (select f.id from floor f) as floor,
       array(select s.id from seen s
             where s.void_at is null and ($6::boolean is null or s.open = $6) and ($7::text is null or s.type = $7)
               and ($8::text is null or starts_with(s.type, $8))
               and ($12::boolean or exists (
                   select from deliveries d
                   where d.id between overlay(s.id::text placing '00000000' from 29)::uuid
                                  and overlay(s.id::text placing 'ffffffff' from 29)::uuid
                     and d.receipt_id = s.id and d.endpoint_id = any ($11::uuid[])))
             order by s.id desc limit $5) as found;

-- name: walk_receipts_of_consumer
-- parameters: tenant, before id, from id, window, wanted, open boolean, exact type, type prefix, endpoints uuid[],
--             last delivery id
-- index: deliveries_of_endpoint, receipts_pkey
-- Walks deliveries. A delivery's id is that of its receipt but for the last eight digits, so a stretch that begins at a
-- receipt's first possible delivery leaves none of them out.
with lane as (
    select e.id as endpoint, s.status from unnest($9::uuid[]) as e (id)
    cross join unnest(array['pending', 'in_flight', 'delivered', 'dead']::delivery_status[]) as s (status)
), floor as materialized (
    select overlay(d.id::text placing '00000000' from 29)::uuid as id from lane l
    cross join lateral (
        select d.id from deliveries d
        where (d.endpoint_id, d.status, d.id) <= (l.endpoint, l.status, $10::uuid)
          and (d.endpoint_id, d.status, d.id) >= (l.endpoint, l.status, $3::uuid)
        order by d.endpoint_id desc, d.status desc, d.id desc limit $4
    ) d
    order by d.id desc offset $4::bigint - 1 limit 1
), seen as (
    select distinct d.receipt_id from lane l
    cross join lateral (
        select d.receipt_id from deliveries d
        where (d.endpoint_id, d.status, d.id) <= (l.endpoint, l.status, $10::uuid)
          and (d.endpoint_id, d.status, d.id)
              >= (l.endpoint, l.status, coalesce((select f.id from floor f), $3::uuid))
        offset 0
    ) d
)
select (select f.id from floor f) as floor,
       array(select r.id from seen s
             cross join lateral (select * from receipts r0 where r0.id = s.receipt_id offset 0) r
             where r.tenant = $1 and r.id < $2::uuid and r.id >= $3::uuid
               and ($6::boolean is null or (r.outcome is null) = $6) and ($7::text is null or r.type = $7)
               and ($8::text is null or starts_with(r.type, $8))
             order by r.id desc limit $5) as found;

-- name: walk_open_receipts
-- parameters: tenant, before id, from id, window, wanted, type prefix, last delivery id
-- index: deliveries_owed, receipts_unrouted_page or receipts_unrouted, receipts_pkey
-- Walks what is owed, from receipt to receipt however many deliveries each has, beside what matched no rule.
with recursive step as (
    (select overlay(d.id::text placing '00000000' from 29)::uuid as id, 1 as steps from deliveries d
     where (d.tenant, d.id) <= ($1, $7::uuid) and (d.tenant, d.id) >= ($1, $3::uuid)
       and d.status in ('pending', 'in_flight', 'dead') and d.discarded_at is null
     order by d.tenant desc, d.id desc limit 1)
    union all
    select n.id, s.steps + 1 from step s
    cross join lateral (
        select overlay(d.id::text placing '00000000' from 29)::uuid as id from deliveries d
        where (d.tenant, d.id) < ($1, s.id) and (d.tenant, d.id) >= ($1, $3::uuid)
          and d.status in ('pending', 'in_flight', 'dead') and d.discarded_at is null
        order by d.tenant desc, d.id desc limit 1
    ) n
    where s.steps < $4
), unrouted as materialized (
    select r.id, r.type from receipts r
    where (r.tenant, r.id) < ($1, $2::uuid) and (r.tenant, r.id) >= ($1, $3::uuid) and r.unrouted_at is not null
    order by r.tenant desc, r.id desc limit $4
), floor as materialized (
    select greatest((select s.id from step s where s.steps = $4),
                    (select u.id from unrouted u order by u.id desc offset $4::bigint - 1 limit 1)) as id
), seen as (
    select r.id, r.type from step s
    cross join lateral (
        select * from receipts r0
        where r0.id between s.id and overlay(s.id::text placing 'ffffffff' from 29)::uuid offset 0
    ) r
    where r.tenant = $1 and r.expected > 0 and r.outcome is null
    union all
    select u.id, u.type from unrouted u
)
select f.id as floor,
       array(select s.id from seen s
             where s.id < $2::uuid and s.id >= coalesce(f.id, $3::uuid)
               and ($6::text is null or starts_with(s.type, $6))
             order by s.id desc limit $5) as found
from floor f;

-- name: show_receipts
-- parameters: tenant, receipts uuid[]
-- index: receipts_pkey, journal_pkey
select r.id, r.rules_version, r.expected, r.acked, r.discarded, r.redriven, r.reason::text as reason,
       r.outcome::text as outcome, r.closed_at, r.unrouted_at, r.routed_at, j.event_id, j.type, j.schema, j.tenant, j.source,
       j.received_at, j.partition, j.number, j.content_type, j.payload_sha256,
       octet_length(j.payload) as payload_bytes, j.checked_us, j.assigned_us, j.committed_at
from unnest($2::uuid[]) as w (id)
cross join lateral (select * from receipts r0 where r0.id = w.id offset 0) r
cross join lateral (select * from journal j0 where j0.day = r.journal_day and j0.receipt_id = r.id offset 0) j
where r.tenant = $1 and r.void_at is null
order by r.id desc;

-- name: show_deliveries_of_receipts
-- parameters: tenant, receipts uuid[], most of each
-- index: deliveries_pkey
select d.* from unnest($2::uuid[]) as r (id)
cross join lateral (
    select s.* from shown_deliveries s
    where s.tenant = $1 and s.receipt_id = r.id
      and s.id between overlay(r.id::text placing '00000000' from 29)::uuid
                   and overlay(r.id::text placing 'ffffffff' from 29)::uuid
    order by s.id limit $3
) d
order by d.id;

-- name: list_endpoint_deliveries
-- parameters: tenant, endpoint, before id, limit, statuses text[]
-- index: deliveries_of_endpoint, deliveries_pkey
with chosen as materialized (
    select d.id from unnest($5::text[]::delivery_status[]) as s (status)
    cross join lateral (
        select d.id from deliveries d
        where (d.endpoint_id, d.status, d.id) < ($2::uuid, s.status, $3::uuid)
          and (d.endpoint_id, d.status, d.id) >= ($2::uuid, s.status, '00000000-0000-0000-0000-000000000000'::uuid)
        order by d.endpoint_id desc, d.status desc, d.id desc limit $4
    ) d
    order by d.id desc limit $4
)
select d.* from shown_deliveries d
where d.tenant = $1 and d.id = any (array(select c.id from chosen c))
order by d.id desc;

-- name: endpoints_named
-- parameters: tenant, name, most
-- index: endpoints_every_name
-- The one that is there and those that were removed last.
select e.id from endpoints e where e.tenant = $1 and e.name = $2
order by e.removed_at desc nulls first, e.id desc limit $3::bigint;
