-- As in 0004_record_again, and with what the lanes learn. `o_answered` is null where an attempt taught nothing;
-- `o_hold` closes the lane, and all that share its credential, for so many seconds ('infinity': until a person resumes
-- it, and that lane alone), with `o_hold_reason`. No threshold: no breaker. Lanes are locked after receipts, in the order
-- of their ids, and only those that change, or whose last answer on record is a minute old.
--
-- An ack may have come by a call of its own while its delivery was being sent: `moved` is null then, for it was the ack
-- that moved it. A receipt closes at the moment at which that is written, and it is an ack's closing if one transaction
-- wrote both. Answers a row for each outcome, and one without a delivery for each lane that moved.
drop function record_outcomes(
    uuid[], uuid[], uuid[], timestamptz[], integer[], integer[], text[], text[], double precision[], text[], text[],
    smallint[], text[], text[], real[], real[], real[], real[], real[], text[]
);
create function record_outcomes(
    o_delivery uuid[], o_token uuid[], o_receipt uuid[], o_claimed_at timestamptz[], o_attempt integer[],
    o_generation integer[], o_class text[], o_move text[], o_delay double precision[], o_dead_reason text[],
    o_reason text[], o_status_code smallint[], o_error_class text[], o_snippet text[], o_wait_ms real[],
    o_connect_ms real[], o_send_ms real[], o_first_byte_ms real[], o_total_ms real[], o_display_url text[],
    o_endpoint uuid[], o_answered boolean[], o_hold double precision[], o_hold_reason text[],
    p_threshold integer, p_cooldown double precision, p_max_cooldown double precision
) returns table (
    delivery_id uuid, lease_token uuid, moved boolean, outcome receipt_outcome, lane uuid, breaker breaker_status,
    trips integer
)
language plpgsql as $$
#variable_conflict use_column
declare
    held uuid[];
    held_tokens uuid[];
    settled uuid[];
    settled_tokens uuid[];
    settled_lanes uuid[];
    settled_troubled uuid[];
    moved_before uuid[];
    moved_before_tokens uuid[];
    acked_before uuid[];
    acked_receipts uuid[];
    closed_receipts uuid[];
    closed_outcomes receipt_outcome[];
    closed_before receipt_outcome[];
    receipts_before uuid[];
    lanes uuid[];
    troubled uuid[];
begin
    -- held: the deliveries that still bear their claim's token, locked in id order
    select array_agg(l.id), array_agg(l.lease_token), array_agg(distinct l.endpoint),
           array_agg(distinct l.endpoint) filter (where l.answered is false or l.hold is not null)
    into held, held_tokens, lanes, troubled
    from (
        select d.id, d.lease_token, o.endpoint, o.answered, o.hold
        from unnest(o_delivery, o_token, o_endpoint, o_answered, o_hold)
            as o (delivery, token, endpoint, answered, hold)
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

    -- settled: those whose ack came while they were being sent; the ack has moved them, and their attempts are in time
    if coalesce(cardinality(held), 0) < cardinality(o_delivery) then
        select array_agg(s.id), array_agg(s.acked_token), array_agg(distinct s.endpoint),
               array_agg(distinct s.endpoint) filter (where s.answered is false or s.hold is not null)
        into settled, settled_tokens, settled_lanes, settled_troubled
        from (
            select d.id, d.acked_token, o.endpoint, o.answered, o.hold
            from unnest(o_delivery, o_token, o_endpoint, o_answered, o_hold)
                as o (delivery, token, endpoint, answered, hold)
            join deliveries d on d.id = o.delivery and d.acked_token = o.token
        ) s;
        lanes := lanes || settled_lanes;
        troubled := troubled || settled_troubled;
    end if;

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
    left join unnest(held || settled, held_tokens || settled_tokens) as h (id, token)
        on h.id = o.delivery and h.token = o.token
    order by o.delivery, o.token
    on conflict do nothing;

    if acked_receipts is not null then
        perform from receipts r where r.id = any (acked_receipts) order by r.id for no key update;
        with progressed as (
            update receipts r
            set acked = r.acked + a.acks,
                outcome = closing_outcome(r.expected, r.acked + a.acks, r.discarded, r.redriven),
                -- behind every ack that it closes with, also of a transaction that began after this one
                closed_at = case when r.acked + a.acks + r.discarded >= r.expected then clock_timestamp() end
            from (select x.id, count(*)::integer as acks from unnest(acked_receipts) as x (id) group by x.id) a
            where r.id = a.id
            returning r.id, r.outcome
        )
        select array_agg(p.id), array_agg(p.outcome) into closed_receipts, closed_outcomes
        from progressed p where p.outcome is not null;
    end if;

    -- what was not held was late, now or then, or was recorded before
    if coalesce(cardinality(held), 0) + coalesce(cardinality(settled), 0) < cardinality(o_delivery) then
        select array_agg(a.delivery_id), array_agg(a.lease_token),
               array_agg(a.delivery_id) filter (where o.move = 'ack')
        into moved_before, moved_before_tokens, acked_before
        from unnest(o_delivery, o_token, o_claimed_at, o_wait_ms, o_move)
            as o (delivery, token, claimed_at, wait_ms, move)
        join delivery_attempts a
            on a.delivery_id = o.delivery and a.at = o.claimed_at + o.wait_ms * interval '1 millisecond'
               and a.lease_token = o.token and not a.late
        where not exists (
            select from unnest(held || settled, held_tokens || settled_tokens) as h (id, token)
            where h.id = o.delivery and h.token = o.token
        );
        select array_agg(r.id), array_agg(r.outcome) into receipts_before, closed_before
        from (select distinct d.receipt_id, d.xmin as written_by from deliveries d
              where d.id = any (acked_before) and d.status = 'delivered') b
        join receipts r on r.id = b.receipt_id and r.xmin = b.written_by and r.outcome is not null;
    end if;

    select array_agg(s.endpoint_id) into lanes
    from endpoint_state s
    where s.endpoint_id = any (lanes)
      and (s.breaker <> 'closed' or s.failures > 0 or s.endpoint_id = any (troubled)
           or s.answered_at is null or s.answered_at < now() - interval '1 minute');
    if lanes is not null then
        return query
            select null::uuid, null::uuid, false, null::receipt_outcome, m.lane, m.breaker, m.trips
            from teach_lanes(lanes, held || settled, held_tokens || settled_tokens, o_delivery, o_token,
                             o_claimed_at, o_endpoint, o_answered, o_hold, o_hold_reason, p_threshold, p_cooldown,
                             p_max_cooldown) m;
    end if;

    return query
        select o.delivery, o.token, case when s.id is null then h.id is not null end, c.outcome, null::uuid,
               null::breaker_status, null::integer
        from unnest(o_delivery, o_token, o_receipt) as o (delivery, token, receipt)
        left join unnest(held || moved_before, held_tokens || moved_before_tokens) as h (id, token)
            on h.id = o.delivery and h.token = o.token
        left join unnest(settled, settled_tokens) as s (id, token) on s.id = o.delivery and s.token = o.token
        left join unnest(closed_receipts || receipts_before, closed_outcomes || closed_before) as c (receipt, outcome)
            on c.receipt = o.receipt;
end $$;
