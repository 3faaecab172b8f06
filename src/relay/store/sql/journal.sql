-- The journal: the append is a function (see migrations), the rest reads.

-- name: append_events
-- parameters: rules, credentials, schemas, key seconds, receipt[], day[], partition[], tenant[], source[], event_id[],
--             type[], schema[], received_at[], content_type[], payload[], payload_sha256[], forwarded[], hops[],
--             checked_us[], assigned_us[], fan_out[], key[], fingerprint[], answer_head[], answer_tail[],
--             delivery's event[], delivery[], delivery's receipt[], delivery's endpoint[]
-- index: versions_pkey, idempotency_keys_pkey, deliveries_pkey, receipts_pkey, journal_heads_pkey, journal_pkey
-- `timeline` is the server's: only a proof of the same one is about this append.
select a.*, t.timeline
from append_events(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
    $25, $26, $27, $28, $29) a
cross join (
    select ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint as timeline offset 0
) t;

-- name: read_payload
-- parameters: tenant text, receipt uuid, journal_day date
-- index: journal_pkey, receipts_pkey
select j.content_type, j.payload from journal j
where j.day = $3 and j.receipt_id = $2 and j.tenant = $1
  and not exists (select from receipts r where r.id = j.receipt_id and r.void_at is not null);
