-- Who changed what, and who sent again or gave up what. A row is written in the transaction of its change, so there is one
-- exactly where the change is. It holds no secret, and no value that might be one.
create table audit (
    id uuid primary key,
    at timestamptz not null default now(),
    -- whose the changed thing is
    tenant text not null,
    -- the credential that asked for it, and the tenant that it is of: an operator's is another one
    actor text not null check (actor <> ''),
    actor_tenant text not null,
    action text not null,
    -- the id of the changed thing as users see it, null where the change was of many; and its name, where it has one
    subject text,
    name text,
    -- [{"field", "hidden", "old", "new"}]: what was changed of it, and whatever else tells what was done
    changes jsonb not null default '[]',
    details jsonb not null default '{}'
);
create index audit_page on audit (tenant, at, id);
create index audit_of_all on audit (at, id);

create function refuse_rewriting() returns trigger language plpgsql as $$
begin
    raise exception 'the audit is appended to, and never changed';
end
$$;
create trigger audit_is_appended_to before update or delete or truncate on audit
    for each statement execute function refuse_rewriting();
