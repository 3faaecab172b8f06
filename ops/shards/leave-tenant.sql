-- Ends a tenant's keys, sources and endpoints in the database that it has left, once it was copied and its requests go to the
-- other one. What it was sent and what became of that stays to be read by an operator until retention removes it.
--
--   psql "$FROM" --no-psqlrc -q1 -v tenant=acct_acme -f ops/shards/leave-tenant.sql
--
-- Nothing changes while it is still owed something here: an event may have come after the copy, and is delivered first. Each
-- append reads `versions` before anything else, so who has that table alone has no append under way, and those that come
-- next find its keys revoked. Beside a long read of it (a dump) this is refused within seconds: run it again later.
\set ON_ERROR_STOP on
do $$ begin perform lock_alone(array['versions'::regclass]); end $$;
update versions set rules = rules + 1, credentials = credentials + 1, schemas = schemas + 1;
select set_config('relay.tenant', :'tenant', true) as tenant \gset
do $$ begin
    if exists (select from deliveries d
               where d.tenant = current_setting('relay.tenant') and d.status in ('pending', 'in_flight')) then
        raise exception '% is still owed deliveries here: wait until they have arrived', current_setting('relay.tenant');
    end if;
end $$;
update keys set revoked_at = now()
where tenant = :'tenant' and revoked_at is null and not 'operator' = any (scopes);
update sources set removed_at = now() where tenant = :'tenant' and removed_at is null;
update endpoints set removed_at = now(), revision = revision + 1, updated_at = now()
where tenant = :'tenant' and removed_at is null;
