-- What `relay doctor` asks of a database that may be in any state. Nothing here writes, and the first four need no table.

-- name: examine_server
-- parameters:
-- index:
select current_setting('server_version_num')::integer as version_number,
       current_setting('server_version') as version,
       clock_timestamp() as clock,
       current_user::text as role,
       coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) as may_create;

-- name: foreign_tables
-- parameters: names text[]
-- index:
-- Those of the tables that are there and that our role does not own: it could neither migrate nor partition them.
select c.relname::text as name
from pg_class c
where c.relnamespace = current_schema()::regnamespace and c.relname = any ($1::text[]) and c.relkind in ('r', 'p')
  and not c.relispartition
  and not pg_has_role(c.relowner, 'USAGE')
order by 1;

-- name: sessions_by_name
-- parameters:
-- index:
-- How many sessions of Relay's processes this database has. Those of another role show no name.
select a.application_name as name, count(*)::integer as sessions
from pg_stat_activity a
where a.datname = current_database() and a.application_name like 'relay %'
group by 1;

-- name: who_holds_locks
-- parameters: waiting for so many seconds at least
-- index:
-- Whom statements of Relay wait for: how many, for how long, and for which table where it is a table's or a row's lock
-- that says so. When a session's transaction began is shown of our own role's and to who may read all statistics.
select blocker.pid, b.usename::text as role, b.application_name as name, waiting.relation::regclass::text as "table",
       extract(epoch from clock_timestamp() - min(b.xact_start))::double precision as began_ago,
       count(*)::integer as waiters,
       extract(epoch from clock_timestamp() - min(waiting.since))::double precision as waiting_for
from pg_stat_activity w
cross join lateral (
    select min(coalesce(l.waitstart, clock_timestamp())) as since, -- it is null for a moment at first
           coalesce(min(l.relation),
                    (select min(t.relation) from pg_locks t where t.pid = w.pid and t.locktype = 'tuple')) as relation
    from pg_locks l where l.pid = w.pid and not l.granted
) waiting
cross join lateral unnest(pg_blocking_pids(w.pid)) as blocker (pid)
left join pg_stat_activity b on b.pid = blocker.pid
where w.datname = current_database() and w.application_name like 'relay %'
  and waiting.since <= clock_timestamp() - $1 * interval '1 second'
group by 1, 2, 3, 4
order by waiting_for desc, 1;

-- name: endpoints_to_reach
-- parameters: most
-- index: endpoints_page
select e.name, e.url, e.transport::text as transport
from endpoints e
where e.removed_at is null and e.status = 'active'
order by e.tenant, e.id desc
limit $1;

-- name: endpoints_called
-- parameters: name or null, id uuid or null
-- index: endpoints_page or endpoints_pkey or endpoints_name or endpoints_every_name
select e.name, e.url, e.transport::text as transport
from endpoints e
where e.removed_at is null and (e.name = $1 or e.id = $2)
order by e.tenant, e.id;

-- name: disabled_endpoints
-- parameters: most
-- index: endpoints_page
select e.name, e.status_reason as reason
from endpoints e
where e.removed_at is null and e.status = 'disabled'
order by e.tenant, e.id desc
limit $1;
