-- Who may send and call. Every change of what is here counts up `versions.credentials` in its own transaction, so that
-- no append takes a sender's word by older ones.

-- A bearer key. Its secret is 32 random bytes, so nobody finds it by trying: a plain hash is as good as a slow one, and is
-- looked up at once.
create table keys (
    id uuid primary key,
    tenant text not null references tenants (id),
    name text not null check (name <> ''),
    scopes text[] not null check (scopes <> '{}' and scopes <@ array['ingest', 'read', 'admin', 'operator']),
    -- the source that it proves, null for a key of its own
    source_id uuid references sources (id),
    secret_sha256 bytea not null unique check (octet_length(secret_sha256) = 32),
    created_at timestamptz not null default now(),
    -- a revoked key keeps its row: what it sent and changed goes on naming it
    revoked_at timestamptz,
    check (source_id is null or not scopes && array['admin', 'operator'])
);
create unique index keys_name on keys (tenant, name) where revoked_at is null;
create index keys_page on keys (tenant, id) where revoked_at is null;
create index keys_source on keys (source_id);

-- A source's own secret proves it as a bearer (then its hash is here), by a signature (then it is sealed), or both.
alter table sources
    add column secret_sha256 bytea check (octet_length(secret_sha256) = 32),
    add column secret_id uuid references secrets (id),
    add column previous_secret_sha256 bytea check (octet_length(previous_secret_sha256) = 32),
    add column previous_secret_id uuid references secrets (id),
    add column previous_secret_expires_at timestamptz,
    add column removed_at timestamptz,
    add constraint sources_auth_check check (auth <@ array['bearer', 'hmac', 'mtls']),
    drop constraint sources_name_key,
    drop constraint sources_certificate_subject_key;
create unique index sources_name on sources (name) where removed_at is null;
create unique index sources_subject on sources (certificate_subject) where removed_at is null;
create unique index sources_secret on sources (secret_sha256);
create index sources_page on sources (tenant, id) where removed_at is null;

alter table tenants add column removed_at timestamptz;

-- Signed requests that were taken in, for as long as their timestamps are fresh: the same one again is the same event, or
-- nothing. `digest` is over timestamp and body, `fingerprint` over what else makes it this request.
create table signed_requests (
    tenant text not null,
    source text not null,
    digest bytea not null,
    fingerprint bytea not null,
    expires_at timestamptz not null,
    primary key (tenant, source, digest)
);
create index signed_requests_expiry on signed_requests (expires_at);

-- Everything that a process identifies senders by, of one moment. Of a previous secret the seconds are told for which it
-- is still in force, since clocks differ.
create function credentials_in_force() returns jsonb language sql stable as $$
    select jsonb_build_object(
        'tenants', (select coalesce(jsonb_agg(t.id), '[]') from tenants t where t.removed_at is null),
        'keys', (
            select coalesce(jsonb_agg(jsonb_build_array(
                k.tenant, k.name, k.scopes, s.name, encode(k.secret_sha256, 'hex'))), '[]')
            from keys k left join sources s on s.id = k.source_id
            where k.revoked_at is null
        ),
        'sources', (
            select coalesce(jsonb_agg(jsonb_build_object(
                'tenant', s.tenant, 'name', s.name, 'auth', s.auth, 'subject', s.certificate_subject,
                'keyed', exists (select from keys k where k.source_id = s.id),
                'sha256', encode(s.secret_sha256, 'hex'), 'secret_id', s.secret_id,
                'sealed', encode(c.ciphertext, 'hex'),
                'previous_for', extract(epoch from s.previous_secret_expires_at - clock_timestamp())::double precision,
                'previous_sha256', encode(s.previous_secret_sha256, 'hex'), 'previous_secret_id', s.previous_secret_id,
                'previous_sealed', encode(p.ciphertext, 'hex'))), '[]')
            from sources s
            left join secrets c on c.id = s.secret_id
            left join secrets p on p.id = s.previous_secret_id and s.previous_secret_expires_at > clock_timestamp()
            where s.removed_at is null and s.auth <> '{}'
        )
    )
$$;
