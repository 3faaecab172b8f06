-- Acks by a call of their own, and what becomes of those that never come.

-- name: ack_deliveries
-- parameters: tenants text[], receipts uuid[], deliveries uuid[], consumers text[]
-- index: deliveries_pkey, deliveries_of_endpoint, endpoints_every_name, receipts_pkey
-- One of each call in every array; a call names a delivery or a consumer, and has null for the other.
select * from ack_deliveries($1, $2, $3, $4);

-- name: reconcile
-- parameters: batch integer, deadline seconds, most generations, last_error text
-- index: deliveries_received, deliveries_pkey, past_generations_pkey, endpoints_pkey, receipts_pkey
-- What was received, and whose ack did not come within the deadline, the longest overdue first: it is sent again in its
-- next generation, or is a dead letter after so many, counted from the last that a person asked for. Whatever somebody holds is left for the next round. A receipt
-- of which something is owed is open, so nothing else is to be taken back there.
with late as materialized (
    select d.id, d.generation from deliveries d
    where d.status = 'in_flight' and d.received_at is not null
      and d.received_at < now() - $2::double precision * interval '1 second'
    order by d.received_at limit $1
    for no key update skip locked
), overdue as materialized (
    select l.id, l.generation + 1 - coalesce((
        select g.generation + 1 from past_generations g
        where g.delivery_id = l.id and g.on_demand
        order by g.generation desc limit 1
    ), 0) >= $3::integer as is_last
    from late l
), moved as (
    update deliveries d
    set status = case when o.is_last then 'dead' else 'pending' end::delivery_status,
        dead_reason = case when o.is_last then 'exhausted'::dead_reason end,
        dead_at = case when o.is_last then now() end,
        last_error = $4,
        generation = case when o.is_last then d.generation else d.generation + 1 end,
        generation_attempts = case when o.is_last then d.generation_attempts else 0 end,
        generation_started_at = case when o.is_last then d.generation_started_at end,
        due_at = case when o.is_last then d.due_at else now() end,
        redriven_at = case when o.is_last then d.redriven_at else now() end,
        received_at = case when o.is_last then d.received_at end
    from overdue o where d.id = o.id
    returning d.id, d.receipt_id, d.endpoint_id, d.generation, o.is_last
), ended as (
    insert into past_generations (delivery_id, generation)
    select m.id, m.generation - 1 from moved m where not m.is_last
), locked as materialized (
    select r.id from receipts r
    where r.id = any (array(select m.receipt_id from moved m where not m.is_last)) and not r.redriven
    order by r.id for no key update
), marked as (
    update receipts r set redriven = true where r.id = any (array(select l.id from locked l))
)
select m.id, m.receipt_id, m.is_last, e.name as consumer from moved m
cross join lateral (select e0.name from endpoints e0 where e0.id = m.endpoint_id offset 0) e;
