-- The catalogue of event types and their schemas.

-- name: insert_schema
-- parameters: tenant, type, version, schema, most
-- index: schemas_pkey
-- Nothing where that version is there already, or the tenant has so many.
insert into schemas (tenant, type, version, schema)
select $1, $2, $3, $4 where (select count(*) from schemas s where s.tenant = $1) < $5::integer
on conflict (tenant, type, version) do nothing
returning created_at;

-- name: bump_schemas
-- parameters:
-- index: versions_pkey
-- Every gateway's snapshot is stale from the commit of this transaction on.
update versions set schemas = schemas + 1;

-- name: read_schema
-- parameters: tenant, type, version
-- index: schemas_pkey
select s.schema, s.created_at from schemas s where s.tenant = $1 and s.type = $2 and s.version = $3;

-- name: list_schemas
-- parameters: tenant, after type, after version, type (null: of every type), limit
-- index: schemas_pkey
select s.type, s.version, octet_length(s.schema) as size, sha256(s.schema) as sha256, s.created_at
from schemas s
where s.tenant = $1 and (s.type, s.version) > ($2, $3::integer) and ($4::text is null or s.type = $4)
order by s.type, s.version limit $5;

-- name: list_event_types
-- parameters: tenant, after type, limit
-- index: schemas_pkey
select s.type, array_agg(s.version order by s.version) as versions
from schemas s where s.tenant = $1 and s.type > $2
group by s.type order by s.type limit $3;

-- name: set_strict_schemas
-- parameters: tenant, strict
-- index: tenants_pkey
update tenants t set strict_schemas = $2 where t.id = $1 and t.removed_at is null and t.strict_schemas <> $2
returning t.name;

-- name: load_catalogue
-- parameters:
-- index: versions_pkey
-- One statement, so that all of it is of one moment.
select v.schemas,
       (select jsonb_agg(t.id) from tenants t where t.strict_schemas)::text as strict,
       (select jsonb_agg(jsonb_build_array(s.tenant, s.type, s.versions))
        from (select c.tenant, c.type, array_agg(c.version order by c.version) as versions
              from schemas c group by c.tenant, c.type) s)::text as types
from versions v;

-- name: look_before_refusing
-- parameters: tenant, source, key (null: none)
-- index: idempotency_keys_pkey
-- Whether the catalogue has changed, and whether a request of that name was taken. A name that is about to expire counts
-- as none, since the append must find it still there.
select v.schemas,
       exists (select from idempotency_keys k
               where k.tenant = $1 and k.source = $2 and k.key = $3
                 and k.expires_at > now() + interval '1 minute') as taken
from versions v;
