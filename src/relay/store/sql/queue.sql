-- The queue: what is owed, who holds it, what came of it.

-- name: claim_due
-- parameters: after_endpoint uuid, batch integer, token uuid, lease_seconds double precision,
--             busy_endpoints uuid[], busy_counts integer[]
-- index: deliveries_pending
-- Rotates: visits the lanes behind the given endpoint and then, around the end, those up to it, at most 64 open and 512
-- in all; takes from each its share of the batch in due order, and leases the rows under the token. A closed lane is
-- passed over, not claimed and put back. Always answers at least one row: `last_endpoint` is where the next claim goes
-- on, null when every lane has been seen, and `came_around` tells whether the end of the lanes was passed; the other
-- columns are null where nothing was due. A batch that is full before the last of the visited lanes got its share goes
-- on with the lane that got less: else the same lanes would be left out in each round.
-- `written_by` is the transaction that made the delivery owed, its last 32 bits, in the numbers of the server's
-- `timeline`, all of them before `before_xid`; `event_age` are the seconds since its event's append.
with recursive lane as (
    select $1::uuid as endpoint_id, false as around, false as open, 0 as room, 0 as visits, 0 as opens
    union all
    select n.endpoint_id, n.around, coalesce(g.open, false), coalesce(g.room, 0), l.visits + 1,
           l.opens + case when g.open then 1 else 0 end
    from lane l
    cross join lateral (
        (select d.endpoint_id, d.due_at, l.around from deliveries d
         where d.status = 'pending' and d.endpoint_id > l.endpoint_id
           and d.endpoint_id <= case when l.around then $1::uuid else 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid end
         order by d.endpoint_id, d.due_at limit 1)
        union all
        (select d.endpoint_id, d.due_at, true from deliveries d
         where d.status = 'pending' and not l.around and d.endpoint_id <= $1::uuid
         order by d.endpoint_id, d.due_at limit 1)
        limit 1
    ) n
    left join lateral (
        select n.due_at <= now() and e.status = 'active' and e.removed_at is null
                   and (s.held_until is null or s.held_until <= now())
                   and e.max_in_flight > coalesce(b.busy, 0) as open,
               e.max_in_flight - coalesce(b.busy, 0) as room
        from endpoints e
        join endpoint_state s on s.endpoint_id = e.id
        left join lateral (
            select c.busy from unnest($5::uuid[], $6::integer[]) as c (id, busy) where c.id = e.id
        ) b on true
        where e.id = n.endpoint_id
        offset 0
    ) g on true
    where l.visits < 512 and l.opens < least(64, $2)
), scan as (
    select max(l.visits) < 512 and max(l.opens) < least(64, $2) as ended, bool_or(l.around) as around,
           (array_agg(l.endpoint_id order by l.visits desc))[1] as last_visited,
           greatest(ceil($2::double precision / greatest(max(l.opens), 1)), 1)::integer as share,
           ('x' || left(pg_walfile_name(pg_current_wal_flush_lsn()), 8))::bit(32)::bigint as timeline,
           pg_snapshot_xmax(pg_current_snapshot())::text::bigint as before_xid
    from lane l
), picked as (
    select d.id, l.visits
    from scan s
    cross join lane l
    cross join lateral (
        select p.id from deliveries p
        where p.status = 'pending' and p.endpoint_id = l.endpoint_id and p.due_at <= now()
        order by p.due_at limit least(l.room, s.share)
        for no key update skip locked
    ) d
    where l.open
    limit $2
), filled as (
    -- where a full batch goes on, unless with the first lane: behind the one that filled it, or before it if it was cut
    select (select l.endpoint_id from lane l where l.visits = f.visits - f.is_cut::integer) as endpoint_id
    from (select p.visits, count(*) < s.share as is_cut, sum(count(*)) over () as rows
          from picked p cross join scan s group by p.visits, s.share order by p.visits desc limit 1) f
    where f.rows >= $2 and (f.is_cut or f.visits < (select max(l.visits) from lane l))
), claimed as (
    update deliveries d
    set status = 'in_flight', lease_token = $3, lease_until = now() + $4 * interval '1 second', claimed_at = now(),
        attempts = d.attempts + 1, generation_attempts = d.generation_attempts + 1,
        generation_started_at = coalesce(d.generation_started_at, now())
    where d.id = any (array(select p.id from picked p)) and d.status = 'pending'
    returning d.id, d.receipt_id, d.endpoint_id, d.journal_day, d.attempts, d.generation, d.generation_attempts,
              extract(epoch from now() - d.generation_started_at)::double precision as generation_age, d.claimed_at,
              d.owed_by
)
select coalesce((select f.endpoint_id from filled f), case when not s.ended then s.last_visited end) as last_endpoint,
       s.ended or s.around as came_around,
       c.id, c.receipt_id, c.endpoint_id, e.revision,
       coalesce(e.previous_secret_expires_at > now(), false) as sign_with_previous,
       c.attempts, c.generation, c.generation_attempts, c.generation_age, c.claimed_at,
       j.event_id, j.type, j.received_at, j.partition, j.number, j.content_type, j.payload, j.payload_sha256,
       j.forwarded, j.hops, coalesce(c.owed_by::xid, j.written_by) as written_by, extract(epoch from now() - j.committed_at)::double precision as event_age,
       s.timeline, s.before_xid
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
--             first_byte_ms[], total_ms[], display_url[]
-- index: deliveries_pkey, receipts_pkey, delivery_attempts_pkey
-- fenced: lease_token is compared in record_outcomes
select * from record_outcomes($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20);

-- name: hand_back
-- parameters: deliveries uuid[], tokens uuid[], delay_seconds double precision
-- index: deliveries_pkey
-- fenced
-- Gives unsent deliveries back and takes their attempt back with them.
with held as materialized (
    select d.id from unnest($1::uuid[], $2::uuid[]) as o (delivery, token)
    join deliveries d on d.id = o.delivery and d.lease_token = o.token
    order by d.id for no key update of d
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
-- index: deliveries_pending
-- Dead-letters what is pending for removed endpoints. An append that was under way while its endpoint was removed is
-- found by the next call.
with owed as materialized (
    select d.id from endpoints e
    cross join lateral (
        select p.id from deliveries p where p.status = 'pending' and p.endpoint_id = e.id
        order by p.due_at limit $1 for no key update skip locked
    ) d
    where e.removed_at is not null
    limit $1
)
update deliveries d
set status = 'dead', dead_at = now(), dead_reason = 'endpoint_removed', last_error = 'the endpoint was removed'
from endpoints e
where d.id = any (array(select o.id from owed o)) and d.status = 'pending' and e.id = d.endpoint_id
returning e.name;

-- name: next_due
-- parameters: busy_endpoints uuid[], busy_counts integer[]
-- index: deliveries_pending, endpoints_pkey, endpoint_state_pkey
-- Not used to claim; answers how many seconds from now the earliest of the first 512 lanes has something that can be
-- claimed, null if there is none. A hold is waited for; a lane that is full here opens when something lands. Lanes behind
-- these are the poll's: see Queue.seconds_to_next_due.
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
select extract(epoch from min(greatest(l.due_at, g.held_until)) - now())::double precision as seconds
from lane l
left join unnest($1::uuid[], $2::integer[]) as b (id, busy) on b.id = l.endpoint_id
cross join lateral (
    -- one by one by their keys, even in a plan that was made while there were no endpoints
    select e.status = 'active' and e.removed_at is null as open, e.max_in_flight, s.held_until
    from endpoints e join endpoint_state s on s.endpoint_id = e.id
    where e.id = l.endpoint_id
    offset 0
) g
where g.open and g.max_in_flight > coalesce(b.busy, 0);
