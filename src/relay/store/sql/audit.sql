-- The audit: appended to in the transaction of each change, and read. Its table refuses everything else.

-- name: insert_audit_entry
-- parameters: id, tenant, actor, actor's tenant, action, subject, name, changes, details
-- index: audit_pkey
-- Its instant is that of the change, which has the lock of what it changes by now, and not of the transaction's start:
-- changes of one thing are listed in the order in which they happened.
insert into audit (id, at, tenant, actor, actor_tenant, action, subject, name, changes, details)
values ($1, clock_timestamp(), $2, $3, $4, $5, $6, $7, $8::text::jsonb, $9::text::jsonb);

-- name: walk_audit
-- parameters: tenant, before at, before id, since, rows to look at, most, actor, action, subject
-- index: audit_page
-- A stretch of the list, newest first: what of it is wanted, each row with where the stretch ended; one row of nulls if
-- nothing is. It ended at the end of the list where that is null.
with stretch as materialized (
    select a.id, a.at, a.tenant, a.actor, a.actor_tenant, a.action, a.subject, a.name, a.changes, a.details
    from audit a
    where a.tenant = $1 and (a.at, a.id) < ($2, $3) and a.at >= $4
    order by a.at desc, a.id desc limit $5::bigint
), ended as (
    select s.at, s.id from stretch s where (select count(*) from stretch) = $5::bigint order by s.at, s.id limit 1
), wanted as (
    select s.* from stretch s
    where ($7::text is null or s.actor = $7) and ($8::text is null or s.action = $8)
      and ($9::text is null or s.subject = $9)
    order by s.at desc, s.id desc limit $6::bigint
)
select e.at as floor_at, e.id as floor_id, w.*
from (values (1)) as one (row) left join ended e on true left join wanted w on true
order by w.at desc, w.id desc;

-- name: walk_audit_of_all
-- parameters: before at, before id, since, rows to look at, most, actor, action, subject
-- index: audit_of_all
-- For an operator: such a stretch of all tenants' list.
with stretch as materialized (
    select a.id, a.at, a.tenant, a.actor, a.actor_tenant, a.action, a.subject, a.name, a.changes, a.details
    from audit a
    where (a.at, a.id) < ($1, $2) and a.at >= $3
    order by a.at desc, a.id desc limit $4::bigint
), ended as (
    select s.at, s.id from stretch s where (select count(*) from stretch) = $4::bigint order by s.at, s.id limit 1
), wanted as (
    select s.* from stretch s
    where ($6::text is null or s.actor = $6) and ($7::text is null or s.action = $7)
      and ($8::text is null or s.subject = $8)
    order by s.at desc, s.id desc limit $5::bigint
)
select e.at as floor_at, e.id as floor_id, w.*
from (values (1)) as one (row) left join ended e on true left join wanted w on true
order by w.at desc, w.id desc;
