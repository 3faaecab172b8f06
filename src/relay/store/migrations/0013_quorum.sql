-- The quorum: an event that was committed here and could not be proved to be on enough machines in time is void. Its
-- sender was told so; nothing of it is delivered or shown, its position stays taken, and a request of the same name
-- makes it count after all.
alter table receipts add column void_at timestamptz;
alter table receipts add constraint receipts_void_check
    check (void_at is null or (outcome is null and unrouted_at is null)) not valid;
alter table receipts validate constraint receipts_void_check;

-- Which transaction made a delivery owed, where that is not the one that wrote its event: a proof of the event does not
-- prove that.
alter table deliveries add column owed_by xid8;

-- The standbys that commits wait for, by their names, and what each of them has on disk. A name counts once, however
-- many clients call themselves so. Only who is in pg_monitor sees the last column.
create view listed_standbys as
select lower(s.application_name) as name, max(s.flush_lsn) as flushed
from pg_stat_replication s
where s.state = 'streaming' and s.sync_priority > 0
group by lower(s.application_name);

create or replace view shown_deliveries as
select d.id, d.receipt_id, d.endpoint_id, d.tenant, e.name as consumer, d.status::text as status, d.attempts, d.acked_at,
       d.due_at, d.generation, d.dead_reason::text as dead_reason, d.dead_at, d.last_error, d.received_at, d.redriven_at,
       d.discarded_at, e.status::text as endpoint_status, s.held_until > now() as lane_held, s.held_reason, s.held_until
from deliveries d
join endpoints e on e.id = d.endpoint_id
join endpoint_state s on s.endpoint_id = d.endpoint_id
where d.status <> 'void';

-- The deliveries of these receipts, found one receipt after the other by what their ids have in common with its own,
-- whatever the planner thinks of ranges.
create function deliveries_of(p_receipts uuid[]) returns uuid[] language sql stable as $$
    select array(
        select d.id from unnest(p_receipts) as v (id)
        cross join lateral (
            select d0.id from deliveries d0
            where d0.id between overlay(v.id::text placing '00000000' from 29)::uuid
                            and overlay(v.id::text placing 'ffffffff' from 29)::uuid
              and d0.receipt_id = v.id
            offset 0
        ) d
    )
$$;

-- Declare events void, unless they can be found on the quorum after all. `p_log_from` is a place in the log before the
-- end of each one's transaction and `p_timeline` that of the log, `p_standbys` how many standbys are needed, `p_names`
-- which count; `p_promise` is the server's list of standbys as it was when it still promised the quorum, null if it does
-- not: else what is found now proves nothing. Answers one row for each: `void`, nothing of it was or will be sent;
-- `confirmed`, it is on the quorum; or `unknown`, it may be, and stays as it is.
-- Whoever acts on a proof, a dispatcher that sends or a gateway that answers a request of the same name, has asked the
-- standbys before. Here the rows are locked first and the standbys asked then, so it has either been seen to be right, or
-- finds its lease or the receipt gone. What a standby had on disk when it was cut off is read from its replication slot,
-- if the slot bears its name: somebody may have seen it, and it proves nothing here, since any client may use a slot.
create function void_events(
    p_receipts uuid[], p_log_from pg_lsn, p_timeline bigint, p_standbys integer, p_names text[], p_promise text
) returns table (receipt uuid, result text) language plpgsql as $$
#variable_conflict use_column
declare
    promised boolean := coalesce(p_promise = current_setting('synchronous_standby_names'), false);
    timeline bigint := ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
    certain integer;
    possible integer;
    owed uuid[] := deliveries_of(p_receipts);
    voided uuid[];
begin
    perform from deliveries d where d.id = any (owed) order by d.id for no key update of d;
    perform from receipts r where r.id = any (p_receipts) order by r.id for no key update;

    select count(*) into certain from listed_standbys l where l.flushed >= pg_current_wal_flush_lsn();
    select count(*) into possible
    from (select s.name, max(s.flushed) as flushed
          from (select l.name, l.flushed from listed_standbys l
                union all
                select lower(w.application_name), w.flush_lsn from pg_stat_replication w where not promised
                union all
                select t.slot_name::text, t.restart_lsn from pg_replication_slots t
                where t.slot_type = 'physical' and t.slot_name = any (p_names)) s
          group by s.name) k
    where k.flushed > p_log_from;

    if timeline = p_timeline and possible < p_standbys then
        -- nobody can have seen a quorum for these
        voided := array(
            select r.id from receipts r
            where r.id = any (p_receipts) and r.outcome is null and r.routed_at is null
            except
            select d.receipt_id from deliveries d where d.id = any (owed) and d.status in ('delivered', 'dead')
        );
        update deliveries d
        set status = 'void', lease_token = null, lease_until = null, attempts = 0, generation_attempts = 0,
            generation_started_at = null
        where d.id = any (owed) and d.receipt_id = any (voided);
        update receipts r set void_at = now(), unrouted_at = null where r.id = any (voided);
    end if;
    return query
        -- what only a lost primary had is not on this server, however far its standbys are
        select v.id, case when r.id is null or v.id = any (voided) then 'void'
                          when timeline = p_timeline and promised and certain >= p_standbys then 'confirmed'
                          else 'unknown' end
        from unnest(p_receipts) as v (id) left join receipts r on r.id = v.id;
end $$;

-- Make void events count again; answers which of these were void.
create function revive_events(p_receipts uuid[]) returns uuid[] language plpgsql as $$
declare
    owed uuid[];
    revived uuid[];
begin
    if not exists (select from receipts r where r.id = any (p_receipts) and r.void_at is not null) then
        return '{}';
    end if;
    owed := deliveries_of(p_receipts);
    perform from deliveries d where d.id = any (owed) order by d.id for no key update of d;
    perform from receipts r where r.id = any (p_receipts) order by r.id for no key update;
    with again as (
        update receipts r set void_at = null, unrouted_at = case when r.expected = 0 then now() end
        where r.id = any (p_receipts) and r.void_at is not null
        returning r.id
    )
    select coalesce(array_agg(a.id), '{}') into revived from again a;
    update deliveries d set status = 'pending', due_at = now(), owed_by = pg_current_xact_id()
    where d.id = any (owed) and d.receipt_id = any (revived) and d.status = 'void';
    return revived;
end $$;

-- The append as before (see 0006_history), which now revives a void event that is sent again under its name, and
-- answers two things more: which event a replay or a revival is about, and a place in the log before the end of this
-- transaction.
drop function append_events(
    bigint, bigint, bigint, double precision, uuid[], date[], smallint[], text[], text[], text[], text[], text[],
    timestamptz[], text[], bytea[], bytea[], text[], smallint[], integer[], integer[], integer[], text[], bytea[],
    bytea[], bytea[], integer[], uuid[], uuid[], uuid[]);
create function append_events(
    p_rules bigint, p_credentials bigint, p_schemas bigint, p_key_seconds double precision,
    e_receipt uuid[], e_day date[], e_partition smallint[], e_tenant text[], e_source text[], e_event_id text[],
    e_type text[], e_schema text[], e_received timestamptz[], e_content_type text[], e_payload bytea[],
    e_sha256 bytea[], e_forwarded text[], e_hops smallint[], e_checked_us integer[], e_assigned_us integer[],
    e_fanout integer[],
    k_key text[], k_fingerprint bytea[], k_head bytea[], k_tail bytea[],
    d_event integer[], d_id uuid[], d_receipt uuid[], d_endpoint uuid[]
) returns table (
    ordinal integer, result text, number bigint, answer_head bytea, answer_tail bytea, receipt uuid, log_from pg_lsn
)
language plpgsql as $$
#variable_conflict use_column
declare
    taken integer[] := '{}';
    revived uuid[] := '{}';
    firsts bigint[] := array_fill(0::bigint, array[16]);
    numbers bigint[];
    first bigint;
    head record;
begin
    if not exists (select from versions v
                   where v.rules = p_rules and v.credentials = p_credentials and v.schemas = p_schemas) then
        return query select 0, 'stale'::text, null::bigint, null::bytea, null::bytea, null::uuid, null::pg_lsn;
        return;
    end if;

    if array_length(array_remove(k_key, null), 1) > 0 then
        with wanted as materialized (
            select k.o::integer as o, k.tenant, k.source, k.key, k.fingerprint, k.receipt, k.day, k.head, k.tail
            from unnest(e_tenant, e_source, k_key, k_fingerprint, e_receipt, e_day, k_head, k_tail) with ordinality
                as k (tenant, source, key, fingerprint, receipt, day, head, tail, o)
            where k.key is not null
            order by k.tenant, k.source, k.key
        ), claimed as (
            insert into idempotency_keys as i
                (tenant, source, key, fingerprint, receipt_id, journal_day, answer_head, answer_tail, expires_at)
            select w.tenant, w.source, w.key, w.fingerprint, w.receipt, w.day, w.head, w.tail,
                   now() + p_key_seconds * interval '1 second'
            from wanted w order by w.tenant, w.source, w.key
            on conflict (tenant, source, key) do update
                set fingerprint = excluded.fingerprint, receipt_id = excluded.receipt_id,
                    journal_day = excluded.journal_day, answer_head = excluded.answer_head,
                    answer_tail = excluded.answer_tail, expires_at = excluded.expires_at
                where i.expires_at <= now()
            returning i.receipt_id
        )
        select coalesce(array_agg(w.o), '{}') into taken
        from wanted w where not exists (select from claimed c where c.receipt_id = w.receipt);

        if taken <> '{}' then
            revived := revive_events(array(
                select i.receipt_id
                from unnest(e_tenant, e_source, k_key, k_fingerprint) with ordinality
                    as w (tenant, source, key, fingerprint, o)
                join idempotency_keys i on i.tenant = w.tenant and i.source = w.source and i.key = w.key
                where w.o = any (taken) and i.fingerprint = w.fingerprint
            ));
            return query
                select w.o::integer,
                       case when i.fingerprint <> w.fingerprint then 'conflict'
                            when i.receipt_id = any (revived) then 'revived' else 'replayed' end,
                       j.number, i.answer_head, i.answer_tail, i.receipt_id, pg_current_wal_insert_lsn()
                from unnest(e_tenant, e_source, k_key, k_fingerprint) with ordinality
                    as w (tenant, source, key, fingerprint, o)
                join idempotency_keys i on i.tenant = w.tenant and i.source = w.source and i.key = w.key
                left join journal j on j.day = i.journal_day and j.receipt_id = i.receipt_id
                where w.o = any (taken);
            if cardinality(taken) = cardinality(e_receipt) then
                return;
            end if;
        end if;
    end if;

    insert into deliveries (id, receipt_id, endpoint_id, tenant, journal_day, due_at)
    select d.id, d.receipt, d.endpoint, e.tenant, e.day, now()
    from unnest(d_event, d_id, d_receipt, d_endpoint) as d (event, id, receipt, endpoint)
    join unnest(e_tenant, e_day) with ordinality as e (tenant, day, o) on e.o = d.event
    where e.o <> all (taken);

    insert into receipts (id, tenant, journal_day, event_id, type, rules_version, expected, reason, unrouted_at)
    select e.receipt, e.tenant, e.day, e.event_id, e.type, p_rules, e.fanout,
           case when e.fanout = 0 then 'no_route'::dead_reason end, case when e.fanout = 0 then now() end
    from unnest(e_receipt, e_tenant, e_day, e_event_id, e_type, e_fanout) with ordinality
        as e (receipt, tenant, day, event_id, type, fanout, o)
    where e.o <> all (taken);

    for head in
        select e.partition, count(*) as events
        from unnest(e_partition) with ordinality as e (partition, o)
        where e.o <> all (taken) group by e.partition order by e.partition
    loop
        update journal_heads h set next_number = h.next_number + head.events
        where h.partition = head.partition
        returning h.next_number - head.events into first;
        firsts[head.partition + 1] := first;
    end loop;

    select array_agg(case when e.o <> all (taken) then firsts[e.partition + 1] + e.place - 1 end order by e.o)
    into numbers
    from (select x.o, x.partition,
                 count(*) filter (where x.o <> all (taken)) over (partition by x.partition order by x.o) as place
          from unnest(e_partition) with ordinality as x (partition, o)) e;

    insert into journal (day, receipt_id, partition, number, tenant, source, event_id, type, schema, received_at,
                         content_type, payload, payload_sha256, forwarded, hops, checked_us, assigned_us)
    select e.day, e.receipt, e.partition, e.number, e.tenant, e.source, e.event_id, e.type, e.schema, e.received,
           e.content_type, e.payload, e.sha256, e.forwarded::jsonb, e.hops, e.checked_us, e.assigned_us
    from unnest(e_receipt, e_day, e_partition, numbers, e_tenant, e_source, e_event_id, e_type, e_schema, e_received,
                e_content_type, e_payload, e_sha256, e_forwarded, e_hops, e_checked_us, e_assigned_us)
        as e (receipt, day, partition, number, tenant, source, event_id, type, schema, received,
              content_type, payload, sha256, forwarded, hops, checked_us, assigned_us)
    where e.number is not null;

    return query
        select n.o::integer, 'appended'::text, n.number, null::bytea, null::bytea, null::uuid,
               pg_current_wal_insert_lsn()
        from unnest(numbers) with ordinality as n (number, o) where n.number is not null;
end $$;
