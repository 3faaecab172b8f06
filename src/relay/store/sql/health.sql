-- What the processes tell each other, and what the queue's gauges show.

-- name: report_heartbeat
-- parameters: process uuid, kind text
-- index: heartbeats_pkey
insert into heartbeats (process, kind, reported_at) values ($1, $2, now())
on conflict (process) do update set reported_at = now();

-- name: forget_heartbeats
-- parameters: older than seconds
-- index: heartbeats_pkey
delete from heartbeats where reported_at < now() - $1 * interval '1 second';

-- name: last_heartbeat
-- parameters: kind text
-- index: heartbeats_pkey
-- Seconds since the last report of a process of that kind, null if there was none.
select extract(epoch from now() - max(reported_at))::double precision from heartbeats where kind = $1;

-- name: try_reporting_lock
-- parameters: lock number
-- index:
-- A session lock: one dispatcher holds it and reports the queue.
select pg_try_advisory_lock($1);

-- name: queue_depth
-- parameters:
-- index: deliveries_pending, deliveries_leased
select (select count(*) from deliveries where status = 'pending') as pending,
       (select count(*) from deliveries where status = 'in_flight') as in_flight;

-- name: ensure_partitions
-- parameters: parent table, days ahead
-- index:
select ensure_day_partitions($1, $2);
