-- Which endpoint each of the newest versions of the rules is about: whoever knows an older version reads what changed since,
-- and not the rules of all endpoints. `mark` tells a version from another one of the same number, which a failover may
-- have put in its place.
create table rule_changes (
    version bigint primary key,
    endpoint_id uuid not null,
    mark uuid not null default gen_random_uuid()
);
