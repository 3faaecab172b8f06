-- The journal: the append is a function (see migrations), the rest reads.

-- name: append_events
-- parameters: the arrays of the function
-- index: journal_pkey, receipts_pkey, deliveries_pkey, idempotency_keys_pkey
select * from append_events(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
    $25, $26, $27, $28, $29);

-- name: read_payload
-- parameters: tenant text, receipt uuid, journal_day date
-- index: journal_pkey
select j.content_type, j.payload from journal j where j.day = $3 and j.receipt_id = $2 and j.tenant = $1;

-- name: count_journal
-- parameters:
-- index:
-- Per partition: the first number, the last one, how many there are, and what the head says comes next.
select h.partition, h.next_number, min(j.number) as first, max(j.number) as last, count(j.number) as events
from journal_heads h left join journal j on j.partition = h.partition
group by h.partition, h.next_number order by h.partition;
