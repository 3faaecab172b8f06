-- Tenants, sources and keys. Every statement that serves a user names the tenant.

-- name: read_credentials
-- parameters: known version
-- index: versions_pkey
-- For a process, which identifies the senders of all tenants. Null where nothing changed since that version.
select v.credentials, case when v.credentials is distinct from $1::bigint then credentials_in_force()::text end as in_force
from versions v;

-- name: bump_credentials
-- parameters: seen version
-- index: versions_pkey
-- Every process's credentials are stale from the commit of this transaction on. First of all in each change, so that
-- changes happen one after the other; no row if whoever asks for it was identified by older ones.
update versions set credentials = credentials + 1
where $1::bigint is null or credentials = $1
returning credentials;

-- name: is_open
-- parameters:
-- index:
-- Whether nobody has a credential, of any tenant: then everybody is anonymous.
select not exists (select from keys k where k.revoked_at is null)
   and not exists (select from sources s where s.removed_at is null and s.auth <> '{}');

-- name: is_shared
-- parameters:
-- index:
-- Whether the installation has several tenants.
select count(*) > 1 from (select from tenants t where t.removed_at is null limit 2) as seen;

-- name: insert_key
-- parameters: id, tenant, name, scopes, source id, sha256
-- index: keys_name
insert into keys (id, tenant, name, scopes, source_id, secret_sha256) values ($1, $2, $3, $4, $5, $6)
returning id, tenant, name, scopes, null::text as source, created_at;

-- name: list_keys
-- parameters: tenant, before id, limit
-- index: keys_page
-- Newest first.
select k.id, k.tenant, k.name, k.scopes, s.name as source, k.created_at
from keys k left join sources s on s.id = k.source_id
where k.tenant = $1 and k.id < $2 and k.revoked_at is null
order by k.id desc limit $3;

-- name: revoke_key
-- parameters: tenant, id
-- index: keys_page
update keys k set revoked_at = now()
where k.tenant = $1 and k.id = $2 and k.revoked_at is null
returning k.name, k.scopes;

-- name: is_administered
-- parameters: tenant
-- index: keys_page
-- Whether somebody can make keys for the tenant.
select exists (
    select from keys k where k.revoked_at is null and (k.tenant = $1 and 'admin' = any (k.scopes) or 'operator' = any (k.scopes))
);

-- name: revoke_keys_of_source
-- parameters: tenant, source id
-- index: keys_source or keys_page
update keys k set revoked_at = now() where k.tenant = $1 and k.source_id = $2 and k.revoked_at is null
returning k.name;

-- name: insert_source
-- parameters: id, tenant, name, auth, certificate subject, sha256, secret id
-- index: sources_name
insert into sources as s (id, tenant, name, auth, certificate_subject, secret_sha256, secret_id)
values ($1, $2, $3, $4, $5, $6, $7)
returning s.id, s.tenant, s.name, s.auth, s.certificate_subject, s.previous_secret_expires_at, s.created_at;

-- name: list_sources
-- parameters: tenant, before id, limit
-- index: sources_page
-- Newest first. Who has no credential is nobody's to manage.
select s.id, s.tenant, s.name, s.auth, s.certificate_subject, s.previous_secret_expires_at, s.created_at
from sources s
where s.tenant = $1 and s.id < $2 and s.removed_at is null and s.auth <> '{}'
order by s.id desc limit $3;

-- name: find_source
-- parameters: tenant, name
-- index: sources_name or sources_page
select s.id, s.auth from sources s
where s.tenant = $1 and s.name = $2 and s.removed_at is null and s.auth <> '{}';

-- name: get_source
-- parameters: tenant, id
-- index: sources_page
select s.id, s.tenant, s.name, s.auth, s.certificate_subject, s.previous_secret_expires_at, s.created_at
from sources s
where s.tenant = $1 and s.id = $2 and s.removed_at is null and s.auth <> '{}';

-- name: rotate_source
-- parameters: tenant, id, sha256, secret id, overlap seconds
-- index: sources_page
-- The secret in force becomes the previous one; one that was previous already is dropped.
update sources s
set secret_sha256 = $3, secret_id = $4, previous_secret_sha256 = s.secret_sha256, previous_secret_id = s.secret_id,
    previous_secret_expires_at = now() + $5 * interval '1 second'
where s.tenant = $1 and s.id = $2 and s.removed_at is null
returning s.id, s.tenant, s.name, s.auth, s.certificate_subject, s.previous_secret_expires_at, s.created_at;

-- name: has_keys_of_source
-- parameters: tenant, source id
-- index: keys_source or keys_page
select exists (select from keys k where k.tenant = $1 and k.source_id = $2 and k.revoked_at is null);

-- name: change_source
-- parameters: tenant, id, auth, certificate subject, has a new secret, sha256, secret id
-- index: sources_page
-- A new secret is the only one from then on. Else those that there are stay in the forms that are still asked for.
update sources s
set auth = $3, certificate_subject = $4,
    secret_sha256 = case when $5 then $6 when 'bearer' = any ($3::text[]) then s.secret_sha256 end,
    secret_id = case when $5 then $7 when 'hmac' = any ($3::text[]) then s.secret_id end,
    previous_secret_sha256 = case when not $5 and 'bearer' = any ($3::text[]) then s.previous_secret_sha256 end,
    previous_secret_id = case when not $5 and 'hmac' = any ($3::text[]) then s.previous_secret_id end,
    previous_secret_expires_at =
        case when not $5 and $3::text[] && array['bearer', 'hmac'] then s.previous_secret_expires_at end
where s.tenant = $1 and s.id = $2 and s.removed_at is null and s.auth <> '{}'
returning s.id, s.tenant, s.name, s.auth, s.certificate_subject, s.previous_secret_expires_at, s.created_at;

-- name: remove_source
-- parameters: tenant, id
-- index: sources_page
update sources s set removed_at = now()
where s.tenant = $1 and s.id = $2 and s.removed_at is null and s.auth <> '{}'
returning s.name;

-- name: insert_tenant
-- parameters: tenant, name, partition
-- index: tenants_pkey
insert into tenants (id, name, partition) values ($1, $2, $3) returning id, name, strict_schemas, created_at;

-- name: list_tenants
-- parameters: tenant, after tenant, limit
-- index: tenants_pkey
-- That one alone, or all where it is null: an operator is of all of them.
select t.id, t.name, t.strict_schemas, t.created_at from tenants t
where ($1::text is null or t.id = $1) and t.id > $2 and t.removed_at is null
order by t.id limit $3;

-- name: remove_tenant
-- parameters: tenant
-- index: tenants_pkey
-- One that still has something stays; so does the tenant of anonymous requests, which has their source.
update tenants t set removed_at = now()
where t.id = $1 and t.removed_at is null
  and not exists (select from keys k where k.tenant = $1 and k.revoked_at is null)
  and not exists (select from sources s where s.tenant = $1 and s.removed_at is null)
  and not exists (select from endpoints e where e.tenant = $1 and e.removed_at is null)
returning t.id;

-- name: lock_tenant
-- parameters: tenant
-- index: tenants_pkey
-- Waits for whoever makes something of the tenant's, and lets nobody else begin with it.
select from tenants t where t.id = $1 for no key update;

-- name: hold_tenant
-- parameters: tenant
-- index: tenants_pkey
-- A row if there is that tenant, which is not removed until the end of the transaction. First of all in whatever makes
-- something of a tenant's and does not count up the credentials, as a removal does.
select t.id from tenants t where t.id = $1 and t.removed_at is null for share;

-- name: has_tenant
-- parameters: tenant
-- index: tenants_pkey
select exists (select from tenants t where t.id = $1 and t.removed_at is null);

-- name: claim_signed_requests
-- parameters: tenant[], source[], digest[], fingerprint[], seconds, name's tenant[], name's source[], name[]
-- index: signed_requests_pkey, idempotency_keys_pkey
-- Answers for each what it is taken for: the fingerprint given, or that of the request which was signed like it before.
-- No two may be the same. Names of such requests that are about to be free stay taken as long as they are known again.
with due as materialized (
    select k.tenant, k.source, k.key
    from unnest($6::text[], $7::text[], $8::text[]) as n (tenant, source, key)
    join idempotency_keys k on k.tenant = n.tenant and k.source = n.source and k.key = n.key
    where k.expires_at > now() and k.expires_at < now() + $5::double precision * interval '1 second'
    order by k.tenant, k.source, k.key for no key update of k
), kept as (
    update idempotency_keys k set expires_at = now() + $5::double precision * interval '1 second'
    from due d where k.tenant = d.tenant and k.source = d.source and k.key = d.key
)
insert into signed_requests as s (tenant, source, digest, fingerprint, expires_at)
select w.tenant, w.source, w.digest, w.fingerprint, now() + $5::double precision * interval '1 second'
from unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[]) as w (tenant, source, digest, fingerprint)
order by w.tenant, w.source, w.digest
on conflict (tenant, source, digest) do update
    set fingerprint = case when s.expires_at <= now() then excluded.fingerprint else s.fingerprint end,
        expires_at = case when s.expires_at <= now() then excluded.expires_at else s.expires_at end
returning s.tenant, s.source, s.digest, s.fingerprint;
