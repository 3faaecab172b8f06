-- Under which key a secret is sealed: a key's fingerprint, which tells nothing of the key. Null is of before this column,
-- or of a version of before; `relay keys reencrypt` finds out.
alter table secrets add column key_id bytea;
alter table key_marks
    add column key_id bytea unique,
    -- From then on nothing is sealed under it any more, and no process needs it.
    add column retired_at timestamptz;
