-- The names of requests that re-drive or discard.

-- name: try_request_key
-- parameters: tenant, key
-- index:
-- Whether no other transaction has the name; it is ours until this one ends. Waits for nobody. That two names might share
-- a number costs the second a moment.
select pg_try_advisory_xact_lock(hashtextextended(k.key, hashtextextended(k.tenant, 0)))
from (values ($1::text, $2::text)) as k (tenant, key);

-- name: claim_request_key
-- parameters: tenant, key, fingerprint, seconds
-- index: request_keys_pkey
-- Answers a row if the name is free (or its time was over). A row that is not answered is locked all the same.
insert into request_keys as k (tenant, key, fingerprint, expires_at)
values ($1, $2, $3, now() + $4::double precision * interval '1 second')
on conflict (tenant, key) do update
    set fingerprint = excluded.fingerprint, status = null, answer = null, expires_at = excluded.expires_at
    where k.expires_at <= now()
returning k.key;

-- name: read_request_key
-- parameters: tenant, key
-- index: request_keys_pkey
select k.fingerprint, k.status, k.answer from request_keys k where k.tenant = $1 and k.key = $2;

-- name: keep_answer
-- parameters: tenant, key, status, answer
-- index: request_keys_pkey
update request_keys set status = $3, answer = $4 where tenant = $1 and key = $2;
