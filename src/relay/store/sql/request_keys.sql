-- The names of requests that re-drive or discard.

-- name: claim_request_key
-- parameters: tenant, key, fingerprint, seconds
-- index: request_keys_pkey
-- Answers a row if the name is free (or its time was over). Waits for a request of that name that is under way.
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
