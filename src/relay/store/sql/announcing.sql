-- Announcing: which deliveries are ready, for whoever tells a broker of them.

-- name: try_publishing_lock
-- parameters: lock number, for how long the session may be silent text
-- index:
-- A session lock: one dispatcher holds it and announces. A session that has the lock and then says nothing for so long,
-- since its process stands still or cannot be reached, is ended by the server, and the lock with it.
select case when pg_try_advisory_lock($1) then set_config('idle_session_timeout', $2, false) is not null else false end;

-- name: find_ready
-- parameters: after_endpoint uuid, most of a lane for each dispatcher integer, breaker boolean, most of a lane integer,
--             kind text, present seconds double precision
-- index: deliveries_pending, endpoints_pkey, endpoint_state_pkey
-- The lanes behind the given endpoint that have something pending, at most 64 open ones that are not in doubt and 512 in
-- all, and of each open one its first due deliveries, no more than the lane may take now: one of a lane in doubt
-- (`doubtful`), else as many as it has tokens, and no more than twice what may be under way in each dispatcher that has
-- lately reported, at least one. `closings` changes whenever the lane was closed, however shortly, and `is_unmarked`
-- tells of a gate that no claim has told of yet. Nothing is locked.
with recursive fleet as materialized (
    select greatest(count(*), 1) as size from heartbeats
    where kind = $5 and reported_at > now() - $6 * interval '1 second'
), lane as (
    select $1::uuid as endpoint_id, 0 as room, false as doubtful, false as is_unmarked, null::text as closings,
           0 as visits, 0 as opens
    union all
    select n.endpoint_id, coalesce(g.room, 0), coalesce(g.doubtful, false), coalesce(g.is_unmarked, false), g.closings,
           l.visits + 1, l.opens + case when g.room > 0 and not g.doubtful then 1 else 0 end
    from lane l
    cross join lateral (
        select d.endpoint_id, d.due_at from deliveries d
        where d.status = 'pending' and d.endpoint_id > l.endpoint_id
        order by d.endpoint_id, d.due_at limit 1
    ) n
    left join lateral (
        select case when f.gate is not null then 0
                    when d.doubtful then 1
                    else least(floor(available_tokens(e, s, now()) + 1e-9), $4,
                               (select size from fleet) * least(2 * e.max_in_flight, $2)) end::integer as room,
               d.doubtful, f.gate is not null and f.gate is distinct from s.found_closed_reason as is_unmarked,
               concat_ws(' ', s.opened_at, s.held_until, e.revision) as closings
        from endpoints e
        cross join lateral state_of(e.id) s
        cross join lateral (select closed_by(e, s, $3, now()) as gate) f
        cross join lateral (select is_doubtful(s, $3, now()) as doubtful) d
        where e.id = n.endpoint_id and n.due_at <= now() and e.removed_at is null
        offset 0
    ) g on true
    where l.visits < 512 and l.opens < 64
)
select l.endpoint_id, l.room, l.doubtful, l.is_unmarked, l.closings, r.deliveries, r.claims
from lane l
cross join lateral (
    select array_agg(q.id order by q.due_at, q.id) as deliveries,
           array_agg(q.claimed_at order by q.due_at, q.id) as claims
    from (
        select d.id, d.due_at, d.claimed_at from deliveries d
        where d.status = 'pending' and d.endpoint_id = l.endpoint_id and d.due_at <= now()
        order by d.due_at limit l.room
    ) q
) r
where l.visits > 0
order by l.visits;
