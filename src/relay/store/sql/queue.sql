-- The queue: what is owed, who holds it, what came of it.

-- name: claim_due
-- parameters: after_endpoint uuid, batch integer, token uuid, lease_seconds double precision, lanes uuid[],
--             busy integer[], windows integer[], window of the other lanes integer, doubtful integer,
--             stuck lanes uuid[], breaker boolean, timeout_seconds double precision,
--             probe_grace_seconds double precision, narrow boolean, announced uuid[]
-- index: deliveries_pending, deliveries_pkey
-- Rotates: visits the lanes behind the given endpoint and then, around the end, those up to it, at most 64 open and
-- 512 in all; takes from each its share of the batch in due order, and leases the rows under the token. A closed lane
-- is passed over, not claimed and put back. Always answers at least one row: `last_endpoint` is where the next claim
-- goes on, null when every lane has been seen, and `came_around` tells whether the end of the lanes was passed; the
-- other columns are null where nothing was due. A batch that is full before the last of the visited lanes got its
-- share goes on with the lane that got less: else the same lanes would be left out in each round.
--
-- An open lane is locked before it is taken from, and pays a token for each row. One that somebody else has locked is
-- passed over as well, and `contended` tells of it; so a claim waits for nothing. A lane whose breaker has cooled
-- down, or whose last probe is overdue, gives one row, the probe. A lane that was not answered last time, or has
-- not been for long, or whose breaker is not closed, is in doubt (`doubtful_lanes`): it gives one row, and all of those
-- together no more than `doubtful`.
--
-- A lane that is found closed while something in it is due is marked with its gate, once (`closed_lanes`,
-- `closed_gates`); when it gives rows again, or another gate closes it, the first delivery behind the gate gets an
-- attempt of the class `deferred`, as of that moment. A lane that is full here is closed only for this process, and
-- marked once it is stuck.
--
-- A `narrow` claim visits every endpoint in turn, whether something of it is pending or not, and looks in its lane only
-- from `looked_from` on: it passes over nothing that was taken before, and may miss what came late. A lane's state is
-- looked for from `claimed_second` on, which spares it the versions that an old snapshot keeps.
--
-- What was picked is updated by its ids alone: its status is compared as text, since a plan that was made while little
-- was pending would else go through the index of all that is (as in `bury_removed`).
--
-- With `announced` (null: everything) only these deliveries are claimed, as far as their lanes give anything: lanes,
-- rotation, shares and gates are as ever, but nothing else is looked at. `left_over` are those of them that are still
-- due and may be asked for again shortly, since their lane had its share or was not reached, is only full, short of
-- tokens, or in other hands, each with its endpoint; whoever else was not given is not there to be claimed, or waits
-- behind a gate that stays closed.
--
-- `written_by` is the transaction that made the delivery owed, its last 32 bits, in the numbers of the server's
-- `timeline`, all of them before `before_xid`; `event_age` are the seconds since its event's append.
with recursive announced as materialized (
    -- one by one by their keys, whatever the plan takes their number for
    select d.id, d.endpoint_id, d.due_at
    from unnest($15::uuid[]) as a (id)
    cross join lateral (
        select d0.id, d0.endpoint_id, d0.due_at from deliveries d0
        where d0.id = a.id and d0.status = 'pending' and d0.due_at <= now()
        offset 0
    ) d
), lane as (
    select $1::uuid as endpoint_id, false as around, false as open, false as marked, null::text as gate, 0 as room,
           false as doubtful, 0::bigint as claimed_second, 0 as visits, 0 as opens, 0 as doubts
    union all
    select n.endpoint_id, n.around, coalesce(g.open, false), coalesce(g.marked, false), g.gate, coalesce(g.room, 0),
           coalesce(g.doubtful, false), g.claimed_second, l.visits + 1, l.opens + case when g.open then 1 else 0 end,
           l.doubts + case when g.open and g.doubtful then g.room else 0 end
    from lane l
    cross join lateral (
        (select d.endpoint_id, d.due_at, l.around from deliveries d
         where d.status = 'pending' and d.endpoint_id > l.endpoint_id and not $14 and $15::uuid[] is null
           and d.endpoint_id <= case when l.around then $1::uuid else 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid end
         order by d.endpoint_id, d.due_at limit 1)
        union all
        (select e.id, '-infinity'::timestamptz, l.around from endpoints e
         where e.id > l.endpoint_id and $14
           and e.id <= case when l.around then $1::uuid else 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid end
         order by e.id limit 1)
        union all
        (select d.endpoint_id, d.due_at, true from deliveries d
         where d.status = 'pending' and not l.around and d.endpoint_id <= $1::uuid and not $14 and $15::uuid[] is null
         order by d.endpoint_id, d.due_at limit 1)
        union all
        (select a.endpoint_id, a.due_at, l.around from announced a
         where a.endpoint_id > l.endpoint_id and $15::uuid[] is not null
           and a.endpoint_id <= case when l.around then $1::uuid else 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid end
         order by a.endpoint_id limit 1)
        union all
        (select a.endpoint_id, a.due_at, true from announced a
         where not l.around and a.endpoint_id <= $1::uuid and $15::uuid[] is not null
         order by a.endpoint_id limit 1)
        union all
        (select e.id, '-infinity'::timestamptz, true from endpoints e
         where not l.around and e.id <= $1::uuid and $14
         order by e.id limit 1)
        limit 1
    ) n
    left join lateral (
        select f.room, f.doubtful, f.gate, s.claimed_second, f.gate is null as open,
               f.gate is not null and f.gate is distinct from s.found_closed_reason
                   and (f.gate <> 'endpoint_concurrency' or e.id = any ($10::uuid[])) as marked
        from endpoints e
        cross join lateral state_of(e.id) s
        cross join lateral (select array_position($5::uuid[], e.id) as place offset 0) p
        cross join lateral (
            select d.doubtful,
                   case when d.doubtful then least(r.room, $9::integer - l.doubts, 1) else r.room end as room
            from (select least(e.max_in_flight, coalesce(($7::integer[])[p.place], $8::integer))
                             - coalesce(($6::integer[])[p.place], 0) as room) r
            cross join (select is_doubtful(s, $11, now()) as doubtful) d
        ) r
        cross join lateral (
            select r.room, r.doubtful,
                   coalesce(closed_by(e, s, $11, now()), case when r.room <= 0 then 'endpoint_concurrency' end) as gate
        ) f
        where e.id = n.endpoint_id and n.due_at <= now() and e.removed_at is null
          and (not $14 or first_due(e.id, s.looked_from) <= now())
        offset 0
    ) g on true
    where l.visits < 512 and l.opens < least(64, $2)
), scan as (
    select max(l.visits) < 512 and max(l.opens) < least(64, $2) as ended, bool_or(l.around) as around,
           (array_agg(l.endpoint_id order by l.visits desc))[1] as last_visited,
           greatest(ceil($2::double precision / greatest(max(l.opens), 1)), 1)::integer as share,
           max(l.opens) as opens,
           ('x' || left(pg_walfile_name(pg_current_wal_flush_lsn()), 8))::bit(32)::bigint as timeline,
           pg_snapshot_xmax(pg_current_snapshot())::text::bigint as before_xid
    from lane l
), locked as materialized (
    -- as the lane is now that nobody else changes it
    select l.endpoint_id, l.claimed_second, l.visits, l.open, l.doubtful, l.room as slots, s.found_closed_at, s.found_closed_reason,
           s.available, s.probing, s.probe_seconds, s.opens_at, s.looked_from, l.gate,
           l.marked and l.gate is distinct from s.found_closed_reason as marked,
           case when not l.open or s.gate is not null then 0
                when s.probing then 1
                else least(l.room, floor(s.available + 1e-9)) end::integer as room
    from lane l
    cross join lateral (
        select s0.found_closed_at, s0.found_closed_reason, available_tokens(e, s0, now()) as available,
               case when $14 and s0.looked_from is not null then s0.looked_from else '-infinity' end as looked_from,
               closed_by(e, s0, $11, now()) as gate, $11 and s0.breaker <> 'closed' as probing,
               opens_at(e, s0, $11) as opens_at, coalesce(e.timeout_seconds, $12) + $13 as probe_seconds
        from endpoint_state s0
        join endpoints e on e.id = s0.endpoint_id
        where s0.endpoint_id = l.endpoint_id and s0.claimed_second >= l.claimed_second
        for no key update of s0 skip locked
    ) s
    where l.open or l.marked
), picked as (
    select d.id, d.due_at, g.endpoint_id, g.visits
    from scan s
    cross join locked g
    cross join lateral (
        select q.id, q.due_at from (
            select p.id, p.due_at from deliveries p
            where p.status = 'pending' and p.endpoint_id = g.endpoint_id and p.due_at <= now()
              and p.due_at >= g.looked_from
            order by p.due_at limit least(g.room, s.share)
            for no key update skip locked
        ) q
        where $15::uuid[] is null
        union all
        select q.id, q.due_at from (
            select p.id, p.due_at from announced a join deliveries p on p.id = a.id
            where a.endpoint_id = g.endpoint_id and p.status = 'pending' and p.due_at <= now()
            order by a.due_at limit least(g.room, s.share)
            for no key update of p skip locked
        ) q
    ) d
    where g.room > 0
    limit $2
), taken as (
    -- what is appended is due since its transaction began, and so may still come in behind what is new
    select p.endpoint_id, p.visits, count(*) as rows,
           least(max(p.due_at), greatest(min(p.due_at), now() - interval '10 seconds') - interval '1 second') as all_before
    from picked p group by p.endpoint_id, p.visits
), filled as (
    -- where a full batch goes on, unless with the first lane: behind the one that filled it, or before it if it was cut
    select (select l.endpoint_id from lane l where l.visits = f.visits - f.is_cut::integer) as endpoint_id
    from (select t.visits, t.rows < s.share as is_cut, sum(t.rows) over () as rows
          from taken t cross join scan s order by t.visits desc limit 1) f
    where f.rows >= $2 and (f.is_cut or f.visits < (select max(l.visits) from lane l))
), claimed as (
    update deliveries d
    set status = 'in_flight', lease_token = $3, lease_until = now() + $4 * interval '1 second', claimed_at = now(),
        attempts = d.attempts + 1, generation_attempts = d.generation_attempts + 1,
        generation_started_at = coalesce(d.generation_started_at, now())
    where d.id = any (array(select p.id from picked p)) and d.status::text = 'pending'
    returning d.id, d.receipt_id, d.endpoint_id, d.journal_day, d.attempts, d.generation, d.generation_attempts,
              extract(epoch from now() - d.generation_started_at)::double precision as generation_age, d.claimed_at,
              d.owed_by, d.due_at
), paid as (
    update endpoint_state s
    set tokens = case when t.rows > 0 then g.available - t.rows else s.tokens end,
        tokens_at = case when t.rows > 0 then looked_at(s.tokens_at, now()) else s.tokens_at end,
        breaker = case when t.rows > 0 and g.probing then 'half_open'::breaker_status else s.breaker end,
        probe_token = case when t.rows > 0 and g.probing then $3 else s.probe_token end,
        probe_until = case when t.rows > 0 and g.probing then now() + g.probe_seconds * interval '1 second'
                           else s.probe_until end,
        full_at = case when t.rows is null then s.full_at when t.rows >= g.slots then now() end,
        looked_from = case when t.rows > 0 and $15::uuid[] is null then greatest(t.all_before, g.looked_from)
                           else s.looked_from end,
        claimed_second = claimed_second(s.claimed_second, now()),
        found_closed_at = case when g.marked then now() end,
        found_closed_reason = case when g.marked then g.gate end
    from locked g left join taken t on t.endpoint_id = g.endpoint_id
    where s.endpoint_id = g.endpoint_id and s.claimed_second >= g.claimed_second and (t.rows > 0 or g.marked)
    returning s.endpoint_id, s.found_closed_reason
), deferred as (
    insert into delivery_attempts
        (delivery_id, at, lease_token, attempt, generation, outcome_class, reason, deferred_for_ms)
    select w.id, now(), '00000000-0000-0000-0000-000000000000', w.attempts, w.generation, 'deferred', w.gate,
           least(extract(epoch from now() - w.since) * 1000, 2147483647)::integer
    from (
        (select distinct on (c.endpoint_id) c.id, case when g.found_closed_reason = 'rate_limit' then c.due_at
                                                    else greatest(g.found_closed_at, c.due_at) end as since,
                c.attempts - 1 as attempts, c.generation, g.found_closed_reason as gate,
                -- what came when the gate had opened did not wait for it
                case when g.found_closed_reason = 'endpoint_concurrency' then now() else g.opens_at end as until
         from locked g join claimed c on c.endpoint_id = g.endpoint_id
         where g.found_closed_at is not null
         order by c.endpoint_id, c.due_at)
        union all
        select h.id, greatest(g.found_closed_at, h.due_at), h.attempts, h.generation, g.found_closed_reason, now()
        from locked g
        cross join lateral (
            select d.id, d.due_at, d.attempts, d.generation from deliveries d
            where d.status = 'pending' and d.endpoint_id = g.endpoint_id and d.due_at >= g.looked_from
            order by d.due_at limit 1
        ) h
        where g.marked and g.found_closed_at is not null
    ) w
    where w.since < w.until
    on conflict do nothing
    returning delivery_id
), told as (
    select array_agg(e.name) as lanes, array_agg(p.found_closed_reason) as gates
    from paid p join endpoints e on e.id = p.endpoint_id
    where p.found_closed_reason is not null
), left_over as (
    select a.id, a.endpoint_id from announced a left join lane l on l.endpoint_id = a.endpoint_id and l.visits > 0
    where (l.endpoint_id is null or l.open or l.gate in ('endpoint_concurrency', 'rate_limit'))
      and a.id not in (select c.id from claimed c)
    order by a.due_at
)
select coalesce((select f.endpoint_id from filled f), case when not s.ended then s.last_visited end) as last_endpoint,
       s.ended or s.around as came_around,
       c.id, c.receipt_id, c.endpoint_id, e.revision,
       coalesce(e.previous_secret_expires_at > now(), false) as sign_with_previous,
       c.attempts, c.generation, c.generation_attempts, c.generation_age, c.claimed_at,
       j.event_id, j.type, j.received_at, j.partition, j.number, j.content_type, j.payload, j.payload_sha256,
       j.forwarded, j.hops, coalesce(c.owed_by::xid, j.written_by) as written_by,
       extract(epoch from now() - j.committed_at)::double precision as event_age, s.timeline, s.before_xid,
       s.opens > (select count(*) from locked g where g.open) as contended,
       (select t.lanes from told t) as closed_lanes, (select t.gates from told t) as closed_gates,
       (select array_agg(g.endpoint_id) from locked g where g.doubtful and g.room > 0) as doubtful_lanes,
       (select count(*) from deferred) as deferrals,
       (select array_agg(o.id) from left_over o) as left_over,
       (select array_agg(o.endpoint_id) from left_over o) as left_lanes
from scan s
left join lateral (
    select * from claimed c0 offset 0
) c on true
left join lateral (
    select e0.revision, e0.previous_secret_expires_at from endpoints e0 where e0.id = c.endpoint_id offset 0
) e on true
left join lateral (
    select *, j0.xmin as written_by from journal j0
    where j0.day = c.journal_day and j0.receipt_id = c.receipt_id offset 0
) j on true;

-- name: record_outcomes
-- parameters: delivery[], token[], receipt[], claimed_at[], attempt[], generation[], class[], move[], delay[],
--             dead_reason[], reason[], status_code[], error_class[], snippet[], wait_ms[], connect_ms[], send_ms[],
--             first_byte_ms[], total_ms[], display_url[], endpoint[], answered[], hold[], hold_reason[], threshold,
--             cooldown, max_cooldown
-- index: deliveries_pkey, receipts_pkey, delivery_attempts_pkey, endpoint_state_pkey
-- fenced: lease_token is compared in record_outcomes
select * from record_outcomes($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
                              $21, $22, $23, $24, $25, $26, $27);

-- name: changed_since
-- parameters: endpoints uuid[], revisions bigint[]
-- index: endpoints_pkey
-- Which of these endpoints have another configuration by now than the one of that revision. That one is disabled is no
-- other configuration: it was such an answer that disabled it.
select e.id from unnest($1::uuid[], $2::bigint[]) as k (id, revision)
join endpoints e on e.id = k.id and e.revision > k.revision and e.status <> 'disabled';

-- name: hand_back
-- parameters: deliveries uuid[], tokens uuid[], delay_seconds double precision
-- index: deliveries_pkey, endpoint_state_pkey
-- fenced
-- Gives unsent deliveries back, takes their attempt back with them, and returns their tokens: of those that one claim
-- took, what exceeds the lane's refill since, as in domain/bucket.py. A probe among them has taught nothing, and the
-- next delivery may probe at once.
with held as materialized (
    select d.id, d.endpoint_id, d.claimed_at, d.due_at, o.token
    from unnest($1::uuid[], $2::uuid[]) as o (delivery, token)
    join deliveries d on d.id = o.delivery and d.lease_token = o.token
    order by d.id for no key update of d
), unused as (
    select c.endpoint_id, array_agg(c.token) as tokens, min(c.earliest) as earliest,
           sum(greatest(c.rows - e.rate_per_second * extract(epoch from now() - c.claimed_at)::double precision, 0))
               as returned
    from (select h.endpoint_id, h.token, h.claimed_at, count(*) as rows, min(h.due_at) as earliest
          from held h group by 1, 2, 3) c
    join endpoints e on e.id = c.endpoint_id
    group by c.endpoint_id
), lane as materialized (
    select s.endpoint_id, u.tokens, u.earliest, least(e.burst, available_tokens(e, s, now()) + u.returned) as available
    from unused u
    join endpoint_state s on s.endpoint_id = u.endpoint_id
    join endpoints e on e.id = u.endpoint_id
    order by s.endpoint_id for no key update of s
), given_back as (
    update endpoint_state s
    set tokens = l.available, tokens_at = looked_at(s.tokens_at, now()),
        looked_from = least(s.looked_from, l.earliest),
        breaker = case when s.probe_token = any (l.tokens) then 'open'::breaker_status else s.breaker end,
        cooldown_until = case when s.probe_token = any (l.tokens) then now() else s.cooldown_until end,
        probe_until = case when s.probe_token = any (l.tokens) then null else s.probe_until end,
        probe_token = case when s.probe_token = any (l.tokens) then null else s.probe_token end
    from lane l where s.endpoint_id = l.endpoint_id
)
update deliveries d
set status = 'pending', lease_token = null, lease_until = null,
    attempts = d.attempts - 1, generation_attempts = d.generation_attempts - 1,
    generation_started_at = case when d.generation_attempts > 1 then d.generation_started_at end,
    due_at = case when $3::double precision > 0 then now() + $3::double precision * interval '1 second'
                  else d.due_at end
from unnest($1::uuid[], $2::uuid[]) as o (delivery, token)
where d.id = o.delivery and d.lease_token = o.token and d.id in (select h.id from held h)
returning d.id;

-- name: lock_held
-- parameters: deliveries uuid[], tokens uuid[]
-- index: deliveries_pkey
-- Waits for whoever is about to declare these void, and then tells which are not.
select d.id from unnest($1::uuid[], $2::uuid[]) as o (delivery, token)
join deliveries d on d.id = o.delivery and d.lease_token = o.token
order by d.id for no key update of d;

-- name: strangers
-- parameters: deliveries uuid[]
-- index: deliveries_pkey
-- Those that are no deliveries here.
select a.id from unnest($1::uuid[]) as a (id)
where not exists (select from deliveries d where d.id = a.id offset 0);

-- name: close_breakers
-- parameters:
-- index: endpoint_state_breaker
-- For dispatchers that have none: what other ones have left closed must not be shown for ever. Those that somebody else
-- is about to move are left to the claims, which pass no breaker over either.
with left_closed as materialized (
    select s.endpoint_id from endpoint_state s where s.breaker <> 'closed' for no key update skip locked
)
update endpoint_state s
set breaker = 'closed', failures = 0, trips = 0, probe_token = null, probe_until = null, cooldown_until = now()
from left_closed l where s.endpoint_id = l.endpoint_id;

-- name: reap_expired
-- parameters: batch integer, outcome_class text, error_class text, reason text, on_record boolean
-- index: deliveries_leased
-- Takes expired leases from whoever held them, and writes (`on_record`) the attempts that nobody else may ever write.
-- The attempt stays counted: a delivery that kills its worker must not go round for ever. The record bears its claim's
-- instant less the smallest step of time: an outcome that its worker still writes is never earlier than the claim, and
-- so never finds its place taken.
with expired as materialized (
    select d.id, d.lease_token from deliveries d
    where d.status = 'in_flight' and d.lease_until < now()
    order by d.lease_until limit $1
    for no key update skip locked
), reaped as (
    update deliveries d
    set status = 'pending', lease_token = null, lease_until = null, due_at = now(), last_error = $4
    where d.id = any (array(select e.id from expired e))
    returning d.id, d.endpoint_id, d.claimed_at, d.attempts, d.generation
), written as (
    insert into delivery_attempts (delivery_id, at, lease_token, attempt, generation, outcome_class, error_class, reason)
    select r.id, r.claimed_at - interval '1 microsecond', e.lease_token, r.attempts, r.generation, $2::text::outcome_class,
           $3, $4
    from reaped r join expired e on e.id = r.id
    where $5
    on conflict do nothing
)
select r.id, r.endpoint_id from reaped r;

-- name: bury_removed
-- parameters: batch integer
-- index: endpoints_removed, deliveries_pending, deliveries_of_endpoint or deliveries_received
-- Dead-letters what is pending for removed endpoints, and what waits for their acks. An append that was under way while
-- its endpoint was removed is found by the next call.
with owed as materialized (
    select d.id from endpoints e
    cross join lateral (
        select p.id from deliveries p where p.status = 'pending' and p.endpoint_id = e.id
        order by p.due_at limit $1 for no key update skip locked
    ) d
    where e.removed_at is not null
    limit $1
), awaited as materialized (
    select d.id from endpoints e
    cross join lateral (
        select p.id from deliveries p
        where p.status = 'in_flight' and p.received_at is not null and p.endpoint_id = e.id
        limit $1 for no key update skip locked
    ) d
    where e.removed_at is not null
    limit $1
)
update deliveries d
set status = 'dead', dead_at = now(), dead_reason = 'endpoint_removed', last_error = 'the endpoint was removed'
from endpoints e
where d.id = any (array(select o.id from owed o union all select a.id from awaited a))
  and (d.status::text = 'pending' or d.status::text = 'in_flight' and d.received_at is not null) and e.id = d.endpoint_id
returning e.name;

-- name: next_due
-- parameters: lanes uuid[], busy integer[], windows integer[], window of the other lanes integer, breaker boolean,
--             doubtful integer
-- index: deliveries_pending, endpoints_pkey, endpoint_state_pkey
-- Not used to claim; answers how many seconds from now the earliest of the first 512 lanes has something that can be
-- claimed, null if there is none. A gate that time opens is waited for; a lane that is full here opens when something
-- lands, and so does one in doubt while those have all that they may. Where a probe is under way, its end may open the
-- lane long before its deadline: another look is due shortly, by each process at another moment. Lanes behind these
-- are the poll's: see Queue.seconds_to_next_due.
with recursive lane as (
    (select d.endpoint_id, d.due_at, 1 as visits from deliveries d where d.status = 'pending'
     order by d.endpoint_id, d.due_at limit 1)
    union all
    select n.endpoint_id, n.due_at, l.visits + 1
    from lane l cross join lateral (
        select d.endpoint_id, d.due_at from deliveries d
        where d.status = 'pending' and d.endpoint_id > l.endpoint_id
        order by d.endpoint_id, d.due_at limit 1
    ) n
    where l.visits < 512
)
select extract(epoch from min(greatest(l.due_at, g.opens_at)) - now())::double precision as seconds
from lane l
cross join lateral (select array_position($1::uuid[], l.endpoint_id) as place offset 0) p
cross join lateral (
    -- one by one by their keys, even in a plan that was made while there were no endpoints
    select e.status = 'active' and e.removed_at is null as open, e.max_in_flight,
           is_doubtful(s, $5, now()) as doubtful,
           least(opens_at(e, s, $5),
                 case when $5 and s.breaker = 'half_open' then
                     greatest(s.held_until, now() + (0.2 + 0.2 * random()) * interval '1 second') end) as opens_at
    from endpoints e join endpoint_state s on s.endpoint_id = e.id
    where e.id = l.endpoint_id
    offset 0
) g
where g.open and (not g.doubtful or $6::integer > 0)
  and least(g.max_in_flight, coalesce(($3::integer[])[p.place], $4::integer)) > coalesce(($2::integer[])[p.place], 0);
