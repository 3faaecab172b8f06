-- The first shapes: who sends, where to, the journal, what is owed, what was tried.
--
-- No foreign keys on journal, receipts, deliveries and delivery_attempts: each costs a look-up per row on the hot path
-- and its locks collide with changes to endpoints; `relay verify` proves what they would.

create type transport as enum ('http', 'telegram', 'discord');
create type signature_profile as enum ('relay', 'standard', 'stripe', 'github', 'none');
create type ack_mode as enum ('response', 'explicit');
create type endpoint_status as enum ('active', 'paused', 'disabled');
create type breaker_status as enum ('closed', 'open', 'half_open');
create type delivery_status as enum ('pending', 'in_flight', 'delivered', 'dead', 'void');
create type dead_reason as enum
    ('exhausted', 'permanent_failure', 'refused', 'no_route', 'too_large', 'endpoint_removed');
create type outcome_class as enum ('success', 'retryable', 'permanent', 'deferred');
create type receipt_outcome as enum ('delivered', 'delivered_after_redrive', 'closed_incomplete', 'expired');

-- One row that counts every change a gateway's snapshot depends on. The append compares it and starts over.
create table versions (
    singleton boolean primary key default true check (singleton),
    rules bigint not null,
    credentials bigint not null,
    schemas bigint not null
);
insert into versions (rules, credentials, schemas) values (1, 1, 1);

create table tenants (
    id text primary key check (id ~ '^acct_[A-Za-z0-9_-]{1,64}$'),
    name text not null check (name <> ''),
    -- the numbered journal partition that this tenant's events go to: the first byte of sha256(id), modulo 16
    partition smallint not null check (partition between 0 and 15),
    strict_schemas boolean not null default false,
    created_at timestamptz not null default now()
);
insert into tenants (id, name, partition) values ('acct_default', 'default', 6);

create table sources (
    id uuid primary key,
    name text not null unique check (name <> ''),
    tenant text not null references tenants (id),
    auth text[] not null default '{}',
    certificate_subject text unique,
    created_at timestamptz not null default now()
);
insert into sources (id, name, tenant)
    values ('00000000-0000-7000-8000-000000000000', 'anonymous', 'acct_default');

-- Encrypted at rest (Fernet). A row never changes: a new secret is a new row, so decrypted text may be kept by id.
create table secrets (
    id uuid primary key,
    ciphertext bytea not null,
    created_at timestamptz not null default now()
);

create table endpoints (
    id uuid primary key,
    tenant text not null references tenants (id),
    name text not null check (name <> ''),
    url text not null,
    transport transport not null default 'http',
    event_types text[] not null check (cardinality(event_types) > 0),
    rate_per_second double precision not null check (rate_per_second > 0 and rate_per_second <= 100000),
    burst integer not null check (burst between 1 and 100000),
    max_in_flight integer not null check (max_in_flight > 0),
    timeout_seconds double precision check (timeout_seconds > 0),
    retry jsonb,
    ack ack_mode not null default 'response',
    signature signature_profile not null default 'relay',
    headers jsonb not null default '{}',
    status endpoint_status not null default 'active',
    status_reason text,
    secret_id uuid not null references secrets (id),
    previous_secret_id uuid references secrets (id),
    previous_secret_expires_at timestamptz,
    -- grows with every change; what a dispatcher knows of an endpoint is good as long as claims name this number
    revision bigint not null default 1,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    -- a removed endpoint keeps its row, since receipts go on naming it
    removed_at timestamptz,
    check ((previous_secret_id is null) = (previous_secret_expires_at is null))
);
create unique index endpoints_name on endpoints (tenant, name) where removed_at is null;
create index endpoints_page on endpoints (tenant, id) where removed_at is null;

-- What a lane is doing, apart from how it is configured: these few bytes change with the traffic.
create table endpoint_state (
    endpoint_id uuid primary key references endpoints (id),
    breaker breaker_status not null default 'closed',
    failures integer not null default 0,
    trips integer not null default 0,
    opened_at timestamptz,
    cooldown_until timestamptz,
    probe_token uuid,
    probe_until timestamptz,
    tokens double precision,
    tokens_at timestamptz,
    held_until timestamptz,
    held_reason text,
    found_closed_at timestamptz,
    found_closed_reason text
) with (fillfactor = 50);

-- The next number of each journal partition. An append holds its row until it has committed, so numbers are gapless
-- and in commit order. A page holds few of them, so that the updates stay HOT.
create table journal_heads (
    partition smallint primary key check (partition between 0 and 15),
    next_number bigint not null default 1
) with (fillfactor = 10);
insert into journal_heads (partition) select generate_series(0, 15);

-- Append-only. Found by receipt within its day, walked by number within its partition.
create table journal (
    day date not null,
    receipt_id uuid not null,
    partition smallint not null,
    number bigint not null,
    tenant text not null,
    source text not null,
    event_id text not null,
    type text not null,
    schema text,
    received_at timestamptz not null,
    content_type text not null,
    payload bytea not null,
    payload_sha256 bytea not null,
    forwarded jsonb,
    hops smallint not null,
    checked_us integer not null,
    assigned_us integer not null,
    committed_at timestamptz not null default clock_timestamp(),
    primary key (day, receipt_id),
    unique (day, partition, number)
) partition by range (day);

-- Progress of an event. What is fixed about it stands in the journal; type and event id are here too, to be looked for.
create table receipts (
    id uuid primary key,
    tenant text not null,
    journal_day date not null,
    event_id text not null,
    type text not null,
    rules_version bigint not null,
    expected integer not null,
    acked integer not null default 0,
    -- dead letters that a person gave up
    discarded integer not null default 0,
    redriven boolean not null default false,
    reason dead_reason,
    outcome receipt_outcome,
    closed_at timestamptz,
    check (acked + discarded <= greatest(expected, 1)),
    check ((outcome is null) = (closed_at is null))
) with (fillfactor = 80);

create table deliveries (
    -- shares its first 96 bits with the receipt id: a receipt's deliveries are one range of this key
    id uuid primary key,
    receipt_id uuid not null,
    endpoint_id uuid not null,
    tenant text not null,
    journal_day date not null,
    status delivery_status not null default 'pending',
    due_at timestamptz not null,
    attempts integer not null default 0,
    generation integer not null default 0,
    generation_attempts integer not null default 0,
    generation_started_at timestamptz,
    lease_token uuid,
    lease_until timestamptz,
    claimed_at timestamptz,
    -- a 2xx came, and the endpoint's explicit ack is awaited since
    received_at timestamptz,
    acked_at timestamptz,
    dead_at timestamptz,
    dead_reason dead_reason,
    last_error text,
    announced_at timestamptz,
    check (status <> 'in_flight' or lease_token is not null or received_at is not null),
    check (status = 'in_flight' or lease_token is null),
    check ((status = 'delivered') = (acked_at is not null)),
    check ((status = 'dead') = (dead_reason is not null))
) with (
    fillfactor = 90,
    -- a queue table is rewritten all day long: clean it often and without pause, or claims walk over what is gone
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_analyze_threshold = 5000
);
create index deliveries_pending on deliveries (endpoint_id, due_at) where status = 'pending';
create index deliveries_leased on deliveries (lease_until) where status = 'in_flight';
create index deliveries_dead on deliveries (tenant, dead_at, id) where status = 'dead';

create table delivery_attempts (
    delivery_id uuid not null,
    -- the claim's instant plus the wait: the same whenever one outcome is recorded twice
    at timestamptz not null,
    lease_token uuid not null,
    attempt integer not null,
    generation integer not null,
    outcome_class outcome_class not null,
    reason text,
    deferred_for_ms integer,
    status_code smallint,
    error_class text,
    snippet text,
    wait_ms real,
    connect_ms real,
    send_ms real,
    first_byte_ms real,
    total_ms real,
    display_url text,
    primary key (delivery_id, at, lease_token)
) partition by range (at);

-- The sender's name for a request: which receipt it got, and the two pieces of its answer around the position.
create table idempotency_keys (
    tenant text not null,
    source text not null,
    key text not null,
    fingerprint bytea not null,
    receipt_id uuid not null,
    journal_day date not null,
    answer_head bytea not null,
    answer_tail bytea not null,
    expires_at timestamptz not null,
    primary key (tenant, source, key)
);
create index idempotency_keys_expiry on idempotency_keys (expires_at);

-- Each running process says that it is there.
create table heartbeats (
    process uuid primary key,
    kind text not null,
    reported_at timestamptz not null
) with (fillfactor = 50);

-- Make the day partitions of a table from yesterday to so many days ahead. A partition is made apart and then attached,
-- since CREATE TABLE … PARTITION OF would lock the parent against everyone. Rows of the day that fell into the default
-- partition meanwhile move along: the default partition is locked (attaching does that anyway) before it is looked at.
-- Callers take turns.
create function ensure_day_partitions(parent text, days_ahead integer) returns integer
language plpgsql as $$
declare
    day date;
    child text;
    made integer := 0;
    today date := (now() at time zone 'UTC')::date;
    key_column text := case parent when 'journal' then 'day' else 'at' end;
    cast_to text := case parent when 'journal' then '' else ' 00:00:00+00' end;
begin
    perform pg_advisory_xact_lock(hashtext('ensure_day_partitions'), hashtext(parent));
    for day in select generate_series(today - 1, today + days_ahead, interval '1 day')::date loop
        child := parent || '_' || to_char(day, 'YYYYMMDD');
        continue when to_regclass(child) is not null;
        execute format('create table %I (like %I including all)', child, parent);
        execute format('lock table %I in access exclusive mode', parent || '_default');
        execute format(
            'with fallen as (delete from %1$I where %2$I >= %3$L and %2$I < %4$L returning *)'
            ' insert into %5$I select * from fallen',
            parent || '_default', key_column, day || cast_to, (day + 1) || cast_to, child);
        execute format('alter table %I attach partition %I for values from (%L) to (%L)',
            parent, child, day || cast_to, (day + 1) || cast_to);
        made := made + 1;
    end loop;
    return made;
end $$;

create table journal_default partition of journal default;
create table delivery_attempts_default partition of delivery_attempts default;
select ensure_day_partitions('journal', 14), ensure_day_partitions('delivery_attempts', 14);
