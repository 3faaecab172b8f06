-- Endpoints: their configuration and secrets. Every statement that serves a user names the tenant.

-- name: insert_endpoint
-- parameters: id, tenant, name, url, transport, event_types, rate_per_second, burst, max_in_flight, timeout_seconds,
--             retry, ack, signature, headers, secret id, credential
-- index: endpoints_name
with made as (
    insert into endpoints (id, tenant, name, url, transport, event_types, rate_per_second, burst, max_in_flight,
                           timeout_seconds, retry, ack, signature, headers, secret_id, credential)
    values ($1, $2, $3, $4, $5::text::transport, $6, $7, $8, $9, $10, $11::text::jsonb, $12::text::ack_mode,
            $13::text::signature_profile, $14::text::jsonb, $15, $16)
    returning *
), state as (
    insert into endpoint_state (endpoint_id) select m.id from made m
)
select m.*, null::text as lane_closed_by, null::timestamptz as lane_opens_at from made m;

-- name: insert_secret
-- parameters: id, ciphertext, key id
-- index: secrets_pkey
insert into secrets (id, ciphertext, key_id) values ($1, $2, $3);

-- name: bump_rules
-- parameters: endpoint id
-- index: versions_pkey, rule_changes_pkey
-- Every gateway's snapshot is stale from the commit of this transaction on. The newest ten thousand changes are kept.
with bumped as (
    update versions set rules = rules + 1 returning rules
), forgotten as (
    delete from rule_changes c using bumped b where c.version = b.rules - 10000
)
insert into rule_changes (version, endpoint_id) select b.rules, $1 from bumped b;

-- name: get_endpoint
-- parameters: tenant, id
-- index: endpoints_page
select e.*, e.lane_closed_by, e.lane_opens_at from endpoints e
where e.tenant = $1 and e.id = $2 and e.removed_at is null;

-- name: lock_endpoint
-- parameters: tenant, id
-- index: endpoints_page
select e.*, e.lane_closed_by, e.lane_opens_at from endpoints e
where e.tenant = $1 and e.id = $2 and e.removed_at is null for no key update;

-- name: list_endpoints
-- parameters: tenant, before id, limit
-- index: endpoints_page
-- Newest first.
select e.*, e.lane_closed_by, e.lane_opens_at from endpoints e
where e.tenant = $1 and e.id < $2 and e.removed_at is null
order by e.id desc limit $3;

-- name: update_endpoint
-- parameters: tenant, id, name, url, event_types, rate_per_second, burst, max_in_flight, timeout_seconds, retry, ack,
--             signature, headers
-- index: endpoints_page
update endpoints e
set name = $3, url = $4, event_types = $5, rate_per_second = $6, burst = $7, max_in_flight = $8, timeout_seconds = $9,
    retry = $10::text::jsonb, ack = $11::text::ack_mode, signature = $12::text::signature_profile,
    headers = $13::text::jsonb, revision = e.revision + 1, updated_at = now()
where e.tenant = $1 and e.id = $2 and e.removed_at is null
returning e.*, e.lane_closed_by, e.lane_opens_at;

-- name: lock_lane
-- parameters: tenant, id
-- index: endpoint_state_pkey
-- Before its endpoint is locked, like whoever closes it.
select from endpoint_state s
where s.endpoint_id = $2 and exists (select from endpoints e where e.id = $2 and e.tenant = $1)
for no key update;

-- name: open_lane
-- parameters: tenant, id
-- index: endpoint_state_pkey
-- A person opens the lane: nothing holds it from now on, a breaker lets the next delivery probe (unless one does), and
-- what waited was not late before.
update endpoint_state s
set held_until = now(), cooldown_until = case when s.breaker = 'open' then now() else s.cooldown_until end
where s.endpoint_id = $2 and exists (select from endpoints e where e.id = $2 and e.tenant = $1);

-- name: renew_lane
-- parameters: tenant, id
-- index: endpoint_state_pkey
-- The lane leads to another place, of which nothing is known yet. What is under way to the old one has no say.
update endpoint_state s
set held_until = now(), breaker = 'closed', failures = 0, trips = 0, opened_at = now(), cooldown_until = now(),
    probe_token = null, probe_until = null, answered_at = null
where s.endpoint_id = $2 and exists (select from endpoints e where e.id = $2 and e.tenant = $1);

-- name: longest_timeouts
-- parameters: seconds
-- index:
-- Endpoints that want more time than that, the first few.
select e.name from endpoints e where e.timeout_seconds > $1 and e.removed_at is null order by e.name limit 10;

-- name: set_endpoint_status
-- parameters: tenant, id, status, reason
-- index: endpoints_page
update endpoints e
set status = $3::text::endpoint_status, status_reason = $4, revision = e.revision + 1, updated_at = now()
where e.tenant = $1 and e.id = $2 and e.removed_at is null
returning e.*, e.lane_closed_by, e.lane_opens_at;

-- name: rotate_secret
-- parameters: tenant, id, new secret id, overlap seconds, credential
-- index: endpoints_page
-- The secret in force becomes the previous one; one that was previous already is dropped.
update endpoints e
set secret_id = $3, previous_secret_id = e.secret_id, credential = $5,
    previous_secret_expires_at = now() + $4 * interval '1 second', revision = e.revision + 1, updated_at = now()
where e.tenant = $1 and e.id = $2 and e.removed_at is null
returning e.*, e.lane_closed_by, e.lane_opens_at;

-- name: remove_endpoint
-- parameters: tenant, id
-- index: endpoints_page
update endpoints e
set removed_at = now(), revision = e.revision + 1, updated_at = now()
where e.tenant = $1 and e.id = $2 and e.removed_at is null
returning e.id, e.tenant, e.name;

-- name: destinations
-- parameters: ids uuid[]
-- index: endpoints_pkey
-- For the dispatcher, which sends for all tenants. A previous secret whose overlap is over is left out: the key that
-- it was encrypted under may be gone by then.
select e.id, e.tenant, e.revision, e.name, e.url, e.transport::text as transport, e.signature::text as signature,
       e.ack::text as ack, e.headers, e.retry, e.timeout_seconds, e.secret_id, s.ciphertext,
       p.id as previous_secret_id, p.ciphertext as previous_ciphertext
from endpoints e
join secrets s on s.id = e.secret_id
left join secrets p on p.id = e.previous_secret_id and e.previous_secret_expires_at > now()
where e.id = any ($1::uuid[]);

-- name: list_rules
-- parameters: after id, limit
-- index: endpoints_pkey
-- For a gateway, which routes the events of all tenants. Removed endpoints want nothing: null.
select e.id, e.tenant, e.name, case when e.removed_at is null then e.event_types end as patterns from endpoints e
where e.id > $1 order by e.id limit $2;

-- name: changed_rules
-- parameters: known rules version, its mark, known credentials version
-- index: versions_pkey, rule_changes_pkey, endpoints_pkey
-- The versions of this moment, and what changed since the known ones: the rules that are other ones by now, null where
-- not every change since is on record (`follows` is false then); the tenants, null while the credentials are the same.
with now_is as materialized (
    select v.rules, v.credentials, v.schemas,
           (select c.mark from rule_changes c where c.version = v.rules) as mark,
           coalesce((select c.mark from rule_changes c where c.version = $1) is not distinct from $2::uuid
                    and (select count(*) from rule_changes c where c.version > $1 and c.version <= v.rules)
                        = v.rules - $1::bigint, false) as follows
    from versions v
)
select n.rules, n.credentials, n.schemas, n.mark, n.follows,
       case when n.credentials is distinct from $3::bigint
            then (select jsonb_agg(jsonb_build_array(t.id, t.partition)) from tenants t)::text end as tenants,
       case when n.follows then (
           select jsonb_agg(jsonb_build_array(e.id, e.tenant, e.name, e.patterns))
           from (select distinct c.endpoint_id from rule_changes c where c.version > $1) c
           cross join lateral (
               select e0.id, e0.tenant, e0.name, case when e0.removed_at is null then e0.event_types end as patterns
               from endpoints e0 where e0.id = c.endpoint_id offset 0
           ) e
       )::text end as changes
from now_is n;
