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

-- What these lanes learn from the ends of their sends, in the order in which those ended; for record_outcomes. Of an
-- attempt whose lease was lost nobody learns anything, and no lane is changed that was not locked. Answers the lanes whose
-- breaker moved, and, without a breaker, those that are held or disabled.
create function teach_lanes(
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
