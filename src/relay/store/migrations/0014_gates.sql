-- The gates of a lane: what closes it, when it opens again, and what the ends of sends do to its breaker. The sums are
-- those of domain/bucket.py and domain/breaker.py.

-- What tells which lanes share a credential: a chat platform's 429 holds all of them. Null where only the lane counts.
alter table endpoints add column credential bytea;
create index endpoints_credential on endpoints (credential) where credential is not null and removed_at is null;

-- For the gauge. Tokens change with every claim and a breaker rarely, so the updates of a lane stay HOT.
create index endpoint_state_breaker on endpoint_state (endpoint_id) where breaker <> 'closed';

-- Tokens in the lane's bucket at that moment, fractions included.
create function available_tokens(e endpoints, s endpoint_state, p_now timestamptz) returns double precision
language sql immutable as $$
    select least(
        e.burst,
        coalesce(s.tokens, e.burst)
            + e.rate_per_second * greatest(extract(epoch from p_now - s.tokens_at), 0)::double precision
    )
$$;

-- Which gate of the lane is closed at that moment, null if none. What a dispatcher has under way it knows itself.
create function closed_by(e endpoints, s endpoint_state, p_breaker boolean, p_now timestamptz) returns text
language sql immutable as $$
    select case
        when e.status <> 'active' then 'paused'
        when s.held_until > p_now then coalesce(s.held_reason, 'retry_after')
        when p_breaker and s.breaker = 'open' and s.cooldown_until > p_now then 'breaker'
        when p_breaker and s.breaker = 'half_open' and s.probe_until > p_now then 'breaker'
        when available_tokens(e, s, p_now) + 1e-9 < 1 then 'rate_limit'
    end
$$;

-- From when on the gates that time opens are open, as far as is known; null if none was ever closed.
create function opens_at(e endpoints, s endpoint_state, p_breaker boolean) returns timestamptz
language sql immutable as $$
    select greatest(
        s.held_until,
        case when p_breaker then s.cooldown_until end,
        case when p_breaker and s.breaker = 'half_open' then s.probe_until end,
        case when s.tokens + 1e-9 < 1
             then s.tokens_at + least((1 - s.tokens) / e.rate_per_second, 1e9) * interval '1 second' end
    )
$$;

-- A lane after the end of one of its sends: `observe` of domain/breaker.py. `p_answered` is null where nothing was
-- learned. The instant of a recovery stays in `cooldown_until`: what waited for it was not late before.
create function breaker_after(
    s endpoint_state, p_token uuid, p_began timestamptz, p_answered boolean, p_threshold integer,
    p_cooldown double precision, p_max_cooldown double precision, p_now timestamptz
) returns endpoint_state language plpgsql immutable as $$
begin
    if s.breaker = 'half_open' then
        if s.probe_token is distinct from p_token then
            return s;
        end if;
        s.probe_token := null;
        s.probe_until := null;
        s.cooldown_until := p_now;
        if p_answered is null then
            s.breaker := 'open';
            return s;
        elsif p_answered then
            s.breaker := 'closed';
            s.failures := 0;
            s.trips := 0;
            return s;
        end if;
    elsif s.breaker = 'open' or p_answered is null or p_began < s.opened_at then
        return s;
    elsif p_answered then
        s.failures := 0;
        s.trips := 0;
        return s;
    elsif s.failures + 1 < p_threshold then
        s.failures := s.failures + 1;
        return s;
    end if;
    s.breaker := 'open';
    s.failures := 0;
    s.trips := s.trips + 1;
    s.opened_at := p_now;
    s.cooldown_until := p_now
        + least(p_cooldown * 2.0::double precision ^ least(s.trips - 1, 1000), p_max_cooldown) * interval '1 second';
    return s;
end $$;

-- What these lanes learn from the ends of their sends, in the order in which those ended; for record_outcomes. Of an
-- attempt whose lease was lost nobody learns anything. Answers the lanes whose breaker moved.
create function teach_lanes(
    p_lanes uuid[], p_held uuid[], p_held_tokens uuid[], o_delivery uuid[], o_token uuid[], o_claimed_at timestamptz[],
    o_endpoint uuid[], o_answered boolean[], o_hold double precision[], o_hold_reason text[],
    p_threshold integer, p_cooldown double precision, p_max_cooldown double precision
) returns table (lane uuid, breaker breaker_status, trips integer)
language plpgsql as $$
#variable_conflict use_column
declare
    known endpoint_state;
    learned endpoint_state;
    notice record;
    disabled record;
begin
    -- with those that a hold reaches over their credential
    perform from endpoint_state s
    where s.endpoint_id = any (p_lanes || array(
        select b.id from unnest(o_endpoint, o_hold) as o (endpoint, hold)
        join endpoints a on a.id = o.endpoint
        join endpoints b on b.credential = a.credential and b.removed_at is null
        where o.hold < 'infinity'))
    order by s.endpoint_id for no key update;

    if p_threshold is not null then
        for notice in
            select o.endpoint, array_agg(o.token order by o.place) as tokens,
                   array_agg(o.claimed_at order by o.place) as began, array_agg(o.answered order by o.place) as answered
            from unnest(o_delivery, o_token, o_claimed_at, o_endpoint, o_answered) with ordinality
                as o (delivery, token, claimed_at, endpoint, answered, place)
            join unnest(p_held, p_held_tokens) as h (id, token) on h.id = o.delivery and h.token = o.token
            where o.endpoint = any (p_lanes)
            group by o.endpoint order by o.endpoint
        loop
            select s.* into known from endpoint_state s where s.endpoint_id = notice.endpoint;
            continue when known.endpoint_id is null;
            learned := known;
            for place in 1 .. cardinality(notice.tokens) loop
                learned := breaker_after(
                    learned, notice.tokens[place], notice.began[place], notice.answered[place],
                    p_threshold, p_cooldown, p_max_cooldown, now());
            end loop;
            continue when learned is not distinct from known;
            update endpoint_state s
            set breaker = learned.breaker, failures = learned.failures, trips = learned.trips,
                opened_at = learned.opened_at, cooldown_until = learned.cooldown_until,
                probe_token = learned.probe_token, probe_until = learned.probe_until
            where s.endpoint_id = notice.endpoint;
            if learned.breaker <> known.breaker or learned.opened_at is distinct from known.opened_at then
                lane := notice.endpoint;
                breaker := learned.breaker;
                trips := learned.trips;
                return next;
            end if;
        end loop;
    end if;

    -- a hold that lasts longer already stays, with its reason
    update endpoint_state s
    set held_until = now() + w.seconds * interval '1 second', held_reason = w.reason
    from (
        select distinct on (b.id) b.id, o.hold as seconds, o.reason
        from unnest(o_delivery, o_token, o_endpoint, o_hold, o_hold_reason) as o (delivery, token, endpoint, hold, reason)
        join unnest(p_held, p_held_tokens) as h (id, token) on h.id = o.delivery and h.token = o.token
        join endpoints a on a.id = o.endpoint
        join endpoints b on b.id = a.id or (b.credential = a.credential and b.removed_at is null)
        where o.hold < 'infinity'
        order by b.id, o.hold desc
    ) w
    where s.endpoint_id = w.id and (s.held_until is null or s.held_until < now() + w.seconds * interval '1 second');

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
    end loop;
end $$;

-- As in 0004_record_again, and with what the lanes learn. `o_answered` is null where an attempt taught nothing;
-- `o_hold` closes the lane, and all that share its credential, for so many seconds ('infinity': until a person resumes
-- it, and that lane alone), with `o_hold_reason`. No threshold: no breaker. Lanes are locked after receipts, in the order
-- of their ids, and only those that change.
--
-- Answers a row for each outcome, and one without a delivery for each lane whose breaker moved.
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
        from unnest(o_delivery, o_token, o_endpoint, o_answered, o_hold) as o (delivery, token, endpoint, answered, hold)
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

    select array_agg(s.endpoint_id) into lanes
    from endpoint_state s
    where s.endpoint_id = any (lanes)
      and (s.breaker <> 'closed' or s.failures > 0 or s.endpoint_id = any (troubled));
    if lanes is not null then
        return query
            select null::uuid, null::uuid, false, null::receipt_outcome, m.lane, m.breaker, m.trips
            from teach_lanes(lanes, held, held_tokens, o_delivery, o_token, o_claimed_at, o_endpoint, o_answered,
                             o_hold, o_hold_reason, p_threshold, p_cooldown, p_max_cooldown) m;
    end if;

    return query
        select o.delivery, o.token, h.id is not null, c.outcome, null::uuid, null::breaker_status, null::integer
        from unnest(o_delivery, o_token, o_receipt) as o (delivery, token, receipt)
        left join unnest(held || moved_before, held_tokens || moved_before_tokens) as h (id, token)
            on h.id = o.delivery and h.token = o.token
        left join unnest(closed_receipts || receipts_before, closed_outcomes || closed_before) as c (receipt, outcome)
            on c.receipt = o.receipt;
end $$;

-- As in 0013_quorum, and with every gate: `held_reason` is the one that is closed, `held_until` when it opens.
create or replace view shown_deliveries as
select d.id, d.receipt_id, d.endpoint_id, d.tenant, e.name as consumer, d.status::text as status, d.attempts, d.acked_at,
       d.due_at, d.generation, d.dead_reason::text as dead_reason, d.dead_at, d.last_error, d.received_at, d.redriven_at,
       d.discarded_at, e.status::text as endpoint_status, g.gate is not null as lane_held, g.gate as held_reason,
       opens_at(e, s, true) as held_until
from deliveries d
join endpoints e on e.id = d.endpoint_id
join endpoint_state s on s.endpoint_id = d.endpoint_id
cross join lateral (
    select coalesce(closed_by(e, s, true, now()),
                    case when s.found_closed_reason = 'endpoint_concurrency' then s.found_closed_reason end) as gate
) g
where d.status <> 'void';
