-- Receipts, deliveries and attempts as their tenant sees them. Every statement names the tenant, or is about what was
-- found under it before.

-- name: get_receipt
-- parameters: tenant, id, journal day
-- index: receipts_pkey or receipts_page, journal_pkey
select r.id, r.rules_version, r.expected, r.acked, r.discarded, r.redriven, r.reason::text as reason,
       r.outcome::text as outcome, r.closed_at, r.unrouted_at, r.routed_at, j.event_id, j.type, j.schema, j.tenant,
       j.source, j.received_at, j.partition, j.number, j.content_type, j.payload_sha256, octet_length(j.payload) as payload_bytes, j.checked_us, j.assigned_us,
       j.committed_at
from receipts r join journal j on j.day = $3 and j.receipt_id = r.id
where r.tenant = $1 and r.id = $2 and r.void_at is null;

-- name: receipt_deliveries
-- parameters: tenant, receipt, first delivery id, last delivery id
-- index: deliveries_pkey
select d.* from shown_deliveries d
where d.tenant = $1 and d.id between $3 and $4 and d.receipt_id = $2
order by d.id;

-- name: get_delivery
-- parameters: tenant, id
-- index: deliveries_pkey
select d.* from shown_deliveries d where d.tenant = $1 and d.id = $2;

-- name: past_generations
-- parameters: receipts uuid[]
-- index: past_generations_pkey
-- The generations of their deliveries that ended by a re-drive. The receipts were found under their tenant before.
select g.delivery_id, g.redriven_at, g.acked_at, g.dead_at
from unnest($1::uuid[]) as r (id)
cross join lateral (
    select * from past_generations g0
    where g0.delivery_id between overlay(r.id::text placing '00000000' from 29)::uuid
                             and overlay(r.id::text placing 'ffffffff' from 29)::uuid
    order by g0.delivery_id, g0.generation limit 10000
) g
order by g.delivery_id, g.redriven_at;

-- name: closed_receipts
-- parameters: receipts uuid[]
-- index: receipts_pkey
-- For whoever waits: each receipt was found under its tenant before.
select r.id from receipts r where r.id = any ($1::uuid[]) and r.outcome is not null;

-- name: delivery_attempts
-- parameters: delivery id, not before
-- index: delivery_attempts_pkey
-- The delivery was found under its tenant before; an attempt is never older than its delivery.
select a.attempt, a.generation, a.at, a.outcome_class::text as outcome_class, a.reason, a.deferred_for_ms,
       a.status_code, a.error_class, a.snippet, a.wait_ms, a.connect_ms, a.send_ms, a.first_byte_ms, a.total_ms,
       a.display_url
from delivery_attempts a
where a.delivery_id = $1 and a.at >= $2
order by a.at, a.attempt
limit 1000;
