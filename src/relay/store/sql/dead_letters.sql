-- What waits for a person: dead deliveries, and events that matched no rule. A walk reads like those in history.sql, by
-- the pair of `dead_at` and id. A pick is such a walk the other way, the oldest first, for bulk calls; it
-- leaves out what cannot be sent again, if that is asked.

-- name: walk_dead_letters
-- parameters: tenant, before at, before id, since, window, wanted, exact type, type prefix
-- index: deliveries_dead, receipts_unrouted or receipts_unrouted_page, receipts_pkey
with dead as (
    select d.dead_at as at, d.id, d.receipt_id from deliveries d
    where (d.tenant, d.dead_at, d.id) < ($1, $2::timestamptz, $3::uuid) and (d.tenant, d.dead_at) >= ($1, $4::timestamptz)
      and d.status = 'dead' and d.discarded_at is null
    order by d.tenant desc, d.dead_at desc, d.id desc limit $5
), unrouted as (
    select r.unrouted_at as at, r.id, r.type from receipts r
    where (r.tenant, r.unrouted_at, r.id) < ($1, $2::timestamptz, $3::uuid)
      and (r.tenant, r.unrouted_at) >= ($1, $4::timestamptz) and r.unrouted_at is not null
    order by r.tenant desc, r.unrouted_at desc, r.id desc limit $5
), seen as materialized (
    select d.at, d.id, r.type, true as delivery from dead d
    cross join lateral (select r0.type from receipts r0 where r0.id = d.receipt_id offset 0) r
    union all
    select u.at, u.id, u.type, false from unrouted u
    order by at desc, id desc limit $5
), found as materialized (
    select s.at, s.id, s.delivery from seen s
    where ($7::text is null or s.type = $7) and ($8::text is null or starts_with(s.type, $8))
    order by s.at desc, s.id desc limit $6
)
select (select s.at from seen s order by s.at desc, s.id desc offset $5::bigint - 1 limit 1) as floor_at,
       (select s.id from seen s order by s.at desc, s.id desc offset $5::bigint - 1 limit 1) as floor_id,
       array(select f.at from found f order by f.at desc, f.id desc) as ats,
       array(select f.id from found f order by f.at desc, f.id desc) as ids,
       array(select f.delivery from found f order by f.at desc, f.id desc) as deliveries;

-- name: walk_dead_letters_of_reason
-- parameters: tenant, before at, before id, since, window, wanted, exact type, type prefix, reason
-- index: deliveries_dead_reason, receipts_pkey
with seen as materialized (
    select d.dead_at as at, d.id, r.type
    from (
        select d0.dead_at, d0.id, d0.receipt_id from deliveries d0
        where (d0.tenant, d0.dead_reason, d0.dead_at, d0.id)
                  < ($1, $9::text::dead_reason, $2::timestamptz, $3::uuid)
          and (d0.tenant, d0.dead_reason, d0.dead_at) >= ($1, $9::text::dead_reason, $4::timestamptz)
          and d0.status = 'dead' and d0.discarded_at is null
        order by d0.tenant desc, d0.dead_reason desc, d0.dead_at desc, d0.id desc limit $5
    ) d
    cross join lateral (select r0.type from receipts r0 where r0.id = d.receipt_id offset 0) r
), found as materialized (
    select s.at, s.id from seen s
    where ($7::text is null or s.type = $7) and ($8::text is null or starts_with(s.type, $8))
    order by s.at desc, s.id desc limit $6
)
select (select s.at from seen s order by s.at desc, s.id desc offset $5::bigint - 1 limit 1) as floor_at,
       (select s.id from seen s order by s.at desc, s.id desc offset $5::bigint - 1 limit 1) as floor_id,
       array(select f.at from found f order by f.at desc, f.id desc) as ats,
       array(select f.id from found f order by f.at desc, f.id desc) as ids,
       array(select true from found f) as deliveries;

-- name: walk_dead_letters_of_consumer
-- parameters: tenant, before at, before id, since, window, wanted, exact type, type prefix, endpoints uuid[], reason
-- index: deliveries_dead_endpoint, receipts_pkey
with seen as materialized (
    select d.dead_at as at, d.id, d.dead_reason, r.type
    from unnest($9::uuid[]) as e (id)
    cross join lateral (
        select d0.dead_at, d0.id, d0.receipt_id, d0.dead_reason from deliveries d0
        where (d0.endpoint_id, d0.dead_at, d0.id) < (e.id, $2::timestamptz, $3::uuid)
          and (d0.endpoint_id, d0.dead_at) >= (e.id, $4::timestamptz)
          and d0.status = 'dead' and d0.discarded_at is null
        order by d0.endpoint_id desc, d0.dead_at desc, d0.id desc limit $5
    ) d
    cross join lateral (select r0.type, r0.tenant from receipts r0 where r0.id = d.receipt_id offset 0) r
    where r.tenant = $1
    order by d.dead_at desc, d.id desc limit $5
), found as materialized (
    select s.at, s.id from seen s
    where ($7::text is null or s.type = $7) and ($8::text is null or starts_with(s.type, $8))
      and ($10::text is null or s.dead_reason = $10::text::dead_reason)
    order by s.at desc, s.id desc limit $6
)
select (select s.at from seen s order by s.at desc, s.id desc offset $5::bigint - 1 limit 1) as floor_at,
       (select s.id from seen s order by s.at desc, s.id desc offset $5::bigint - 1 limit 1) as floor_id,
       array(select f.at from found f order by f.at desc, f.id desc) as ats,
       array(select f.id from found f order by f.at desc, f.id desc) as ids,
       array(select true from found f) as deliveries;

-- name: walk_unrouted
-- parameters: tenant, before at, before id, since, window, wanted, exact type, type prefix
-- index: receipts_unrouted or receipts_unrouted_page
with seen as materialized (
    select r.unrouted_at as at, r.id, r.type from receipts r
    where (r.tenant, r.unrouted_at, r.id) < ($1, $2::timestamptz, $3::uuid)
      and (r.tenant, r.unrouted_at) >= ($1, $4::timestamptz) and r.unrouted_at is not null
    order by r.tenant desc, r.unrouted_at desc, r.id desc limit $5
), found as materialized (
    select s.at, s.id from seen s
    where ($7::text is null or s.type = $7) and ($8::text is null or starts_with(s.type, $8))
    order by s.at desc, s.id desc limit $6
)
select (select s.at from seen s order by s.at desc, s.id desc offset $5::bigint - 1 limit 1) as floor_at,
       (select s.id from seen s order by s.at desc, s.id desc offset $5::bigint - 1 limit 1) as floor_id,
       array(select f.at from found f order by f.at desc, f.id desc) as ats,
       array(select f.id from found f order by f.at desc, f.id desc) as ids,
       array(select false from found f) as deliveries;

-- name: show_dead_deliveries
-- parameters: tenant, deliveries uuid[]
-- index: deliveries_pkey, receipts_pkey, endpoints_pkey, delivery_attempts_pkey
-- With the address of the last attempt, if any was made. An id carries the gateway's clock, hence the day before it.
select d.receipt_id, d.id as delivery_id, d.endpoint_id, e.name as consumer, r.type, r.event_id,
       d.dead_reason::text as reason, d.last_error, d.attempts, a.display_url, d.dead_at,
       d.received_at is not null as was_received
from unnest($2::uuid[]) as w (id)
cross join lateral (select * from deliveries d0 where d0.id = w.id offset 0) d
cross join lateral (select * from receipts r0 where r0.id = d.receipt_id offset 0) r
cross join lateral (select * from endpoints e0 where e0.id = d.endpoint_id offset 0) e
left join lateral (
    select a0.display_url from delivery_attempts a0
    where a0.delivery_id = d.id and a0.display_url is not null and a0.at <= d.dead_at
      and a0.at >= to_timestamp(('x' || left(replace(d.id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
                   - interval '1 day'
    order by a0.at desc limit 1
) a on true
where d.tenant = $1;

-- name: show_unrouted
-- parameters: tenant, receipts uuid[]
-- index: receipts_pkey
select r.id as receipt_id, r.type, r.event_id, r.unrouted_at as dead_at
from unnest($2::uuid[]) as w (id)
cross join lateral (select * from receipts r0 where r0.id = w.id offset 0) r
where r.tenant = $1;

-- name: pick_dead_letters
-- parameters: tenant, after at, after id, window, wanted, exact type, type prefix, of living endpoints boolean,
--             of every type boolean, of types text[], of types that begin so text[]
-- index: deliveries_dead, receipts_unrouted or receipts_unrouted_page, receipts_pkey, endpoints_pkey
-- The last three are about events that matched no rule.
with dead as (
    select d.dead_at as at, d.id, d.receipt_id, d.endpoint_id from deliveries d
    where (d.tenant, d.dead_at, d.id) > ($1, $2::timestamptz, $3::uuid) and d.tenant <= $1
      and d.status = 'dead' and d.discarded_at is null
    order by d.tenant, d.dead_at, d.id limit $4
), unrouted as (
    select r.unrouted_at as at, r.id, r.type from receipts r
    where (r.tenant, r.unrouted_at, r.id) > ($1, $2::timestamptz, $3::uuid) and r.tenant <= $1
      and r.unrouted_at is not null
    order by r.tenant, r.unrouted_at, r.id limit $4
), seen as materialized (
    select d.at, d.id, d.receipt_id, d.endpoint_id, null::text as type from dead d
    union all
    select u.at, u.id, null, null, u.type from unrouted u
    order by at, id limit $4
), found as materialized (
    select s.at, s.id, true as delivery from seen s
    cross join lateral (select r0.type from receipts r0 where r0.id = s.receipt_id offset 0) r
    cross join lateral (select e0.removed_at from endpoints e0 where e0.id = s.endpoint_id offset 0) e
    where (not $8::boolean or e.removed_at is null)
      and ($6::text is null or r.type = $6) and ($7::text is null or starts_with(r.type, $7))
    union all
    select u.at, u.id, false from seen u
    where u.receipt_id is null and ($6::text is null or u.type = $6) and ($7::text is null or starts_with(u.type, $7))
      and ($9::boolean or u.type = any ($10::text[])
           or exists (select from unnest($11::text[]) as p (prefix) where starts_with(u.type, p.prefix)))
    order by at, id limit $5
)
select (select s.at from seen s order by s.at, s.id offset $4::bigint - 1 limit 1) as floor_at,
       (select s.id from seen s order by s.at, s.id offset $4::bigint - 1 limit 1) as floor_id,
       array(select f.at from found f order by f.at, f.id) as ats,
       array(select f.id from found f order by f.at, f.id) as ids,
       array(select f.delivery from found f order by f.at, f.id) as deliveries;

-- name: pick_dead_letters_of_reason
-- parameters: tenant, after at, after id, window, wanted, exact type, type prefix, of living endpoints boolean, reason
-- index: deliveries_dead_reason or deliveries_dead, receipts_pkey, endpoints_pkey
with seen as materialized (
    select d.dead_at as at, d.id, d.receipt_id, d.endpoint_id from deliveries d
    where (d.tenant, d.dead_reason, d.dead_at, d.id) > ($1, $9::text::dead_reason, $2::timestamptz, $3::uuid)
      and (d.tenant, d.dead_reason) <= ($1, $9::text::dead_reason)
      and d.status = 'dead' and d.discarded_at is null
    order by d.tenant, d.dead_reason, d.dead_at, d.id limit $4
), found as materialized (
    select s.at, s.id from seen s
    cross join lateral (select r0.type from receipts r0 where r0.id = s.receipt_id offset 0) r
    cross join lateral (select e0.removed_at from endpoints e0 where e0.id = s.endpoint_id offset 0) e
    where (not $8::boolean or e.removed_at is null)
      and ($6::text is null or r.type = $6) and ($7::text is null or starts_with(r.type, $7))
    order by s.at, s.id limit $5
)
select (select s.at from seen s order by s.at, s.id offset $4::bigint - 1 limit 1) as floor_at,
       (select s.id from seen s order by s.at, s.id offset $4::bigint - 1 limit 1) as floor_id,
       array(select f.at from found f order by f.at, f.id) as ats,
       array(select f.id from found f order by f.at, f.id) as ids,
       array(select true from found f) as deliveries;

-- name: pick_dead_letters_of_consumer
-- parameters: tenant, after at, after id, window, wanted, exact type, type prefix, of living endpoints boolean, endpoints uuid[],
--             reason
-- index: deliveries_dead_endpoint or deliveries_of_endpoint, receipts_pkey
with seen as materialized (
    select d.at, d.id, d.receipt_id, d.endpoint_id, d.dead_reason
    from unnest($9::uuid[]) as w (id)
    cross join lateral (
        select d0.dead_at as at, d0.id, d0.receipt_id, d0.endpoint_id, d0.dead_reason from deliveries d0
        where (d0.endpoint_id, d0.dead_at, d0.id) > (w.id, $2::timestamptz, $3::uuid) and d0.endpoint_id <= w.id
          and d0.status = 'dead' and d0.discarded_at is null
        order by d0.endpoint_id, d0.dead_at, d0.id limit $4
    ) d
    order by d.at, d.id limit $4
), found as materialized (
    select s.at, s.id from seen s
    cross join lateral (select r0.type, r0.tenant from receipts r0 where r0.id = s.receipt_id offset 0) r
    cross join lateral (select e0.removed_at from endpoints e0 where e0.id = s.endpoint_id offset 0) e
    where (not $8::boolean or e.removed_at is null)
      and ($6::text is null or r.type = $6) and ($7::text is null or starts_with(r.type, $7))
      and r.tenant = $1 and ($10::text is null or s.dead_reason = $10::text::dead_reason)
    order by s.at, s.id limit $5
)
select (select s.at from seen s order by s.at, s.id offset $4::bigint - 1 limit 1) as floor_at,
       (select s.id from seen s order by s.at, s.id offset $4::bigint - 1 limit 1) as floor_id,
       array(select f.at from found f order by f.at, f.id) as ats,
       array(select f.id from found f order by f.at, f.id) as ids,
       array(select true from found f) as deliveries;

-- name: pick_unrouted
-- parameters: tenant, after at, after id, window, wanted, exact type, type prefix, of every type boolean, of types text[],
--             of types that begin so text[]
-- index: receipts_unrouted or receipts_unrouted_page
with seen as materialized (
    select r.unrouted_at as at, r.id, r.type from receipts r
    where (r.tenant, r.unrouted_at, r.id) > ($1, $2::timestamptz, $3::uuid) and r.tenant <= $1
      and r.unrouted_at is not null
    order by r.tenant, r.unrouted_at, r.id limit $4
), found as materialized (
    select u.at, u.id from seen u
    where ($6::text is null or u.type = $6) and ($7::text is null or starts_with(u.type, $7))
      and ($8::boolean or u.type = any ($9::text[])
           or exists (select from unnest($10::text[]) as p (prefix) where starts_with(u.type, p.prefix)))
    order by u.at, u.id limit $5
)
select (select s.at from seen s order by s.at, s.id offset $4::bigint - 1 limit 1) as floor_at,
       (select s.id from seen s order by s.at, s.id offset $4::bigint - 1 limit 1) as floor_id,
       array(select f.at from found f order by f.at, f.id) as ats,
       array(select f.id from found f order by f.at, f.id) as ids,
       array(select false from found f) as deliveries;
