-- What `relay verify` reads. Each statement is one snapshot of whatever it compares: an append, an outcome or a re-drive
-- is one transaction, so it shows whole or not at all, and nothing here can catch it half done. Nothing here writes but the
-- last, and nothing reads more than the rows that it is told to.

-- name: measure_extent
-- parameters:
-- index: journal_heads_pkey, receipts_pkey, deliveries_pkey, journal_pkey
-- How far a walk goes: the heads of the partitions, and the last id that there is, null if there is none.
select array(select h.partition::integer from journal_heads h order by h.partition) as partitions,
       array(select h.next_number from journal_heads h order by h.partition) as next_numbers,
       greatest((select r.id from receipts r order by r.id desc limit 1),
                (select d.id from deliveries d order by d.id desc limit 1),
                (select j.receipt_id from journal j order by j.day desc, j.receipt_id desc limit 1)) as last_id,
       (select coalesce(sum(p.last - p.first + 1), 0)::bigint from pruned_ranges p) as pruned;

-- name: stray_positions
-- parameters: most of each partition
-- index: journal_partition_number_day_key
-- Positions that the head of their partition has not given: at or past its next number, below 1, or of no partition.
-- Heads and rows are of one moment, so an append that is under way has both or neither.
select s.partition::integer as partition, s.number
from (select p::smallint as partition, coalesce(h.next_number, 1) as next_number
      from generate_series(0, 15) as p left join journal_heads h on h.partition = p) head
cross join lateral (
    (select j.partition, j.number from journal j
     where j.partition = head.partition and j.number >= head.next_number order by j.number limit $1)
    union all
    (select j.partition, j.number from journal j
     where j.partition = head.partition and j.number < 1 order by j.number limit $1)
) s
union all
(select j.partition::integer, j.number from journal j where j.partition < 0 order by j.partition, j.number limit $1)
union all
(select j.partition::integer, j.number from journal j where j.partition > 15 order by j.partition, j.number limit $1);

-- name: walk_positions
-- parameters: partition, from number, below number, window
-- index: journal_partition_number_day_key
-- The next so many positions, all of the last number: what is missing between them and was not pruned, what is there
-- although it was pruned, what is there twice. `below` is where the walk goes on.
with seen as materialized (
    select j.number from journal j
    where j.partition = $1::smallint and j.number >= $2::bigint and j.number < $3::bigint
    order by j.number fetch first ($4::bigint) rows with ties
), stretch as (
    select case when count(*) < $4 then $3 else max(s.number) + 1 end as below, count(*) as rows,
           min(s.number) as first, max(s.number) as last
    from seen s
), island as (
    select int8range(min(i.number), max(i.number), '[]') as span
    from (select s.number, s.number - dense_rank() over (order by s.number) as island from seen s) i
    group by i.island
), known as (
    select coalesce((select range_agg(i.span) from island i), '{}'::int8multirange) as present,
           coalesce((select range_agg(int8range(p.first, p.last, '[]')) from pruned_ranges p
                     where p.partition = $1 and p.last >= $2 and p.first < s.below), '{}'::int8multirange) as pruned,
           int8multirange(int8range($2, s.below)) as whole
    from stretch s
), missing as (
    select lower(m.span) as first, upper(m.span) - 1 as last
    from known k cross join lateral unnest(k.whole - k.present - k.pruned) as m (span)
), risen as (
    select lower(m.span) as first, upper(m.span) - 1 as last
    from known k cross join lateral unnest(k.present * k.pruned) as m (span)
), twin as (
    select s.number from seen s group by s.number having count(*) > 1
)
select s.below, s.rows, s.first, s.last,
       (select coalesce(sum(upper(m.span) - lower(m.span)), 0)::bigint
        from known k cross join lateral unnest(k.whole * k.pruned) as m (span)) as pruned,
       array(select m.first from missing m order by 1) as missing_firsts,
       array(select m.last from missing m order by 1) as missing_lasts,
       array(select r.first from risen r order by 1) as risen_firsts,
       array(select r.last from risen r order by 1) as risen_lasts,
       array(select t.number from twin t order by 1) as twins
from stretch s;

-- name: next_records
-- parameters: from id, from day
-- index: receipts_pkey, deliveries_pkey, journal_pkey
-- Where the next day with anything in it begins: the first id of each table from there on, and the first day of the journal.
select (select r.id from receipts r where r.id >= $1 order by r.id limit 1) as receipt,
       (select d.id from deliveries d where d.id >= $1 order by d.id limit 1) as delivery,
       (select j.day from journal j where j.day >= $2 order by j.day, j.receipt_id limit 1) as day;

-- name: events_of_other_days
-- parameters: journal day, first id, last id, most
-- index: journal_pkey
-- Events of that day whose ids say another one.
(select j.receipt_id from journal j where j.day = $1 and j.receipt_id < $2 order by j.receipt_id limit $4)
union all
(select j.receipt_id from journal j where j.day = $1 and j.receipt_id > $3 order by j.receipt_id limit $4);

-- name: end_of_window
-- parameters: first id, last id, journal day, window
-- index: receipts_pkey, deliveries_pkey, journal_pkey
-- The first id that is more than so many rows of a table away, null if there is none up to the last.
select least(
    (select r.id from receipts r where r.id between $1 and $2 order by r.id offset $4::bigint limit 1),
    (select d.id from deliveries d where d.id between $1 and $2 order by d.id offset $4::bigint limit 1),
    (select j.receipt_id from journal j where j.day = $3 and j.receipt_id between $1 and $2
     order by j.receipt_id offset $4::bigint limit 1));

-- name: examine_records
-- parameters: first id, last id, journal day
-- index: journal_pkey, receipts_pkey, deliveries_pkey, endpoints_pkey or endpoints_every_name
-- Everything whose ids lie in a stretch of one day, compared: events, receipts and deliveries. A delivery shares its first
-- 96 bits with its receipt, and a stretch never cuts through these. All of it is full joins, which are made by hashing or
-- merging whatever the planner believes. Answers what there is, and of each fault its kind, whose it is, and how many
-- deliveries it leaves unaccounted for.
with event as materialized (
    select j.receipt_id as id, j.tenant, j.event_id, j.type, sha256(j.payload) = j.payload_sha256 as intact
    from journal j where j.day = $3 and j.receipt_id between $1 and $2
), receipt as materialized (
    select r.id, r.tenant, r.journal_day, r.event_id, r.type, r.expected, r.acked, r.discarded, r.redriven, r.outcome,
           r.unrouted_at is not null as unrouted, r.void_at is not null as void
    from receipts r where r.id between $1 and $2
), story as materialized (
    select coalesce(e.id, r.id) as id, e.id is not null as has_event, r.id is not null as has_receipt,
           coalesce(e.tenant, r.tenant) as tenant, case when e.id is null then r.journal_day else $3 end as day,
           e.intact, r.expected, r.acked, r.discarded, r.redriven, r.outcome, r.outcome is not null as closed,
           r.unrouted, coalesce(r.void, false) as void,
           e.id is not null and r.id is not null
               and (e.tenant, $3, e.event_id, e.type) <> (r.tenant, r.journal_day, r.event_id, r.type) as differs
    from event e full join receipt r on r.id = e.id
), delivery as materialized (
    select d.id, d.receipt_id, d.endpoint_id, d.tenant, d.journal_day, d.status, d.discarded_at is not null as discarded,
           substr(uuid_send(d.id), 1, 12) <> substr(uuid_send(d.receipt_id), 1, 12) as misplaced,
           -- a dead letter whose ack came keeps the instant of its burial, which its receipt tells
           (d.lease_token is null) <> (d.lease_until is null) or d.status = 'dead' and d.dead_at is null
               or d.dead_at is not null and d.status not in ('dead', 'delivered') or not isfinite(d.due_at) or d.attempts < 0 or d.generation_attempts not between 0 and d.attempts
               as impossible
    from deliveries d where d.id between $1 and $2
), endpoint as materialized (
    select e.id, e.tenant from endpoints e where e.id = any (array(select distinct d.endpoint_id from delivery d))
), paired as materialized (
    select d.id, d.receipt_id, d.status, d.discarded,
           case when s.id is null then 'delivery_without_receipt'
                when not s.has_receipt then null
                when d.tenant <> s.tenant or d.journal_day <> s.day then 'delivery_differs'
                when n.tenant is distinct from d.tenant then 'delivery_without_endpoint'
                when d.impossible then 'impossible_state'
                when (d.status = 'void') <> s.void then 'void_mismatch' end as fault
    from (select * from delivery d0 where not d0.misplaced) d
    full join story s on s.id = d.receipt_id
    full join endpoint n on n.id = d.endpoint_id
), owed as materialized (
    select * from paired p where p.id is not null
), fan_out as materialized (
    select o.receipt_id, count(*) as made, count(*) filter (where o.status = 'delivered') as delivered,
           count(*) filter (where o.status in ('pending', 'in_flight')) as waiting,
           count(*) filter (where o.status = 'dead') as dead, count(*) filter (where o.discarded) as discarded
    from owed o group by o.receipt_id
), whole as materialized (
    select s.*, coalesce(f.made, 0) as made, coalesce(f.delivered, 0) as delivered, coalesce(f.waiting, 0) as waiting,
           coalesce(f.dead, 0) as dead, coalesce(f.discarded, 0) as given_up,
           s.has_event and s.has_receipt and not s.void and s.expected = coalesce(f.made, 0) as complete,
           greatest(s.expected, 1) as wanted,
           -- how many of its deliveries are done with; an event that is owed to nobody has its one dead letter instead
           coalesce(f.delivered, 0) + case when s.expected = 0 then s.discarded else coalesce(f.discarded, 0) end as settled
    from story s full join fan_out f on f.receipt_id = s.id
), pruned as (
    select coalesce(max(p.pruned_at) > now() - interval '1 day', false) as lately, count(*) > 0 as ever
    from pruned_ranges p where p.day = $3
), judged as materialized (
    select w.id, w.made, w.expected, w.waiting, w.void, array[
        not w.intact,
        not w.has_receipt,
        not w.has_event and not p.ever,
        not w.has_event and p.ever and (w.waiting > 0 or not p.lately),
        w.differs,
        w.has_event and w.made < w.expected,
        w.has_event and w.made > w.expected,
        w.complete and (w.acked <> w.delivered or w.expected > 0 and w.discarded <> w.given_up),
        w.complete and w.closed and case when w.outcome = 'expired' then w.waiting > 0 else w.settled < w.wanted end,
        w.complete and not w.closed and w.settled >= w.wanted,
        w.void and w.closed or w.complete and w.closed and w.outcome <> 'expired' and w.settled >= w.wanted
            and w.outcome <> case when w.settled > w.delivered then 'closed_incomplete'::receipt_outcome
                                  when w.redriven then 'delivered_after_redrive' else 'delivered' end,
        w.complete and w.unrouted <> (w.expected = 0 and w.discarded = 0 and not w.closed)] as verdicts
    from whole w cross join pruned p where w.id is not null
), fault as (
    select k.kind, j.id, k.deliveries
    from judged j cross join lateral unnest(
        j.verdicts,
        '{hash_mismatch,event_without_receipt,receipt_without_event,leftover_receipt,receipt_differs,missing_deliveries,
          surplus_deliveries,counters_differ,closed_but_owed,open_but_settled,wrong_outcome,unexplained_no_route}'::text[],
        array[0, greatest(j.made, 1), greatest(j.made, j.expected), j.waiting, 0,
              case when j.void then 0 else j.expected - j.made end, case when j.void then 0 else j.made - j.expected end,
              0, 0, 0, 0, 0]) as k (found, kind, deliveries)
    where true = any (j.verdicts) and k.found
    union all
    select o.fault, o.id, 1 from owed o where o.fault <> 'delivery_without_receipt'
    union all
    select case when p.ever then 'leftover_delivery' else o.fault end, o.id,
           case when not p.ever or o.status in ('pending', 'in_flight') then 1 else 0 end
    from owed o cross join pruned p
    where o.fault = 'delivery_without_receipt'
      and (not p.ever or not p.lately or o.status in ('pending', 'in_flight'))
    union all
    select 'misplaced_delivery', d.id, 1 from delivery d where d.misplaced
)
select f.kinds, f.ids, f.deliveries, t.*
from (select coalesce(array_agg(g.kind), '{}') as kinds, coalesce(array_agg(g.id), '{}') as ids,
             coalesce(array_agg(g.deliveries), '{}') as deliveries
      from fault g) f
cross join (
    select count(*) filter (where not w.void) as events, count(*) filter (where w.void) as void,
           coalesce(sum(w.expected) filter (where not w.void), 0) as matched,
           coalesce(sum(w.delivered) filter (where not w.void), 0)::bigint as delivered,
           coalesce(sum(w.waiting) filter (where not w.void), 0)::bigint as waiting,
           coalesce(sum(w.dead) filter (where not w.void), 0)::bigint as dead,
           coalesce(sum(w.given_up) filter (where not w.void), 0)::bigint as discarded,
           count(*) filter (where not w.void and w.expected = 0) as no_route
    from whole w where w.has_event
) t;

-- name: examine_keys
-- parameters: after tenant, after source, after key, window
-- index: idempotency_keys_pkey, journal_pkey
-- The next so many idempotency keys, and those of them that are not over and whose event is not there under their tenant
-- and source. `last_*` is where the walk goes on, null when it is over.
with seen as materialized (
    select k.tenant, k.source, k.key, k.receipt_id, k.journal_day, k.expires_at > now() as living
    from idempotency_keys k
    where (k.tenant, k.source, k.key) > ($1, $2, $3)
    order by k.tenant, k.source, k.key limit $4
), last as (
    select s.tenant, s.source, s.key from seen s order by s.tenant, s.source, s.key offset $4::bigint - 1 limit 1
), vain as (
    select s.tenant, s.source, s.key from seen s
    left join lateral (
        select j0.tenant, j0.source from journal j0 where j0.day = s.journal_day and j0.receipt_id = s.receipt_id offset 0
    ) j on true
    where s.living and (j.tenant, j.source) is distinct from (s.tenant, s.source)
)
select (select l.tenant from last l) as last_tenant, (select l.source from last l) as last_source,
       (select l.key from last l) as last_key, array(select v.tenant from vain v) as tenants,
       array(select v.source from vain v) as sources, array(select v.key from vain v) as keys;

-- name: keep_verification
-- parameters: ok, events, unaccounted, faults
-- index: last_verification_pkey
insert into last_verification (ok, events, unaccounted, faults) values ($1, $2, $3, $4)
on conflict (singleton) do update
    set ok = excluded.ok, events = excluded.events, unaccounted = excluded.unaccounted, faults = excluded.faults,
        verified_at = now();
