-- Receipts, deliveries and attempts as their tenant sees them. Every statement names the tenant.

-- name: get_receipt
-- parameters: tenant, id, journal day
-- index: receipts_pkey, journal_pkey
select r.id, r.rules_version, r.expected, r.acked, r.redriven, r.reason::text as reason, r.outcome::text as outcome,
       r.closed_at, j.event_id, j.type, j.schema, j.tenant, j.source, j.received_at, j.partition, j.number,
       j.content_type, j.payload_sha256, octet_length(j.payload) as payload_bytes, j.checked_us, j.assigned_us,
       j.committed_at
from receipts r join journal j on j.day = $3 and j.receipt_id = r.id
where r.tenant = $1 and r.id = $2;

-- name: receipt_deliveries
-- parameters: tenant, receipt, first delivery id, last delivery id
-- index: deliveries_pkey
select d.id, d.receipt_id, d.endpoint_id, e.name as consumer, d.status::text as status, d.attempts, d.acked_at,
       d.due_at, d.generation, d.dead_reason::text as dead_reason, d.dead_at, d.last_error, d.received_at,
       e.status::text as endpoint_status, s.held_until > now() as lane_held, s.held_reason, s.held_until
from deliveries d
join endpoints e on e.id = d.endpoint_id
join endpoint_state s on s.endpoint_id = d.endpoint_id
where d.tenant = $1 and d.id between $3 and $4 and d.receipt_id = $2
order by d.id;

-- name: get_delivery
-- parameters: tenant, id
-- index: deliveries_pkey
select d.id, d.receipt_id, d.endpoint_id, e.name as consumer, d.status::text as status, d.attempts, d.acked_at,
       d.due_at, d.generation, d.dead_reason::text as dead_reason, d.dead_at, d.last_error, d.received_at,
       e.status::text as endpoint_status, s.held_until > now() as lane_held, s.held_reason, s.held_until
from deliveries d
join endpoints e on e.id = d.endpoint_id
join endpoint_state s on s.endpoint_id = d.endpoint_id
where d.tenant = $1 and d.id = $2;

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
