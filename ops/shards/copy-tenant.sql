-- Prints a script that makes a tenant in another database of the same version as it is in this one: itself, its endpoints with
-- the state of their lanes, their secrets as they are sealed, its sources, keys and schemas. Events and receipts stay.
--
--   psql "$FROM" --no-psqlrc -qAt -v tenant=acct_acme -f ops/shards/copy-tenant.sql | psql "$TO" --no-psqlrc -q
--
-- It says "acct_acme was copied" when it was. Whatever is wrong (something is still owed, a name is taken there, a secret is
-- sealed under a key that is not known there) ends one of the two with its reason and leaves nothing. So does a pipe that is
-- cut off, with no reason: the script brings its own `begin` and, as its last line, its `commit`. That is why the second
-- psql must not be given `-1`, which commits whatever came before the end: there the script refuses to run.
\set ON_ERROR_STOP on
begin isolation level repeatable read read only;
select set_config('relay.tenant', :'tenant', true) as tenant \gset
do $$ begin
    if not exists (select from tenants t where t.id = current_setting('relay.tenant') and t.removed_at is null) then
        raise exception 'there is no tenant %', current_setting('relay.tenant');
    end if;
    if exists (select from deliveries d
               where d.tenant = current_setting('relay.tenant') and d.status in ('pending', 'in_flight')) then
        raise exception '% is still owed deliveries here: wait until they have arrived, or discard them',
            current_setting('relay.tenant');
    end if;
end $$;

\echo '\\set ON_ERROR_STOP on'
-- it is refused within a transaction, which this script would then not be the one to end
\echo 'discard all;'
\echo 'begin;'
select format('do $check$ begin if (select max(number) from schema_migrations) <> %s then
    raise exception ''the two databases are of different versions: migrate both''; end if; end $check$;', max(m.number))
from schema_migrations m;
select 'update versions set rules = rules + 1, credentials = credentials + 1, schemas = schemas + 1;';

\echo 'copy tenants from stdin;'
copy (select * from tenants where id = :'tenant') to stdout;
\echo '\\.'
\echo 'copy secrets from stdin;'
copy (
    select * from secrets where id in (
        select unnest(array[secret_id, previous_secret_id]) from endpoints where tenant = :'tenant' and removed_at is null
        union all
        select unnest(array[secret_id, previous_secret_id]) from sources where tenant = :'tenant' and removed_at is null
    )
) to stdout;
\echo '\\.'
\echo 'copy endpoints from stdin;'
copy (select * from endpoints where tenant = :'tenant' and removed_at is null) to stdout;
\echo '\\.'
\echo 'copy endpoint_state (endpoint_id, breaker, failures, trips, opened_at, cooldown_until, tokens, tokens_at, held_until, held_reason, answered_at) from stdin;'
copy (
    -- what was probed here is probed anew there; what was claimed here says nothing of what is owed there
    select s.endpoint_id, case when s.breaker = 'half_open' then 'open' else s.breaker end, s.failures, s.trips, s.opened_at,
           s.cooldown_until, s.tokens, s.tokens_at, s.held_until, s.held_reason, s.answered_at
    from endpoint_state s join endpoints e on e.id = s.endpoint_id
    where e.tenant = :'tenant' and e.removed_at is null
) to stdout;
\echo '\\.'
\echo 'copy sources from stdin;'
copy (select * from sources where tenant = :'tenant' and removed_at is null) to stdout;
\echo '\\.'
\echo 'copy keys from stdin;'
copy (
    -- who operates one shard does not operate the other by it
    select * from keys where tenant = :'tenant' and revoked_at is null and not 'operator' = any (scopes)
) to stdout;
\echo '\\.'
\echo 'copy schemas from stdin;'
copy (select * from schemas where tenant = :'tenant') to stdout;
\echo '\\.'

select 'do $check$ begin if exists (select from secrets s where not exists (
    select from key_marks m where m.key_id = s.key_id and m.retired_at is null)) then
    raise exception ''a secret is sealed under a key that this database does not know: give its processes the same RELAY_SECRET_KEYS'';
end if; end $check$;';
select format('commit; \echo %s was copied', :'tenant');
commit;
