-- Record a batch of outcomes: one row per attempt in every array. `o_move` says what becomes of the delivery: `ack`,
-- `receive` (a 2xx whose explicit ack is still to come), `retry` (after o_delay seconds) or `bury` (for o_dead_reason).
--
-- Fenced: a delivery moves only if it still bears the token of the claim that the attempt belongs to. The attempt is
-- kept in any case, under a key that includes the claim, so recording twice changes nothing. Lock order: deliveries in
-- id order, then attempts in key order, then receipts in id order. Answers one row per attempt, in no order: whether it
-- moved its delivery, and the outcome of its receipt if that was closed by this batch.
create function record_outcomes(
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
    acked_receipts uuid[];
    closed_receipts uuid[];
    closed_outcomes receipt_outcome[];
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
                                   total_ms, display_url)
    select o.delivery, o.claimed_at + o.wait_ms * interval '1 millisecond', o.token, o.attempt, o.generation,
           o.class::outcome_class, o.reason, o.status_code, o.error_class, o.snippet, o.wait_ms, o.connect_ms,
           o.send_ms, o.first_byte_ms, o.total_ms, o.display_url
    from unnest(o_delivery, o_claimed_at, o_token, o_attempt, o_generation, o_class, o_reason, o_status_code,
                o_error_class, o_snippet, o_wait_ms, o_connect_ms, o_send_ms, o_first_byte_ms, o_total_ms,
                o_display_url)
        as o (delivery, claimed_at, token, attempt, generation, class, reason, status_code, error_class, snippet,
              wait_ms, connect_ms, send_ms, first_byte_ms, total_ms, display_url)
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

    return query
        select o.delivery, o.token, h.id is not null, c.outcome
        from unnest(o_delivery, o_token, o_receipt) as o (delivery, token, receipt)
        left join unnest(held, held_tokens) as h (id, token) on h.id = o.delivery and h.token = o.token
        left join unnest(closed_receipts, closed_outcomes) as c (receipt, outcome) on c.receipt = o.receipt;
end $$;
