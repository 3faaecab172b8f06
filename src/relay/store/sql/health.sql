-- What the processes tell each other, and what the queue's gauges show.

-- name: report_heartbeat
-- parameters: process uuid, kind text
-- index: heartbeats_pkey
-- Answers the server's instant.
insert into heartbeats (process, kind, reported_at) values ($1, $2, now())
on conflict (process) do update set reported_at = now()
returning clock_timestamp();

-- name: tell_instant
-- parameters:
-- index:
-- The server's clock, for whoever compares it with its own.
select clock_timestamp();

-- name: tell_log
-- parameters:
-- index:
-- How many bytes of log there have been, and how many transactions that wrote something: both are exact at once, which
-- the server's statistics are not.
select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint as bytes,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint as transactions;

-- name: forget_heartbeats
-- parameters: older than seconds
-- index: heartbeats_pkey
delete from heartbeats where reported_at < now() - $1 * interval '1 second';

-- name: count_present
-- parameters: kind text, present seconds double precision
-- index:
-- How many processes of that kind have lately reported.
select count(*) from heartbeats where kind = $1 and reported_at > now() - $2 * interval '1 second';

-- name: last_heartbeat
-- parameters: kind text
-- index: heartbeats_pkey
-- Seconds since the last report of a process of that kind, null if there was none.
select extract(epoch from now() - max(reported_at))::double precision from heartbeats where kind = $1;

-- name: probe_writes
-- parameters: so many thousand bytes
-- index:
-- Whether the session may write at all, while it writes so much to disk: a sort that does not fit into `work_mem` (which
-- is to be set to its least) is spilled to a temporary file beside the tables, and is gone with the statement.
select current_setting('transaction_read_only')::boolean as read_only, sum(length(filler)) as written
from (select repeat('x', 1000) as filler from generate_series(1, $1::integer) n order by hashint4(n) offset 0) spilled;

-- name: connections_allowed
-- parameters:
-- index:
-- What bounds the connections of this role to this database: the server's number less what it keeps for others, the
-- role's and the database's own (null without one). A superuser is bound by the first alone.
select current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true), '0')::integer as server,
       case when r.rolconnlimit >= 0 and not r.rolsuper then r.rolconnlimit end as role,
       case when d.datconnlimit >= 0 and not r.rolsuper then d.datconnlimit end as database
from pg_roles r cross join pg_database d
where r.rolname = session_user and d.datname = current_database();

-- name: tell_identity
-- parameters:
-- index:
select c.system_identifier as cluster, d.oid::bigint as database
from pg_control_system() c cross join pg_database d
where d.datname = current_database();

-- name: try_reporting_lock
-- parameters: lock number
-- index:
-- A session lock: one dispatcher holds it and reports the queue.
select pg_try_advisory_lock($1);

-- name: bound_reporter
-- parameters: longest silence with its unit, longest statement with its unit
-- index:
-- The server ends this session when it has said nothing for so long, and gives its locks back.
select set_config('idle_session_timeout', $1, false), set_config('statement_timeout', $2, false);

-- name: unbind_reporter
-- parameters:
-- index:
select set_config(name, reset_val, false) from pg_settings where name in ('idle_session_timeout', 'statement_timeout');

-- name: release_session_lock
-- parameters:
-- index:
-- The one session lock that there is.
select pg_advisory_unlock_all();

-- name: count_owed
-- parameters:
-- index: deliveries_pending, deliveries_leased
-- What is counted is a column that only the index meant has: another one has the status too, of all that was delivered.
select (select count(due_at) from deliveries where status = 'pending')
     + (select count(coalesce(lease_until, '-infinity')) from deliveries where status = 'in_flight');

-- name: measure_queue
-- parameters: retry window seconds, window seconds of the preset, ack seconds
-- index: deliveries_pending, deliveries_leased, deliveries_dead or deliveries_dead_reason or deliveries_dead_endpoint, deliveries_of_endpoint, endpoints_pkey or endpoints_page or endpoints_name or endpoints_every_name, journal_pkey
-- For the gauges, beside measure_lateness. Each count reads an index alone, one status at a time, since `in ('pending',
-- 'in_flight')` would match no such index. The oldest event that is owed something is the first of each open lane that is
-- inside its retry window or, once it was received, its ack deadline: what waits in a lane that a person has closed, or
-- for a person, or for a lane that has been closed longer than it was to be retried, must not page for ever. Of each lane
-- the first thousand are looked at; more that are past their window there are only behind a breaker, which has its own
-- gauge. Lanes without anything are not looked at: those with something pending are stepped through, some 25 µs each, and
-- those with something in flight are found by it, unless there is so much that to ask each endpoint is less work.
with recursive pending_lane as (
    (select d.endpoint_id from deliveries d where d.status = 'pending' order by d.endpoint_id, d.due_at limit 1)
    union all
    select n.endpoint_id
    from pending_lane l cross join lateral (
        select d.endpoint_id from deliveries d
        where d.status = 'pending' and d.endpoint_id > l.endpoint_id
        order by d.endpoint_id, d.due_at limit 1
    ) n
), held as materialized (
    select count(coalesce(d.lease_until, '-infinity')) as rows from deliveries d where d.status = 'in_flight'
), lane as (
    select l.endpoint_id, 'pending'::delivery_status as status from pending_lane l
    union all
    (select distinct d.endpoint_id, 'in_flight'::delivery_status from deliveries d
     where d.status = 'in_flight' and coalesce(d.lease_until, '-infinity') is not null
       and (select h.rows from held h) <= 20000)
    union all
    select e.id, 'in_flight'::delivery_status from endpoints e
    where e.status = 'active' and e.removed_at is null and (select h.rows from held h) > 20000
)
select (select count(d.due_at) from deliveries d where d.status = 'pending') as pending,
       (select h.rows from held h) as in_flight,
       (select count(d.lease_until) from deliveries d where d.status = 'in_flight' and d.lease_until < now())
           as leases_expired,
       (select count(*) from deliveries where status = 'dead' and discarded_at is null) as dead,
       -- a delivery id starts with the milliseconds at which its event was received, by its gateway's clock; how long ago
       -- that is, the journal knows by the database's
       (select extract(epoch from now() - min(j.committed_at))::double precision
        from lane l
        cross join lateral (
            select e0.retry from endpoints e0
            where e0.id = l.endpoint_id and e0.status = 'active' and e0.removed_at is null offset 0
        ) e
        cross join lateral (
            select seen.journal_day, seen.receipt_id from (
                select d.id, d.journal_day, d.receipt_id, d.generation_started_at, d.received_at from deliveries d
                where d.endpoint_id = l.endpoint_id and d.status = l.status order by d.id limit 1000
            ) seen
            where case when seen.received_at is not null then seen.received_at + $3::float8 * interval '1 second' > now()
                       else coalesce(seen.generation_started_at + interval '1 second'
                                         * case when e.retry ? 'preset' then $2::float8
                                                else coalesce((e.retry ->> 'window_seconds')::float8, $1::float8) end
                                     > now(), true) end
            order by seen.id limit 1
        ) first
        cross join lateral (
            select j0.committed_at from journal j0
            where j0.day = first.journal_day and j0.receipt_id = first.receipt_id offset 0
        ) j) as oldest_owed_age,
       (select count(*) from delivery_attempts_default) as default_partition_rows,
       (select count(*) from journal_default) as journal_default_partition_rows,
       days_ahead('journal') as journal_days_ahead, days_ahead('delivery_attempts') as attempt_days_ahead,
       (select v.unaccounted from last_verification v) as unaccounted;

-- name: measure_lateness
-- parameters: after endpoint uuid, most lanes integer
-- index: deliveries_pending, endpoints_pkey, endpoint_state_pkey
-- Of the lanes behind that one: seconds by which the earliest delivery is late, negative if none is due yet, null if no open
-- lane has any; and the last of so many lanes, if it came so far, to go on behind. What a gate kept waiting is due when that
-- reopens, or has reopened; a paused, disabled or removed lane is never late, nor is one that is full. Steps from lane to
-- lane over those with something pending, so it costs some 8 µs for each of them (80 ms for 10,000), however long they are,
-- and nothing where nothing is pending.
with recursive lane as (
    (select d.endpoint_id, d.due_at, 1 as visits from deliveries d where d.status = 'pending' and d.endpoint_id > $1
     order by d.endpoint_id, d.due_at limit 1)
    union all
    select n.endpoint_id, n.due_at, l.visits + 1
    from lane l cross join lateral (
        select d.endpoint_id, d.due_at from deliveries d
        where d.status = 'pending' and d.endpoint_id > l.endpoint_id
        order by d.endpoint_id, d.due_at limit 1
    ) n
    where l.visits < $2::integer
)
select extract(epoch from now() - min(greatest(l.due_at, g.opens_at)) filter (where g.open))::double precision as late,
       (select last.endpoint_id from lane last where last.visits >= $2::integer) as last
from lane l
left join lateral (
    -- one by one by their keys, even in a plan that was made while there were no endpoints
    select e.status = 'active' and e.removed_at is null and not is_full(s) as open,
           greatest(opens_at(e, s, true), s.full_at) as opens_at
    from endpoints e join endpoint_state s on s.endpoint_id = e.id
    where e.id = l.endpoint_id
    offset 0
) g on true;

-- name: open_breakers
-- parameters:
-- index: endpoint_state_breaker
select distinct e.name from endpoint_state s join endpoints e on e.id = s.endpoint_id
where s.breaker <> 'closed' and e.removed_at is null order by e.name;

-- name: dead_by_consumer
-- parameters:
-- index: deliveries_dead or deliveries_dead_reason or deliveries_dead_endpoint
select e.name, count(*) from deliveries d join endpoints e on e.id = d.endpoint_id
where d.status = 'dead' and d.discarded_at is null group by e.name order by e.name;

-- name: ensure_partitions
-- parameters: parent table, days ahead
-- index:
select ensure_day_partitions($1, $2);
