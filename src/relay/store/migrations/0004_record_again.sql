-- A batch of outcomes is written again when the connection was lost before its answer came, and the first try may have
-- been committed. `late` tells the two kinds of attempts apart that no longer find their lease: one that was recorded
-- when its lease was gone and moved nothing, and one that moved its delivery then, and is told of as if it did so now.
alter table delivery_attempts add column late boolean not null default false;

-- As in 0003_record, but for the attempts that an earlier try recorded: they count as moved if they moved their
-- delivery then, and a receipt that their ack closed is answered as closed. An ack closed its receipt if both bear the
-- same instant, that of their transaction.
create or replace function record_outcomes(
    o_delivery uuid[], o_token uuid[], o_receipt uuid[], o_claimed_at timestamptz[], o_attempt integer[],
    o_generation integer[], o_class text[], o_move text[], o_delay double precision[], o_dead_reason text[],
    o_reason text[], o_status_code smallint[], o_error_class text[], o_snippet text[], o_wait_ms real[],
    o_connect_ms real[], o_send_ms real[], o_first_byte_ms real[], o_total_ms real[], o_display_url text[]
) returns table (delivery_id uuid, lease_token uuid, moved boolean, outcome receipt_outcome)
language plpgsql as $$
#variable_conflict use_column
declare
    held uuid[];
    held_tokens uuid[];
    moved_before uuid[];
    moved_before_tokens uuid[];
    acked_before uuid[];
    acked_receipts uuid[];
    closed_receipts uuid[];
    closed_outcomes receipt_outcome[];
    closed_before receipt_outcome[];
    receipts_before uuid[];
begin
    -- held: the deliveries that still bear their claim's token, locked in id order
    select array_agg(l.id), array_agg(l.lease_token) into held, held_tokens from (
        select d.id, d.lease_token from unnest(o_delivery, o_token) as o (delivery, token)
        join deliveries d on d.id = o.delivery and d.lease_token = o.token
        order by d.id for no key update of d
    ) l;

    with moved as (
        update deliveries d
        set status = case o.move when 'ack' then 'delivered' when 'receive' then 'in_flight'
                                 when 'retry' then 'pending' else 'dead' end::delivery_status,
            lease_token = null, lease_until = null,
            due_at = case when o.move = 'retry' then now() + o.delay * interval '1 second' else d.due_at end,
            received_at = case when o.move = 'receive' then now() end,
            acked_at = case when o.move = 'ack' then now() end,
            dead_at = case when o.move = 'bury' then now() end,
            dead_reason = o.dead_reason::dead_reason,
            last_error = case when o.move in ('ack', 'receive') then d.last_error else o.reason end
        from unnest(o_delivery, o_token, o_move, o_delay, o_dead_reason, o_reason)
            as o (delivery, token, move, delay, dead_reason, reason)
        where d.id = o.delivery and d.id = any (held) and d.lease_token = o.token
        returning d.receipt_id, o.move
    )
    select array_agg(m.receipt_id) filter (where m.move = 'ack') into acked_receipts from moved m;

    insert into delivery_attempts (delivery_id, at, lease_token, attempt, generation, outcome_class, reason,
                                   status_code, error_class, snippet, wait_ms, connect_ms, send_ms, first_byte_ms,
                                   total_ms, display_url, late)
    select o.delivery, o.claimed_at + o.wait_ms * interval '1 millisecond', o.token, o.attempt, o.generation,
           o.class::outcome_class, o.reason, o.status_code, o.error_class, o.snippet, o.wait_ms, o.connect_ms,
           o.send_ms, o.first_byte_ms, o.total_ms, o.display_url, h.id is null
    from unnest(o_delivery, o_claimed_at, o_token, o_attempt, o_generation, o_class, o_reason, o_status_code,
                o_error_class, o_snippet, o_wait_ms, o_connect_ms, o_send_ms, o_first_byte_ms, o_total_ms,
                o_display_url)
        as o (delivery, claimed_at, token, attempt, generation, class, reason, status_code, error_class, snippet,
              wait_ms, connect_ms, send_ms, first_byte_ms, total_ms, display_url)
    left join unnest(held, held_tokens) as h (id, token) on h.id = o.delivery and h.token = o.token
    order by o.delivery, o.token
    on conflict do nothing;

    if acked_receipts is not null then
        perform from receipts r where r.id = any (acked_receipts) order by r.id for no key update;
        with progressed as (
            update receipts r
            set acked = r.acked + a.acks,
                outcome = case when r.acked + a.acks + r.discarded < r.expected then null
                               when r.discarded > 0 then 'closed_incomplete'
                               when r.redriven then 'delivered_after_redrive'
                               else 'delivered' end::receipt_outcome,
                closed_at = case when r.acked + a.acks + r.discarded >= r.expected then now() end
            from (select x.id, count(*)::integer as acks from unnest(acked_receipts) as x (id) group by x.id) a
            where r.id = a.id
            returning r.id, r.outcome
        )
        select array_agg(p.id), array_agg(p.outcome) into closed_receipts, closed_outcomes
        from progressed p where p.outcome is not null;
    end if;

    -- what was not held was late, now or then, or was recorded before
    if coalesce(cardinality(held), 0) < cardinality(o_delivery) then
        select array_agg(a.delivery_id), array_agg(a.lease_token),
               array_agg(a.delivery_id) filter (where o.move = 'ack')
        into moved_before, moved_before_tokens, acked_before
        from unnest(o_delivery, o_token, o_claimed_at, o_wait_ms, o_move)
            as o (delivery, token, claimed_at, wait_ms, move)
        join delivery_attempts a
            on a.delivery_id = o.delivery and a.at = o.claimed_at + o.wait_ms * interval '1 millisecond'
               and a.lease_token = o.token and not a.late
        where not exists (
            select from unnest(held, held_tokens) as h (id, token) where h.id = o.delivery and h.token = o.token
        );
        select array_agg(r.id), array_agg(r.outcome) into receipts_before, closed_before
        from (select distinct d.receipt_id, d.acked_at from deliveries d where d.id = any (acked_before)) b
        join receipts r on r.id = b.receipt_id and r.closed_at = b.acked_at;
    end if;

    return query
        select o.delivery, o.token, h.id is not null, c.outcome
        from unnest(o_delivery, o_token, o_receipt) as o (delivery, token, receipt)
        left join unnest(held || moved_before, held_tokens || moved_before_tokens) as h (id, token)
            on h.id = o.delivery and h.token = o.token
        left join unnest(closed_receipts || receipts_before, closed_outcomes || closed_before) as c (receipt, outcome)
            on c.receipt = o.receipt;
end $$;
