-- What `relay doctor` asks of a database that may be in any state. Nothing here writes, and the first two need no table.

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
