-- As before, but: what an ack leaves given up of an expired receipt was given up for its age and by nobody, so it stays
-- `expired`.
create or replace function ack_deliveries(p_tenant text[], p_receipt uuid[], p_delivery uuid[], p_consumer text[])
returns table (place integer, delivery_id uuid, endpoint_id uuid, consumer text, acked_at timestamptz, is_new boolean,
               outcome receipt_outcome, closed boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    places integer[];
    wanted uuid[];
    newly_acked uuid[];
    of_receipts uuid[];
    given_up integer[];
    held_receipts uuid[];
    held_outcomes receipt_outcome[];
begin
    select array_agg(w.place), array_agg(w.id) into places, wanted
    from (
        select o.place::integer as place, d.id
        from unnest(p_tenant, p_receipt, p_delivery) with ordinality as o (tenant, receipt, delivery, place)
        cross join lateral (
            select d0.id from deliveries d0
            where d0.id = o.delivery and d0.receipt_id = o.receipt and d0.tenant = o.tenant
            offset 0
        ) d
        union
        -- a name may have been another endpoint's before, which was removed
        select o.place::integer, d.id
        from unnest(p_tenant, p_receipt, p_consumer) with ordinality as o (tenant, receipt, consumer, place)
        cross join lateral (
            select e0.id from endpoints e0 where e0.tenant = o.tenant and e0.name = o.consumer offset 0
        ) e
        cross join unnest('{pending,in_flight,delivered,dead}'::delivery_status[]) as s (status)
        cross join lateral (
            select d0.id from deliveries d0
            where d0.endpoint_id = e.id and d0.status = s.status and d0.receipt_id = o.receipt
              and d0.id between overlay(o.receipt::text placing '00000000' from 29)::uuid
                            and overlay(o.receipt::text placing 'ffffffff' from 29)::uuid
            offset 0
        ) d
    ) w;
    if wanted is null then
        return;
    end if;
    perform from deliveries d where d.id = any (wanted) order by d.id for no key update of d;

    with held as materialized (
        select d.id, d.discarded_at is not null as discarded from deliveries d
        where d.id = any (wanted) and d.status not in ('delivered', 'void')
    ), moved as (
        update deliveries d
        set status = 'delivered', acked_at = now(), acked_token = d.lease_token, lease_token = null,
            lease_until = null, dead_reason = null, discarded_at = null
        from held h where d.id = h.id
        returning d.id, d.receipt_id, h.discarded
    )
    select array_agg(m.id), array_agg(m.receipt_id), array_agg(m.discarded::integer)
    into newly_acked, of_receipts, given_up from moved m;

    if newly_acked is not null then
        select array_agg(l.id), array_agg(l.outcome) into held_receipts, held_outcomes
        from (select r.id, r.outcome from receipts r where r.id = any (of_receipts) order by r.id for no key update) l;
        update receipts r
        set acked = r.acked + a.acks, discarded = r.discarded - a.discards, outcome = n.outcome,
            -- one that was closed by giving up is closed anew where that made it another outcome
            closed_at = case when n.outcome is null then null
                             when n.outcome = r.outcome then r.closed_at else clock_timestamp() end
        from (select x.id, count(*)::integer as acks, sum(x.discards)::integer as discards
              from unnest(of_receipts, given_up) as x (id, discards) group by x.id) a
        cross join lateral (
            select case when k.outcome = 'expired' and o.outcome = 'closed_incomplete' then k.outcome
                        else o.outcome end as outcome
            from receipts k
            cross join lateral (
                select closing_outcome(k.expected, k.acked + a.acks, k.discarded - a.discards, k.redriven) as outcome
            ) o
            where k.id = a.id
        ) n
        where r.id = a.id;
    end if;

    return query
        select w.place, d.id, d.endpoint_id, e.name, d.acked_at, coalesce(d.id = any (newly_acked), false), r.outcome,
               coalesce(d.id = any (newly_acked), false) and r.outcome is not null
                   and r.outcome is distinct from b.outcome
        from unnest(places, wanted) as w (place, id)
        join deliveries d on d.id = w.id and d.status = 'delivered'
        join endpoints e on e.id = d.endpoint_id
        join receipts r on r.id = d.receipt_id
        left join unnest(held_receipts, held_outcomes) as b (id, outcome) on b.id = r.id;
end $$;
