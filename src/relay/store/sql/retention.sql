-- What is no longer kept, removed in batches. Rows that somebody holds are left for the next time.

-- name: prune_idempotency_keys
-- parameters: batch integer
-- index: idempotency_keys_expiry, idempotency_keys_pkey
-- By the row as it stands when it is locked: a key that was bound anew since is not over.
with expired as materialized (
    select k.tenant, k.source, k.key from idempotency_keys k
    where k.expires_at <= now()
    order by k.expires_at limit $1
    for update skip locked
)
delete from idempotency_keys i using expired e
where i.tenant = e.tenant and i.source = e.source and i.key = e.key and i.expires_at <= now()
returning i.key;

-- name: prune_request_keys
-- parameters: batch integer
-- index: request_keys_expiry, request_keys_pkey
-- Likewise.
with expired as materialized (
    select k.tenant, k.key from request_keys k
    where k.expires_at <= now()
    order by k.expires_at limit $1
    for update skip locked
)
delete from request_keys i using expired e
where i.tenant = e.tenant and i.key = e.key and i.expires_at <= now()
returning i.key;

-- name: prune_signed_requests
-- parameters: batch integer
-- index: signed_requests_expiry, signed_requests_pkey
-- Likewise.
with expired as materialized (
    select k.tenant, k.source, k.digest from signed_requests k
    where k.expires_at <= now()
    order by k.expires_at limit $1
    for update skip locked
)
delete from signed_requests i using expired e
where i.tenant = e.tenant and i.source = e.source and i.digest = e.digest and i.expires_at <= now()
returning i.digest;
