-- The keys that seal secrets: what tells one installation's from another's.

-- name: lock_key_marks
-- parameters:
-- index:
-- Of two processes that start with different keys at once, one is the first.
lock table key_marks in share row exclusive mode;

-- name: list_key_marks
-- parameters:
-- index:
select m.sealed from key_marks m order by m.made_at;

-- name: has_key_marks
-- parameters:
-- index:
select exists (select from key_marks);

-- name: has_secrets
-- parameters:
-- index: secrets_pkey
select exists (select from secrets);

-- name: insert_key_mark
-- parameters: sealed
-- index:
insert into key_marks (sealed) values ($1);
