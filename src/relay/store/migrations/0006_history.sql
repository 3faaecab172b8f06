-- History: what lists walk, what re-drives and discards write down, and the names of such requests.
--
-- Nothing here may cost the two hot paths more than an insert: no index, in its key or its predicate, is on a column of
-- `receipts` that a closing update changes (`acked`, `outcome`, `closed_at`), so those stay HOT.

-- `unrouted_at`: since when the event waits for a person because no rule matched it; null once it was routed anew or
-- given up.
alter table receipts add column unrouted_at timestamptz;
update receipts set unrouted_at = to_timestamp(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
where reason = 'no_route' and outcome is null;

create index receipts_page on receipts (tenant, id);
create index receipts_type on receipts (tenant, type, id);
-- An event id that Relay made is the receipt's own id under another prefix, and needs no index to be found.
create index receipts_event on receipts (tenant, event_id, id) where event_id <> 'evt_' || replace(id::text, '-', '');
create index receipts_unrouted on receipts (tenant, unrouted_at, id) where unrouted_at is not null;
create index receipts_unrouted_page on receipts (tenant, id) where unrouted_at is not null;

-- `redriven_at`: when it was last sent again on demand. `discarded_at`: when a person gave this dead letter up.
alter table deliveries add column redriven_at timestamptz, add column discarded_at timestamptz,
    add check (discarded_at is null or status = 'dead');

create index deliveries_of_endpoint on deliveries (endpoint_id, status, id);
-- What keeps a receipt open. A receipt's deliveries are neighbours here too: a walk may skip from receipt to receipt.
create index deliveries_owed on deliveries (tenant, id)
    where status in ('pending', 'in_flight', 'dead') and discarded_at is null;
drop index deliveries_dead;
create index deliveries_dead on deliveries (tenant, dead_at, id) where status = 'dead' and discarded_at is null;
create index deliveries_dead_reason on deliveries (tenant, dead_reason, dead_at, id)
    where status = 'dead' and discarded_at is null;
create index deliveries_dead_endpoint on deliveries (endpoint_id, dead_at, id)
    where status = 'dead' and discarded_at is null;

-- Deliveries with what is known of their lanes. Whether `void` ones are read as well is up to the statement.
create view shown_deliveries as
select d.id, d.receipt_id, d.endpoint_id, d.tenant, e.name as consumer, d.status::text as status, d.attempts, d.acked_at,
       d.due_at, d.generation, d.dead_reason::text as dead_reason, d.dead_at, d.last_error, d.received_at, d.redriven_at,
       d.discarded_at, e.status::text as endpoint_status, s.held_until > now() as lane_held, s.held_reason, s.held_until
from deliveries d
join endpoints e on e.id = d.endpoint_id
join endpoint_state s on s.endpoint_id = d.endpoint_id;

-- A name outlives its endpoint: what was owed to one that is removed is still found by it.
create index endpoints_every_name on endpoints (tenant, name);

-- The names of requests that re-drive or discard, with the answers that their repetitions get. A row is claimed, the
-- change made and the answer kept in one transaction, so `status` and `answer` are null only inside it.
create table request_keys (
    tenant text not null,
    key text not null,
    fingerprint bytea not null,
    status smallint,
    answer bytea,
    expires_at timestamptz not null,
    primary key (tenant, key)
);
create index request_keys_expiry on request_keys (expires_at);

-- The append as before (see 0002), which now says since when an event that matches no rule waits.
create or replace function append_events(
    p_rules bigint, p_credentials bigint, p_schemas bigint, p_key_seconds double precision,
    e_receipt uuid[], e_day date[], e_partition smallint[], e_tenant text[], e_source text[], e_event_id text[],
    e_type text[], e_schema text[], e_received timestamptz[], e_content_type text[], e_payload bytea[],
    e_sha256 bytea[], e_forwarded text[], e_hops smallint[], e_checked_us integer[], e_assigned_us integer[],
    e_fanout integer[],
    k_key text[], k_fingerprint bytea[], k_head bytea[], k_tail bytea[],
    d_event integer[], d_id uuid[], d_receipt uuid[], d_endpoint uuid[]
) returns table (ordinal integer, result text, number bigint, answer_head bytea, answer_tail bytea)
language plpgsql as $$
#variable_conflict use_column
declare
    taken integer[] := '{}';
    firsts bigint[] := array_fill(0::bigint, array[16]);
    numbers bigint[];
    first bigint;
    head record;
begin
    if not exists (select from versions v
                   where v.rules = p_rules and v.credentials = p_credentials and v.schemas = p_schemas) then
        return query select 0, 'stale'::text, null::bigint, null::bytea, null::bytea;
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
            return query
                select w.o::integer, case when i.fingerprint = w.fingerprint then 'replayed' else 'conflict' end,
                       j.number, i.answer_head, i.answer_tail
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
        select n.o::integer, 'appended'::text, n.number, null::bytea, null::bytea
        from unnest(numbers) with ordinality as n (number, o) where n.number is not null;
end $$;
