-- Re-drives and discards. Locks are taken in the one order: deliveries by id, then receipts by id. A delivery that
-- somebody holds under a lease is left alone, so nothing here needs a token.

-- name: find_receipt
-- parameters: tenant, receipt
-- index: receipts_pkey or receipts_page, journal_pkey
select r.id, r.expected from receipts r
where r.tenant = $1 and r.id = $2 and r.void_at is null
  and exists (select from journal j where j.day = r.journal_day and j.receipt_id = r.id);

-- name: deliveries_of_receipt
-- parameters: tenant, receipt, first delivery id, last delivery id, endpoints uuid[]
-- index: deliveries_pkey or deliveries_of_endpoint
-- All of them, or (endpoints given) those to these.
select d.id from deliveries d
where d.tenant = $1 and d.receipt_id = $2 and d.id between $3 and $4
  and ($5::uuid[] is null or d.endpoint_id = any ($5))
order by d.id;

-- name: lock_delivery
-- parameters: tenant, delivery
-- index: deliveries_pkey, endpoints_pkey, journal_pkey
select d.status::text as status, d.lease_token is not null as leased, e.removed_at is not null as removed
from deliveries d join endpoints e on e.id = d.endpoint_id
where d.tenant = $1 and d.id = $2 and d.status <> 'void'
  and exists (select from journal j where j.day = d.journal_day and j.receipt_id = d.receipt_id)
order by d.id for no key update of d;

-- name: redrive_deliveries
-- parameters: tenant, deliveries uuid[], which text
-- index: deliveries_pkey, endpoints_pkey, journal_pkey
-- Sends again: in a new generation, due now, under the same id. Which: `any`; `unacked`, but for what waits for its first
-- attempt anyway; or `dead`, of which a person gave up none. What removed endpoints are owed stays as it is; one that is
-- removed meanwhile has it buried again by the reaper. The event must be there, and is from now on until the end of the
-- transaction: that it was read keeps its day from being pruned.
with held as materialized (
    select d.id, d.acked_at, d.dead_at, d.discarded_at is not null as discarded
    from deliveries d join endpoints e on e.id = d.endpoint_id
    where d.tenant = $1 and d.id = any ($2::uuid[]) and d.lease_token is null and d.status <> 'void'
      and e.removed_at is null
      and exists (select from journal j where j.day = d.journal_day and j.receipt_id = d.receipt_id)
      and case $3::text when 'any' then true
                        when 'unacked' then d.acked_at is null and (d.status <> 'pending' or d.attempts > 0)
                        else d.status = 'dead' and d.discarded_at is null end
    order by d.id for no key update of d
), moved as (
    update deliveries d
    set status = 'pending', due_at = now(), generation = d.generation + 1, generation_attempts = 0,
        generation_started_at = null, redriven_at = now(), received_at = null, acked_at = null, dead_reason = null,
        dead_at = null, discarded_at = null
    from held h where d.id = h.id
    returning d.id, d.receipt_id, d.endpoint_id, d.generation, h.acked_at, h.dead_at, h.discarded
), ended as (
    insert into past_generations (delivery_id, generation, acked_at, dead_at, on_demand)
    select m.id, m.generation - 1, m.acked_at, m.dead_at, true from moved m
)
select m.id, m.receipt_id, m.endpoint_id, e.name as consumer, m.generation, m.acked_at is not null as acked, m.discarded
from moved m join endpoints e on e.id = m.endpoint_id
order by m.id;

-- name: discard_deliveries
-- parameters: tenant, deliveries uuid[]
-- index: deliveries_pkey
with held as materialized (
    select d.id from deliveries d
    where d.tenant = $1 and d.id = any ($2::uuid[]) and d.status = 'dead' and d.discarded_at is null
    order by d.id for no key update
)
update deliveries d set discarded_at = now()
where d.id = any (array(select h.id from held h))
returning d.id, d.receipt_id;

-- name: lock_receipts
-- parameters: tenant, receipts uuid[]
-- index: receipts_pkey, journal_pkey
-- The tenant is compared in a way that no index serves: each receipt is found by its id, even in an early plan.
-- `unrouted` tells that an event waits because no rule matched it, `given_up` that it was given up since. The event is
-- read for the same reason as above.
select r.id, r.type, r.journal_day, r.unrouted_at is not null as unrouted,
       r.expected = 0 and r.discarded > 0 as given_up
from receipts r
where r.id = any ($2::uuid[]) and r.tenant is not distinct from $1
  and exists (select from journal j where j.day = r.journal_day and j.receipt_id = r.id)
order by r.id for no key update;

-- name: reopen_receipts
-- parameters: tenant, receipts uuid[], acks taken back integer[], discards taken back integer[]
-- index: receipts_pkey
-- They are locked by lock_receipts before.
update receipts r
set acked = r.acked - b.acks, discarded = r.discarded - b.discards, redriven = true, outcome = null, closed_at = null
from unnest($2::uuid[], $3::integer[], $4::integer[]) as b (id, acks, discards)
where r.id = b.id and r.tenant is not distinct from $1;

-- name: give_up_receipts
-- parameters: tenant, receipts uuid[], discards integer[]
-- index: receipts_pkey
-- They are locked by lock_receipts before. Answers which of them are closed by this.
update receipts r
set discarded = r.discarded + b.discards, unrouted_at = null,
    outcome = closing_outcome(r.expected, r.acked, r.discarded + b.discards, r.redriven),
    closed_at = case when r.acked + r.discarded + b.discards >= greatest(r.expected, 1) then clock_timestamp() end
from unnest($2::uuid[], $3::integer[]) as b (id, discards)
where r.id = b.id and r.tenant is not distinct from $1
returning r.id, r.outcome is not null as closed;

-- name: tenant_rules
-- parameters: tenant
-- index: endpoints_page or endpoints_pkey
-- The rules in force, in the order in which the gateway has them.
select v.rules,
       (select jsonb_agg(jsonb_build_array(e.id, e.name, e.event_types) order by e.id)
        from endpoints e where e.tenant = $1 and e.removed_at is null)::text as rules_json
from versions v;

-- name: owe_anew
-- parameters: tenant, deliveries uuid[], receipts uuid[], endpoints uuid[], journal days date[]
-- index: deliveries_pkey
insert into deliveries (id, receipt_id, endpoint_id, tenant, journal_day, due_at, redriven_at, owed_by)
select d.id, d.receipt, d.endpoint, $1, d.day, now(), now(), pg_current_xact_id()
from unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::date[]) as d (id, receipt, endpoint, day)
order by d.id;

-- name: route_receipts
-- parameters: tenant, receipts uuid[], fan_outs integer[], rules version
-- index: receipts_pkey
-- They are locked by lock_receipts before, and had matched no rule.
update receipts r
set expected = b.fan_out, rules_version = $4, reason = null, unrouted_at = null, routed_at = now(), discarded = 0,
    redriven = true, outcome = null, closed_at = null
from unnest($2::uuid[], $3::integer[]) as b (id, fan_out)
where r.id = b.id and r.tenant is not distinct from $1;
