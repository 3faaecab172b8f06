-- Which endpoints take what they are sent, as all dispatchers know it: the instant of an answer, renewed once a minute,
-- and null after a send that was not answered, or by a 429. Whoever has not answered for long shares a part of the permits
-- only, and is asked with one delivery first.
alter table endpoint_state add column answered_at timestamptz;

create function is_doubtful(s endpoint_state, p_breaker boolean, p_now timestamptz) returns boolean
language sql stable as $$
    select s.answered_at is null or s.answered_at < p_now - interval '10 minutes'
        or (p_breaker and s.breaker <> 'closed')
$$;

-- What a deployment knew before answers were remembered: without failures in a row, an endpoint answers.
update endpoint_state set answered_at = now() where failures = 0 and breaker = 'closed' and tokens_at is not null;

-- As in 0017_full_lanes. What waits for an explicit ack is under way without taking a slot.
create or replace function is_full(s endpoint_state) returns boolean language sql stable as $$
    select s.full_at is not null
       and exists (select from deliveries d where d.endpoint_id = s.endpoint_id and d.status = 'in_flight'
                                              and d.lease_token is not null)
$$;

-- The sums of instants depend on the session's time zone as far as PostgreSQL knows: called immutable, they would not be
-- put into the statements that use them.
alter function available_tokens(endpoints, endpoint_state, timestamptz) stable;
alter function looked_at(timestamptz, timestamptz) stable;
alter function closed_by(endpoints, endpoint_state, boolean, timestamptz) stable;
alter function opens_at(endpoints, endpoint_state, boolean) stable;

-- As in 0014_gates; it also remembers who answers, and changes no lane that it has not locked. Answers the lanes whose
-- breaker moved, and, without a breaker, those that are held or disabled.
create or replace function teach_lanes(
    p_lanes uuid[], p_held uuid[], p_held_tokens uuid[], o_delivery uuid[], o_token uuid[], o_claimed_at timestamptz[],
    o_endpoint uuid[], o_answered boolean[], o_hold double precision[], o_hold_reason text[],
    p_threshold integer, p_cooldown double precision, p_max_cooldown double precision
) returns table (lane uuid, breaker breaker_status, trips integer)
language plpgsql as $$
#variable_conflict use_column
declare
    locked uuid[];
    known endpoint_state;
    learned endpoint_state;
    notice record;
    disabled record;
begin
    -- with those that a hold reaches over their credential
    select array_agg(l.endpoint_id) into locked from (
        select s.endpoint_id from endpoint_state s
        where s.endpoint_id = any (p_lanes || array(
            select b.id
            from (select distinct o.endpoint from unnest(o_endpoint, o_hold) as o (endpoint, hold)
                  where o.hold < 'infinity') h
            join endpoints a on a.id = h.endpoint
            join endpoints b on b.credential = a.credential and b.removed_at is null))
        order by s.endpoint_id for no key update
    ) l;

    for notice in
        select o.endpoint, array_agg(o.token order by o.place) as tokens,
               array_agg(o.claimed_at order by o.place) as began, array_agg(o.answered order by o.place) as answered,
               (array_agg(o.answered and o.hold is null order by o.place desc)
                   filter (where o.answered is not null))[1] as last_welcome
        from unnest(o_delivery, o_token, o_claimed_at, o_endpoint, o_answered, o_hold) with ordinality
            as o (delivery, token, claimed_at, endpoint, answered, hold, place)
        join unnest(p_held, p_held_tokens) as h (id, token) on h.id = o.delivery and h.token = o.token
        where o.endpoint = any (p_lanes) and o.endpoint = any (locked)
        group by o.endpoint order by o.endpoint
    loop
        select s.* into known from endpoint_state s where s.endpoint_id = notice.endpoint;
        learned := known;
        if p_threshold is not null then
            for place in 1 .. cardinality(notice.tokens) loop
                learned := breaker_after(
                    learned, notice.tokens[place], notice.began[place], notice.answered[place],
                    p_threshold, p_cooldown, p_max_cooldown, now());
            end loop;
        end if;
        if not notice.last_welcome then
            learned.answered_at := null;
        elsif notice.last_welcome and (known.answered_at is null or known.answered_at < now() - interval '1 minute') then
            learned.answered_at := now();
        end if;
        continue when learned is not distinct from known;
        update endpoint_state s
        set breaker = learned.breaker, failures = learned.failures, trips = learned.trips,
            opened_at = learned.opened_at, cooldown_until = learned.cooldown_until,
            probe_token = learned.probe_token, probe_until = learned.probe_until, answered_at = learned.answered_at
        where s.endpoint_id = notice.endpoint;
        if learned.breaker <> known.breaker or learned.opened_at is distinct from known.opened_at then
            lane := notice.endpoint;
            breaker := learned.breaker;
            trips := learned.trips;
            return next;
        end if;
    end loop;

    breaker := null;
    trips := null;
    -- a hold that lasts longer already stays, with its reason
    for lane in
        with wished as (
            select o.endpoint, max(o.hold) as seconds, min(o.reason) as reason
            from unnest(o_delivery, o_token, o_endpoint, o_hold, o_hold_reason)
                as o (delivery, token, endpoint, hold, reason)
            join unnest(p_held, p_held_tokens) as h (id, token) on h.id = o.delivery and h.token = o.token
            where o.hold < 'infinity'
            group by o.endpoint
        ), reached as (
            select b.id, max(w.seconds) as seconds, min(w.reason) as reason
            from wished w
            join endpoints a on a.id = w.endpoint
            join endpoints b on b.id = a.id or (b.credential = a.credential and b.removed_at is null)
            group by b.id
        )
        update endpoint_state s
        set held_until = greatest(s.held_until, now() + r.seconds * interval '1 second'),
            held_reason = case when s.held_until >= now() + r.seconds * interval '1 second' then s.held_reason
                               else r.reason end
        from reached r
        where s.endpoint_id = r.id and s.endpoint_id = any (locked)
        returning s.endpoint_id
    loop
        return next;
    end loop;

    for disabled in
        select o.endpoint, min(o.reason) as reason
        from unnest(o_delivery, o_token, o_endpoint, o_hold, o_hold_reason) as o (delivery, token, endpoint, hold, reason)
        join unnest(p_held, p_held_tokens) as h (id, token) on h.id = o.delivery and h.token = o.token
        where o.hold = 'infinity'
        group by o.endpoint order by o.endpoint
    loop
        update endpoints e
        set status = 'disabled', status_reason = disabled.reason, revision = e.revision + 1, updated_at = now()
        where e.id = disabled.endpoint and e.status = 'active' and e.removed_at is null;
        lane := disabled.endpoint;
        return next;
    end loop;
end $$;

-- As in 0020_acked_while_sent; a lane whose last answer on record is a minute old learns of another.
create or replace function record_outcomes(
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
