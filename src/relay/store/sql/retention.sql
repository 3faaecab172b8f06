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

-- name: expire_dead_letters
-- parameters: days double precision, batch integer
-- index: deliveries_dead, receipts_unrouted, deliveries_pkey, receipts_pkey
select * from expire_dead_letters($1, $2);

-- name: drop_oldest_day
-- parameters: parent table, days double precision
-- index:
select drop_oldest_day($1, $2);

-- name: days_to_prune
-- parameters: days double precision
-- index: old_days_pkey
-- Days of the journal that ended before so many days ago, the oldest first, but for those at which another look pays later.
select (p.from_at at time zone 'UTC')::date as day from partitions_of('journal') p
left join old_days o on o.day = (p.from_at at time zone 'UTC')::date
where not p.is_default and p.below_at <= now() - greatest($1, 1) * interval '1 day'
  and (o.look_again_at is null or o.look_again_at <= now())
order by 1;

-- name: prune_journal_day
-- parameters: day date, first id, last id, days double precision
-- index: receipts_pkey, journal_pkey, deliveries_owed, receipts_unrouted_page
select * from prune_journal_day($1, $2, $3, $4);

-- name: days_to_sweep
-- parameters:
-- index: old_days_pkey
select o.day, o.pruned_at from old_days o where o.pruned_at is not null and o.swept_at is null order by o.day;

-- name: sweep_pruned_day
-- parameters: day date, after id, last id, batch integer
-- index: receipts_pkey, journal_pkey, deliveries_pkey, past_generations_pkey
select * from sweep_pruned_day($1, $2, $3, $4);

-- name: mark_day_swept
-- parameters: day date, pruned_at
-- index: old_days_pkey
-- Unless it was pruned again meanwhile. One of which nothing is left is forgotten.
with forgotten as (
    delete from old_days o where o.day = $1 and o.pruned_at = $2 and o.kept = 0
)
update old_days o set swept_at = now() where o.day = $1 and o.pruned_at = $2 and o.kept > 0;

-- name: overdue_days
-- parameters: attempts days double precision, events days double precision
-- index: old_days_pkey
-- What is a day later than it should be: days of attempts that are still there, days of the journal that nobody has looked
-- at for a day, days of which events went and not what belongs to them.
select (select count(*) from partitions_of('delivery_attempts') p
        where not p.is_default and p.below_at <= now() - ($1 + 1) * interval '1 day') as attempts,
       (select count(*) from partitions_of('journal') p
        left join old_days o on o.day = (p.from_at at time zone 'UTC')::date
        where not p.is_default and p.below_at <= now() - ($2 + 1) * interval '1 day'
          and (o.day is null or o.look_again_at < now() - interval '1 day')) as events,
       (select count(*) from old_days o where o.swept_at is null and o.pruned_at < now() - interval '1 day') as unswept;

-- name: let_go_of_endpoint_secrets
-- parameters: batch integer, grace seconds
-- index: deliveries_of_endpoint
-- A previous secret whose overlap is over, and both of an endpoint that was removed and is owed nothing: nothing is sent
-- to it again. Should it be owed something later (a void event that came back), the reaper buries that unsent.
with over as materialized (
    select e.id, r.removed from endpoints e
    cross join lateral (
        select coalesce(e.removed_at < now() - $2::double precision * interval '1 second', false)
               and not exists (select from deliveries d
                               where d.endpoint_id = e.id and d.status in ('pending', 'in_flight')) as removed
        offset 0
    ) r
    where e.previous_secret_expires_at < now() - $2::double precision * interval '1 second'
       or (e.secret_id is not null and r.removed)
    limit $1
    for no key update of e skip locked
)
update endpoints e
set previous_secret_id = null, previous_secret_expires_at = null,
    secret_id = case when not o.removed then e.secret_id end
from over o where e.id = o.id
returning e.id;

-- name: let_go_of_source_secrets
-- parameters: batch integer, grace seconds
-- index:
-- Likewise: a source that was removed is refused at once.
with over as materialized (
    select s.id from sources s
    where s.previous_secret_expires_at < now() - $2::double precision * interval '1 second'
       or ((s.secret_id is not null or s.previous_secret_id is not null)
           and s.removed_at < now() - $2::double precision * interval '1 second')
    limit $1
    for no key update skip locked
)
update sources s
set previous_secret_id = null, previous_secret_sha256 = null, previous_secret_expires_at = null,
    secret_id = case when s.removed_at is null then s.secret_id end
from over o where s.id = o.id
returning s.id;

-- name: forget_secrets
-- parameters: batch integer, grace seconds
-- index: secrets_pkey, endpoints_secret, endpoints_previous_secret, sources_secret_id, sources_previous_secret
-- Those that nothing refers to. A secret is written in the transaction of what refers to it, and nothing ever refers to
-- an older one anew: so it stays unneeded, and the foreign keys prove it.
with unneeded as materialized (
    select s.id from secrets s
    where s.created_at < now() - $2::double precision * interval '1 second'
      and not exists (select from endpoints e where e.secret_id = s.id)
      and not exists (select from endpoints e where e.previous_secret_id = s.id)
      and not exists (select from sources c where c.secret_id = s.id)
      and not exists (select from sources c where c.previous_secret_id = s.id)
    limit $1
    for update skip locked
)
delete from secrets s using unneeded u where s.id = u.id
returning s.id;
