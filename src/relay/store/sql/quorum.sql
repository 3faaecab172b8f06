-- The quorum: what a commit was waited for, and who has it on disk.

-- name: emit_barrier
-- parameters:
-- index:
-- A commit that waits for the standbys, and for nothing else: the log is in order, so whoever has this has everything
-- that was committed before it. Answers a place in the log behind all of that.
-- A server that is itself a standby answers null.
select case when not pg_is_in_recovery() then pg_logical_emit_message(true, 'relay', '') end;

-- name: tell_timeline
-- parameters:
-- index:
-- The number of the line of history that this server writes: one that was promoted beside it writes another.
select ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;

-- name: prove_quorum
-- parameters: log_to pg_lsn or null, whether this session's own commits wait boolean
-- index:
-- What the server says of itself, and which listed standbys have the log on disk up to that place; null for what is
-- on this server's disk now. Every transaction that the snapshot shows as ended lies before that place if none
-- was given. A server that is itself a standby answers null for the place. `releasing` counts those that commits
-- wait for at present, as the server does: of a FIRST list the first ones alone.
with place as materialized (
    select case when pg_is_in_recovery() then null else coalesce($1::pg_lsn, pg_current_wal_flush_lsn()) end as log_to
)
select p.log_to,
       h.standbys, h.streaming,
       (select count(*) from pg_stat_replication s
        where s.state = 'streaming' and s.sync_state in ('sync', 'quorum') and s.flush_lsn >= p.log_to) as releasing,
       pg_current_snapshot()::text as snapshot,
       case when p.log_to is not null
            then ('x' || left(pg_walfile_name(pg_current_wal_flush_lsn()), 8))::bit(32)::bigint end as timeline,
       current_setting('synchronous_standby_names') as standby_names,
       current_setting('fsync') as fsync,
       pg_has_role('pg_read_all_stats', 'usage') as sees_standbys,
       array(select current_setting('synchronous_commit') where $2::boolean
             union all
             select split_part(c.setting, '=', 2)
             from pg_db_role_setting s cross join unnest(s.setconfig) as c (setting)
             where s.setrole in (0, current_user::regrole)
               and s.setdatabase in (0, (select d.oid from pg_database d where d.datname = current_database()))
               and starts_with(c.setting, 'synchronous_commit=')) as levels
from place p
cross join lateral (
    select coalesce(array_agg(s.name) filter (where s.flushed >= p.log_to), '{}') as standbys, count(*) as streaming
    from listed_standbys s
) h;

-- name: end_barriers
-- parameters: application name, process, seconds
-- index:
-- A barrier whose client is gone waits on the server for as long as there is no quorum, and holds a connection. Ends that
-- of one server process, and those that killed clients left, which are so many seconds old. Cancelling one loses nothing:
-- it has written a message that nobody reads.
select count(pg_cancel_backend(a.pid))
from pg_stat_activity a
where a.application_name = $1 and a.usename = current_user and a.datname = current_database()
  and a.wait_event = 'SyncRep'
  and (a.pid = $2::integer or a.query_start < now() - $3::double precision * interval '1 second');

-- name: void_events
-- parameters: receipts uuid[], log_from pg_lsn, timeline bigint, standbys needed, names text[], promise text
-- index: deliveries_pkey, receipts_pkey
-- A lease that is taken away here is found gone by whoever held it.
select * from void_events($1, $2, $3, $4, $5, $6);

-- name: lock_standing
-- parameters: receipts uuid[]
-- index: receipts_pkey
-- Waits for whoever is about to declare these void, and then tells which are not.
select r.id from receipts r where r.id = any ($1::uuid[]) and r.void_at is null order by r.id for share;
