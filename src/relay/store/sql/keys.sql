-- The keys that seal secrets: what tells one installation's from another's, and under which of them each secret is.

-- name: lock_key_marks
-- parameters:
-- index:
-- Of two processes that start with different keys at once, one is the first.
lock table key_marks in share row exclusive mode;

-- name: list_key_marks
-- parameters:
-- index:
select m.sealed, m.key_id, m.retired_at is not null as is_retired from key_marks m order by m.made_at;

-- name: has_key_marks
-- parameters:
-- index:
select exists (select from key_marks);

-- name: has_secrets
-- parameters:
-- index: secrets_pkey
select exists (select from secrets);

-- name: insert_key_mark
-- parameters: sealed, key id
-- index:
insert into key_marks (sealed, key_id) values ($1, $2);

-- name: name_key_mark
-- parameters: sealed, key id
-- index:
-- A mark of before fingerprints gets its key's.
update key_marks set key_id = $2 where sealed = $1;

-- name: retire_key_mark
-- parameters: sealed
-- index:
update key_marks set retired_at = now() where sealed = $1;

-- name: hold_key_marks
-- parameters: key ids
-- index:
-- Until the end of the transaction none of these keys is retired. One order for all who hold several.
select m.key_id, m.retired_at is not null as is_retired
from key_marks m where m.key_id = any ($1::bytea[]) order by m.sealed for share;

-- name: hold_all_key_marks
-- parameters:
-- index:
-- What is being sealed is waited for, and what comes meanwhile waits.
select m.sealed, m.key_id from key_marks m where m.retired_at is null order by m.sealed for update;

-- name: count_sealed
-- parameters:
-- index:
select s.key_id, count(*) as secrets from secrets s group by s.key_id;

-- name: count_sealed_otherwise
-- parameters: key id, but not these ids
-- index:
-- How many secrets are not under that key.
select count(*) from secrets s where s.key_id is distinct from $1::bytea and s.id <> all ($2::uuid[]);

-- name: sealed_otherwise
-- parameters: key id, after id, limit
-- index: secrets_pkey
-- In the order of their ids.
select s.id, s.ciphertext, s.key_id from secrets s
where s.id > $2 and s.key_id is distinct from $1::bytea order by s.id limit $3;

-- name: sealed_before_key_ids
-- parameters: after id, limit
-- index: secrets_pkey
select s.id, s.ciphertext from secrets s where s.id > $1 and s.key_id is null order by s.id limit $2;

-- name: seal_anew
-- parameters: key id, ids, ciphertexts of before, ciphertexts of now
-- index: secrets_pkey
-- Only what is still as it was read: whoever was quicker has sealed it as well.
with given as materialized (
    select * from unnest($2::uuid[], $3::bytea[], $4::bytea[]) as g(id, old, new)
), held as materialized (
    select s.id, g.new from secrets s join given g on g.id = s.id
    where s.ciphertext = g.old and s.key_id is distinct from $1::bytea
    order by s.id for no key update of s
)
update secrets s set ciphertext = h.new, key_id = $1::bytea from held h where s.id = h.id
returning s.id;

-- name: users_of_secrets
-- parameters: ids
-- index:
-- What is in force by them: the endpoints and sources that sign with them, a previous secret during its overlap
-- included, unless its key was given up: nothing helps it any more, and the one in force signs alone.
with given_up as materialized (
    select s.id from secrets s join key_marks m on m.key_id = s.key_id
    where s.id = any ($1::uuid[]) and m.retired_at is not null
)
select 'endpoint' as kind, e.id, e.tenant, e.name, false as is_previous
from endpoints e where e.removed_at is null and e.secret_id = any ($1::uuid[])
union all
select 'endpoint', e.id, e.tenant, e.name, true
from endpoints e where e.removed_at is null and e.previous_secret_id = any ($1::uuid[]) and e.previous_secret_expires_at > now()
    and e.previous_secret_id not in (select g.id from given_up g)
union all
select 'source', s.id, s.tenant, s.name, false
from sources s where s.removed_at is null and s.secret_id = any ($1::uuid[])
union all
select 'source', s.id, s.tenant, s.name, true
from sources s where s.removed_at is null and s.previous_secret_id = any ($1::uuid[]) and s.previous_secret_expires_at > now()
    and s.previous_secret_id not in (select g.id from given_up g)
order by kind, tenant, name, is_previous;

-- name: sealed_under_others
-- parameters: key ids
-- index:
-- The secrets that are under none of these keys, or of before it was kept which one each is under.
select s.id from secrets s where s.key_id is null or s.key_id <> all ($1::bytea[]);

-- name: sessions_called
-- parameters: name pattern
-- index:
-- How many other sessions of this database call themselves so.
select count(*) from pg_stat_activity a
where a.datname = current_database() and a.pid <> pg_backend_pid() and a.application_name like $1;
