-- The catalogue: each event type's numbered JSON Schemas, as the bytes that were given. A row never changes and never
-- goes, so whatever was worked out from one may be kept. Types are in the order of their bytes in every database.
create table schemas (
    tenant text not null references tenants (id),
    type text collate "C" not null check (type <> ''),
    version integer not null check (version between 1 and 999999999),
    schema bytea not null,
    created_at timestamptz not null default now(),
    primary key (tenant, type, version)
);
