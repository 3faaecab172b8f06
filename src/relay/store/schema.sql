-- What the migrations produce, in order of kind and name. Written by `make schema`, compared by a test, never run.
-- Day partitions are left out: there is one of each kind per UTC day.

CREATE TYPE public.ack_mode AS ENUM (
    'response',
    'explicit'
);

CREATE TYPE public.breaker_status AS ENUM (
    'closed',
    'open',
    'half_open'
);

CREATE TYPE public.dead_reason AS ENUM (
    'exhausted',
    'permanent_failure',
    'refused',
    'no_route',
    'too_large',
    'endpoint_removed'
);

CREATE TYPE public.delivery_status AS ENUM (
    'pending',
    'in_flight',
    'delivered',
    'dead',
    'void'
);

CREATE TYPE public.endpoint_status AS ENUM (
    'active',
    'paused',
    'disabled'
);

CREATE TYPE public.outcome_class AS ENUM (
    'success',
    'retryable',
    'permanent',
    'deferred'
);

CREATE TYPE public.receipt_outcome AS ENUM (
    'delivered',
    'delivered_after_redrive',
    'closed_incomplete',
    'expired'
);

CREATE TYPE public.signature_profile AS ENUM (
    'relay',
    'standard',
    'stripe',
    'github',
    'none'
);

CREATE TYPE public.transport AS ENUM (
    'http',
    'telegram',
    'discord'
);

CREATE FUNCTION public.ack_deliveries(p_tenant text[], p_receipt uuid[], p_delivery uuid[], p_consumer text[]) RETURNS TABLE(place integer, delivery_id uuid, endpoint_id uuid, consumer text, acked_at timestamp with time zone, is_new boolean, outcome public.receipt_outcome, closed boolean)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    places integer[];
    wanted uuid[];
    newly_acked uuid[];
    of_receipts uuid[];
    given_up integer[];
    held_receipts uuid[];
    held_outcomes receipt_outcome[];
begin
    select array_agg(w.place), array_agg(w.id) into places, wanted
    from (
        select o.place::integer as place, d.id
        from unnest(p_tenant, p_receipt, p_delivery) with ordinality as o (tenant, receipt, delivery, place)
        cross join lateral (
            select d0.id from deliveries d0
            where d0.id = o.delivery and d0.receipt_id = o.receipt and d0.tenant = o.tenant
            offset 0
        ) d
        union
        -- a name may have been another endpoint's before, which was removed
        select o.place::integer, d.id
        from unnest(p_tenant, p_receipt, p_consumer) with ordinality as o (tenant, receipt, consumer, place)
        cross join lateral (
            select e0.id from endpoints e0 where e0.tenant = o.tenant and e0.name = o.consumer offset 0
        ) e
        cross join unnest('{pending,in_flight,delivered,dead}'::delivery_status[]) as s (status)
        cross join lateral (
            select d0.id from deliveries d0
            where d0.endpoint_id = e.id and d0.status = s.status and d0.receipt_id = o.receipt
              and d0.id between overlay(o.receipt::text placing '00000000' from 29)::uuid
                            and overlay(o.receipt::text placing 'ffffffff' from 29)::uuid
            offset 0
        ) d
    ) w;
    if wanted is null then
        return;
    end if;
    perform from deliveries d where d.id = any (wanted) order by d.id for no key update of d;

    with held as materialized (
        select d.id, d.discarded_at is not null as discarded from deliveries d
        where d.id = any (wanted) and d.status not in ('delivered', 'void')
    ), moved as (
        update deliveries d
        set status = 'delivered', acked_at = now(), acked_token = d.lease_token, lease_token = null,
            lease_until = null, dead_reason = null, discarded_at = null
        from held h where d.id = h.id
        returning d.id, d.receipt_id, h.discarded
    )
    select array_agg(m.id), array_agg(m.receipt_id), array_agg(m.discarded::integer)
    into newly_acked, of_receipts, given_up from moved m;

    if newly_acked is not null then
        select array_agg(l.id), array_agg(l.outcome) into held_receipts, held_outcomes
        from (select r.id, r.outcome from receipts r where r.id = any (of_receipts) order by r.id for no key update) l;
        update receipts r
        set acked = r.acked + a.acks, discarded = r.discarded - a.discards, outcome = n.outcome,
            -- one that was closed by giving up is closed anew where that made it another outcome
            closed_at = case when n.outcome is null then null
                             when n.outcome = r.outcome then r.closed_at else clock_timestamp() end
        from (select x.id, count(*)::integer as acks, sum(x.discards)::integer as discards
              from unnest(of_receipts, given_up) as x (id, discards) group by x.id) a
        cross join lateral (
            select case when k.outcome = 'expired' and o.outcome = 'closed_incomplete' then k.outcome
                        else o.outcome end as outcome
            from receipts k
            cross join lateral (
                select closing_outcome(k.expected, k.acked + a.acks, k.discarded - a.discards, k.redriven) as outcome
            ) o
            where k.id = a.id
        ) n
        where r.id = a.id;
    end if;

    return query
        select w.place, d.id, d.endpoint_id, e.name, d.acked_at, coalesce(d.id = any (newly_acked), false), r.outcome,
               coalesce(d.id = any (newly_acked), false) and r.outcome is not null
                   and r.outcome is distinct from b.outcome
        from unnest(places, wanted) as w (place, id)
        join deliveries d on d.id = w.id and d.status = 'delivered'
        join endpoints e on e.id = d.endpoint_id
        join receipts r on r.id = d.receipt_id
        left join unnest(held_receipts, held_outcomes) as b (id, outcome) on b.id = r.id;
end $$;

CREATE FUNCTION public.append_events(p_rules bigint, p_credentials bigint, p_schemas bigint, p_key_seconds double precision, e_receipt uuid[], e_day date[], e_partition smallint[], e_tenant text[], e_source text[], e_event_id text[], e_type text[], e_schema text[], e_received timestamp with time zone[], e_content_type text[], e_payload bytea[], e_sha256 bytea[], e_forwarded text[], e_hops smallint[], e_checked_us integer[], e_assigned_us integer[], e_fanout integer[], k_key text[], k_fingerprint bytea[], k_head bytea[], k_tail bytea[], d_event integer[], d_id uuid[], d_receipt uuid[], d_endpoint uuid[]) RETURNS TABLE(ordinal integer, result text, number bigint, answer_head bytea, answer_tail bytea, receipt uuid, log_from pg_lsn)
    LANGUAGE plpgsql
    AS $$
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

CREATE TABLE public.endpoint_state (
    endpoint_id uuid NOT NULL,
    breaker public.breaker_status DEFAULT 'closed'::public.breaker_status NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    trips integer DEFAULT 0 NOT NULL,
    opened_at timestamp with time zone,
    cooldown_until timestamp with time zone,
    probe_token uuid,
    probe_until timestamp with time zone,
    tokens double precision,
    tokens_at timestamp with time zone,
    held_until timestamp with time zone,
    held_reason text,
    found_closed_at timestamp with time zone,
    found_closed_reason text,
    full_at timestamp with time zone,
    answered_at timestamp with time zone,
    looked_from timestamp with time zone,
    claimed_second bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE public.endpoints (
    id uuid NOT NULL,
    tenant text NOT NULL,
    name text NOT NULL,
    url text NOT NULL,
    transport public.transport DEFAULT 'http'::public.transport NOT NULL,
    event_types text[] NOT NULL,
    rate_per_second double precision NOT NULL,
    burst integer NOT NULL,
    max_in_flight integer NOT NULL,
    timeout_seconds double precision,
    retry jsonb,
    ack public.ack_mode DEFAULT 'response'::public.ack_mode NOT NULL,
    signature public.signature_profile DEFAULT 'relay'::public.signature_profile NOT NULL,
    headers jsonb DEFAULT '{}'::jsonb NOT NULL,
    status public.endpoint_status DEFAULT 'active'::public.endpoint_status NOT NULL,
    status_reason text,
    secret_id uuid,
    previous_secret_id uuid,
    previous_secret_expires_at timestamp with time zone,
    revision bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    removed_at timestamp with time zone,
    credential bytea,
    CONSTRAINT endpoints_burst_check CHECK (((burst >= 1) AND (burst <= 100000))),
    CONSTRAINT endpoints_check CHECK (((previous_secret_id IS NULL) = (previous_secret_expires_at IS NULL))),
    CONSTRAINT endpoints_event_types_check CHECK ((cardinality(event_types) > 0)),
    CONSTRAINT endpoints_max_in_flight_check CHECK ((max_in_flight > 0)),
    CONSTRAINT endpoints_name_check CHECK ((name <> ''::text)),
    CONSTRAINT endpoints_rate_per_second_check CHECK (((rate_per_second > (0)::double precision) AND (rate_per_second <= (100000)::double precision))),
    CONSTRAINT endpoints_secret_check CHECK (((secret_id IS NOT NULL) OR (removed_at IS NOT NULL))),
    CONSTRAINT endpoints_timeout_seconds_check CHECK ((timeout_seconds > (0)::double precision))
);

CREATE FUNCTION public.available_tokens(e public.endpoints, s public.endpoint_state, p_now timestamp with time zone) RETURNS double precision
    LANGUAGE sql STABLE
    AS $$
    select case when s.tokens_at > p_now + interval '1 minute' then e.burst else least(
        e.burst,
        coalesce(s.tokens, e.burst)
            + e.rate_per_second * greatest(extract(epoch from p_now - s.tokens_at), 0)::double precision
    ) end
$$;

CREATE FUNCTION public.breaker_after(s public.endpoint_state, p_token uuid, p_began timestamp with time zone, p_answered boolean, p_threshold integer, p_cooldown double precision, p_max_cooldown double precision, p_now timestamp with time zone) RETURNS public.endpoint_state
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
    if s.breaker = 'half_open' then
        if s.probe_token is distinct from p_token then
            return s;
        end if;
        s.probe_token := null;
        s.probe_until := null;
        s.cooldown_until := p_now;
        if p_answered is null then
            s.breaker := 'open';
            return s;
        elsif p_answered then
            s.breaker := 'closed';
            s.failures := 0;
            s.trips := 0;
            return s;
        end if;
    elsif s.breaker = 'open' or p_answered is null or p_began < s.opened_at then
        return s;
    elsif p_answered then
        s.failures := 0;
        s.trips := 0;
        return s;
    elsif s.failures + 1 < p_threshold then
        s.failures := s.failures + 1;
        return s;
    end if;
    s.breaker := 'open';
    s.failures := 0;
    s.trips := s.trips + 1;
    s.opened_at := p_now;
    s.cooldown_until := p_now
        + least(p_cooldown * 2.0::double precision ^ least(s.trips - 1, 1000), p_max_cooldown) * interval '1 second';
    return s;
end $$;

CREATE FUNCTION public.claimed_second(p_before bigint, p_now timestamp with time zone) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    select greatest(p_before, extract(epoch from p_now)::bigint)
$$;

CREATE FUNCTION public.closed_by(e public.endpoints, s public.endpoint_state, p_breaker boolean, p_now timestamp with time zone) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select case
        when e.status <> 'active' then 'paused'
        when s.held_until > p_now then coalesce(s.held_reason, 'retry_after')
        when p_breaker and s.breaker = 'open' and s.cooldown_until > p_now then 'breaker'
        when p_breaker and s.breaker = 'half_open' and s.probe_until > p_now then 'breaker'
        when available_tokens(e, s, p_now) + 1e-9 < 1 then 'rate_limit'
    end
$$;

CREATE FUNCTION public.closing_outcome(p_expected integer, p_acked integer, p_discarded integer, p_redriven boolean) RETURNS public.receipt_outcome
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when p_acked + p_discarded < greatest(p_expected, 1) then null
                when p_discarded > 0 then 'closed_incomplete'
                when p_redriven then 'delivered_after_redrive'
                else 'delivered' end::receipt_outcome
$$;

CREATE FUNCTION public.credentials_in_force() RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    select jsonb_build_object(
        'tenants', (select coalesce(jsonb_agg(t.id), '[]') from tenants t where t.removed_at is null),
        'keys', (
            select coalesce(jsonb_agg(jsonb_build_array(
                k.tenant, k.name, k.scopes, s.name, encode(k.secret_sha256, 'hex'))), '[]')
            from keys k left join sources s on s.id = k.source_id
            where k.revoked_at is null
        ),
        'sources', (
            select coalesce(jsonb_agg(jsonb_build_object(
                'tenant', s.tenant, 'name', s.name, 'auth', s.auth, 'subject', s.certificate_subject,
                'keyed', exists (select from keys k where k.source_id = s.id),
                'sha256', encode(s.secret_sha256, 'hex'), 'secret_id', s.secret_id,
                'sealed', encode(c.ciphertext, 'hex'),
                'previous_for', extract(epoch from s.previous_secret_expires_at - clock_timestamp())::double precision,
                'previous_sha256', encode(s.previous_secret_sha256, 'hex'), 'previous_secret_id', s.previous_secret_id,
                'previous_sealed', encode(p.ciphertext, 'hex'))), '[]')
            from sources s
            left join secrets c on c.id = s.secret_id
            left join secrets p on p.id = s.previous_secret_id and s.previous_secret_expires_at > clock_timestamp()
            where s.removed_at is null and s.auth <> '{}'
        )
    )
$$;

CREATE FUNCTION public.days_ahead(p_parent text) RETURNS bigint
    LANGUAGE sql STABLE
    SET "TimeZone" TO 'UTC'
    AS $$
    select min(d.ahead) - 1
    from generate_series(0, 400) as d (ahead)
    where not exists (
        select from partitions_of(p_parent) p
        where not p.is_default and coalesce(p.from_at <= now()::date + d.ahead, true)
          and coalesce(p.below_at > now()::date + d.ahead, true))
$$;

CREATE FUNCTION public.deliveries_of(p_receipts uuid[]) RETURNS uuid[]
    LANGUAGE sql STABLE
    AS $$
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

CREATE FUNCTION public.drop_oldest_day(p_parent text, p_days double precision) RETURNS date
    LANGUAGE plpgsql
    AS $$
declare
    oldest record;
begin
    if not pg_try_advisory_xact_lock(hashtext('drop_oldest_day'), hashtext(p_parent)) then
        return null;
    end if;
    select p.child, p.from_at into oldest from partitions_of(p_parent) p
    where not p.is_default and p.below_at <= now() - greatest(p_days, 1) * interval '1 day'
    order by p.below_at limit 1;
    if oldest is null then
        return null;
    end if;
    perform refuse_if_held(array[p_parent::regclass, oldest.child]);
    perform lock_alone(array[p_parent::regclass, oldest.child]);
    execute format('drop table %s', oldest.child);
    return (oldest.from_at at time zone 'UTC')::date;
end $$;

CREATE FUNCTION public.ensure_day_partitions(parent text, days_ahead integer) RETURNS integer
    LANGUAGE plpgsql
    SET "TimeZone" TO 'UTC'
    AS $_$
declare
    day date;
    child text;
    made integer := 0;
    today date := now()::date;
    key_column text := case parent when 'journal' then 'day' else 'at' end;
    fallen date[];
    missing date[];
    late boolean;
begin
    perform pg_advisory_xact_lock(hashtext('ensure_day_partitions'), hashtext(parent));
    execute format('select array(select distinct %I::date as day from %I order by day limit 100)',
                   key_column, parent || '_default') into fallen;
    missing := array(
        select distinct d.day from unnest(fallen || array(
            select n::date from generate_series(today - 1, today + days_ahead, interval '1 day') n)) as d (day)
        where isfinite(d.day) and not exists (
            select from partitions_of(parent) p
            where not p.is_default and coalesce(p.from_at < d.day + 1, true) and coalesce(p.below_at > d.day, true))
        order by d.day);
    if missing && fallen then
        perform refuse_if_held(array[parent::regclass, (parent || '_default')::regclass]);
        perform lock_alone(array[parent::regclass, (parent || '_default')::regclass]);
    elsif missing <> '{}' then
        perform refuse_if_held(array[(parent || '_default')::regclass]);
    end if;
    foreach day in array missing loop
        child := parent || '_' || to_char(day, 'YYYYMMDD');
        while to_regclass(child) is not null loop
            child := child || '_again';  -- somebody keeps a table of that name
        end loop;
        execute format('create table %I (like %I including all)', child, parent);
        perform lock_alone(array[(parent || '_default')::regclass]);
        execute format('select exists (select from %1$I where %2$I >= %3$L and %2$I < %4$L)',
                       parent || '_default', key_column, day, day + 1) into late;
        if late and day <> all (fallen) then
            raise exception using errcode = 'lock_not_available', message = format('rows of %s have just come', day);
        end if;
        execute format(
            'with fallen as (delete from %1$I where %2$I >= %3$L and %2$I < %4$L returning *)'
            ' insert into %5$I select * from fallen',
            parent || '_default', key_column, day, day + 1, child);
        execute format('alter table %I attach partition %I for values from (%L) to (%L)', parent, child, day, day + 1);
        made := made + 1;
    end loop;
    return made;
end $_$;

CREATE FUNCTION public.events_to_keep(p_day date, p_first uuid, p_last uuid, p_delivered double precision, p_most integer) RETURNS uuid[]
    LANGUAGE sql STABLE
    AS $$
    select array(
        select k.id from (
            (select j.receipt_id as id from journal j
             left join receipts r on r.id = j.receipt_id
             where j.day = p_day
               and (r.id is null or j.partition not between 0 and 15 or j.number < 1
                    or (r.outcome is null and r.void_at is null)
                    or r.void_at > now() - p_delivered * interval '1 day'
                    or (r.outcome <> 'expired' and r.closed_at > now() - p_delivered * interval '1 day')
                    or (r.outcome = 'expired' and r.acked > 0 and exists (
                        select from deliveries d
                        where d.id between overlay(r.id::text placing '00000000' from 29)::uuid
                                       and overlay(r.id::text placing 'ffffffff' from 29)::uuid
                          and d.acked_at > now() - p_delivered * interval '1 day')))
             limit p_most)
            union
            select o.id from owed_between(p_first, p_last, p_most) o
        ) k limit p_most)
$$;

CREATE FUNCTION public.expire_dead_letters(p_days double precision, p_batch integer) RETURNS TABLE(deliveries bigint, events bigint, closed bigint)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    before timestamptz := now() - p_days * interval '1 day';
    dead uuid[];
    unrouted uuid[];
    of_receipts uuid[];
    closed_now bigint;
begin
    select array_agg(d.id) into dead
    from (select n.id from tenants t
          cross join lateral (
              select d0.id from deliveries d0
              where (d0.tenant, d0.dead_at) <= (t.id, before) and d0.tenant >= t.id
                and d0.status = 'dead' and d0.discarded_at is null
              order by d0.tenant, d0.dead_at, d0.id limit p_batch
          ) n
          limit p_batch) d;
    perform from deliveries d where d.id = any (dead) order by d.id for no key update of d;
    with given_up as (
        update deliveries d set discarded_at = now()
        where d.id = any (dead) and d.status = 'dead' and d.discarded_at is null and d.dead_at <= before
        returning d.receipt_id
    )
    select array_agg(g.receipt_id) into of_receipts from given_up g;
    select array_agg(u.id) into unrouted
    from (select n.id from tenants t
          cross join lateral (
              select r0.id from receipts r0
              where (r0.tenant, r0.unrouted_at) <= (t.id, before) and r0.tenant >= t.id and r0.unrouted_at is not null
              order by r0.tenant, r0.unrouted_at, r0.id limit p_batch
          ) n
          limit p_batch) u;
    perform from receipts r where r.id = any (of_receipts || unrouted) order by r.id for no key update;
    with changed as (
        update receipts r
        set discarded = r.discarded + g.dead_letters, unrouted_at = null,
            outcome = case when r.acked + r.discarded + g.dead_letters >= greatest(r.expected, 1)
                           then 'expired'::receipt_outcome end,
            closed_at = case when r.acked + r.discarded + g.dead_letters >= greatest(r.expected, 1)
                             then clock_timestamp() end
        from (select x.id, count(*)::integer as dead_letters from unnest(of_receipts || unrouted) as x (id)
              group by x.id) g
        where r.id = g.id
          and (r.id = any (of_receipts) or r.unrouted_at <= before)
        returning r.outcome
    )
    select count(c.outcome) into closed_now from changed c;
    return query select coalesce(cardinality(of_receipts), 0)::bigint, coalesce(cardinality(unrouted), 0)::bigint,
                        closed_now;
end $$;

CREATE FUNCTION public.first_due(p_endpoint uuid, p_from timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    select d.due_at from deliveries d
    where d.status = 'pending' and d.endpoint_id = p_endpoint and d.due_at >= coalesce(p_from, '-infinity')
    order by d.due_at limit 1
$$;

CREATE FUNCTION public.is_doubtful(s public.endpoint_state, p_breaker boolean, p_now timestamp with time zone) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select s.answered_at is null or s.answered_at < p_now - interval '10 minutes'
        or (p_breaker and s.breaker <> 'closed')
$$;

CREATE FUNCTION public.is_full(s public.endpoint_state) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select s.full_at is not null and coalesce((
        select true from deliveries d
        where d.endpoint_id = s.endpoint_id and d.status >= 'in_flight' and d.status <= 'in_flight'
          and d.lease_token is not null
        order by d.status desc, d.id desc limit 1), false)
$$;

CREATE FUNCTION public.lane_closed_by(e public.endpoints) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select coalesce(closed_by(e, s, true, now()), case when is_full(s) then 'endpoint_concurrency' end)
    from endpoint_state s where s.endpoint_id = e.id
$$;

CREATE FUNCTION public.lane_opens_at(e public.endpoints) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    select opens_at(e, s, true) from endpoint_state s
    where s.endpoint_id = e.id and opens_at(e, s, true) > now() and e.status = 'active'
$$;

CREATE FUNCTION public.lock_alone(p_tables regclass[]) RETURNS void
    LANGUAGE plpgsql
    SET lock_timeout TO '50ms'
    AS $$
declare
    wanted regclass;
begin
    for try in 1 .. 40 loop
        begin
            foreach wanted in array p_tables loop
                execute format('lock table only %s in access exclusive mode', wanted);
            end loop;
            return;
        exception when lock_not_available then
            if try = 40 then
                raise;
            end if;
        end;
        perform pg_sleep(0.05 + 0.1 * random());
    end loop;
end $$;

CREATE FUNCTION public.looked_at(p_before timestamp with time zone, p_now timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    select case when p_before > p_now + interval '1 minute' then p_now else greatest(p_before, p_now) end
$$;

CREATE FUNCTION public.opens_at(e public.endpoints, s public.endpoint_state, p_breaker boolean) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    select greatest(
        s.held_until,
        case when p_breaker then s.cooldown_until end,
        case when p_breaker and s.breaker = 'half_open' then s.probe_until end,
        case when s.tokens + 1e-9 < 1
             then s.tokens_at + least((1 - s.tokens) / e.rate_per_second, 1e9) * interval '1 second' end
    )
$$;

CREATE FUNCTION public.owed_between(p_first uuid, p_last uuid, p_most integer) RETURNS TABLE(id uuid)
    LANGUAGE sql STABLE
    AS $$
    select d.receipt_id from tenants t
    cross join lateral (
        select d0.receipt_id from deliveries d0
        where d0.tenant = t.id and d0.id between p_first and p_last
          and d0.status in ('pending', 'in_flight', 'dead') and d0.discarded_at is null
        limit p_most
    ) d
    union
    select u.id from tenants t
    cross join lateral (
        select r0.id from receipts r0
        where r0.tenant = t.id and r0.id between p_first and p_last and r0.unrouted_at is not null
        limit p_most
    ) u
$$;

CREATE FUNCTION public.partitions_of(p_parent text) RETURNS TABLE(child regclass, from_at timestamp with time zone, below_at timestamp with time zone, is_default boolean)
    LANGUAGE sql STABLE
    SET "TimeZone" TO 'UTC'
    AS $$
    select c.oid::regclass, substring(b.bounds from 'FROM \(''([^'']+)''\)')::timestamptz,
           substring(b.bounds from 'TO \(''([^'']+)''\)')::timestamptz, b.bounds = 'DEFAULT'
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    cross join lateral (select pg_get_expr(c.relpartbound, c.oid) as bounds) b
    where i.inhparent = to_regclass(p_parent)
$$;

CREATE FUNCTION public.prune_journal_day(p_day date, p_first uuid, p_last uuid, p_delivered double precision) RETURNS TABLE(result text, gone bigint, kept bigint)
    LANGUAGE plpgsql
    SET "TimeZone" TO 'UTC'
    AS $$
#variable_conflict use_column
declare
    most constant integer := 50000;
    most_bytes constant bigint := 64 * 1024 * 1024;
    few_bytes constant bigint := 1024 * 1024;
    old regclass;
    staying uuid[];
    staying_bytes bigint;
    total bigint;
    partitions smallint[];
    firsts bigint[];
    lasts bigint[];
begin
    if not pg_try_advisory_xact_lock(hashtext('prune_journal_day'), p_day - date '2000-01-01') then
        return query select 'elsewhere', 0::bigint, 0::bigint;
        return;
    end if;
    select p.child into old from partitions_of('journal') p
    where p.from_at = p_day::timestamptz and p.below_at = (p_day + 1)::timestamptz;
    if old is null then
        return query select 'absent', 0::bigint, 0::bigint;
        return;
    end if;
    perform refuse_if_held(array[old]);
    execute format('lock table %s in share mode', old);

    select count(*) into total from journal j where j.day = p_day;
    if exists (select from idempotency_keys k
               where k.journal_day = p_day and k.expires_at > now() - interval '1 hour') then
        staying := null;
    else
        staying := events_to_keep(p_day, p_first, p_last, p_delivered, most + 1);
        select coalesce(sum(octet_length(j.payload)), 0) into staying_bytes
        from unnest(staying) as s (id) join journal j on j.day = p_day and j.receipt_id = s.id;
    end if;
    if staying is null or cardinality(staying) > most or cardinality(staying) >= total and total > 0
       or staying_bytes > most_bytes or cardinality(staying) > total / 2 and staying_bytes > few_bytes then
        insert into old_days as o (day, kept, look_again_at)
        values (p_day, total, now() + case when total > 10000 then interval '6 hours' else interval '0' end)
        on conflict (day) do update set kept = excluded.kept, look_again_at = excluded.look_again_at;
        return query select 'kept', 0::bigint, total;
        return;
    end if;

    with island as (
        select i.partition, int8range(min(i.number), max(i.number), '[]') as span
        from (select j.partition, j.number,
                     j.number - row_number() over (partition by j.partition order by j.number) as island
              from journal j where j.day = p_day and j.receipt_id <> all (staying)) i
        group by i.partition, i.island
    ), known as (
        select i.partition, i.span from island i
        union all
        select p.partition, int8range(p.first, p.last, '[]') from pruned_ranges p where p.day = p_day
    )
    select array_agg(r.partition), array_agg(lower(r.span)), array_agg(upper(r.span) - 1)
    into partitions, firsts, lasts
    from (select k.partition, unnest(range_agg(k.span)) as span from known k group by k.partition) r;
    delete from pruned_ranges p where p.day = p_day;
    insert into pruned_ranges (day, partition, first, last)
    select p_day, n.partition, n.first, n.last from unnest(partitions, firsts, lasts) as n (partition, first, last);
    insert into old_days as o (day, kept, look_again_at, pruned_at)
    values (p_day, cardinality(staying), now(), now())
    on conflict (day) do update
        set kept = excluded.kept, look_again_at = excluded.look_again_at, pruned_at = excluded.pruned_at,
            swept_at = null;

    if staying = '{}' then
        perform refuse_if_held(array['journal'::regclass, old]);
        perform lock_alone(array['journal'::regclass, old]);
    else
        create temporary table staying_events on commit drop as
            select j.* from unnest(staying) as s (id) join journal j on j.day = p_day and j.receipt_id = s.id;
        perform refuse_if_held(array[old]);
        perform lock_alone(array[old]);
    end if;
    if exists (select from owed_between(p_first, p_last, most + 1) o where o.id <> all (staying)) then
        raise exception using errcode = 'lock_not_available', message = format('something of %s is owed again', old);
    end if;
    if staying = '{}' then
        execute format('drop table %s', old);
    else
        execute format('truncate %s', old);
        execute format('insert into %s select * from staying_events', old);
        drop table staying_events;
    end if;
    return query select case when staying = '{}' then 'dropped' else 'thinned' end, total - cardinality(staying),
                        cardinality(staying)::bigint;
end $$;

CREATE FUNCTION public.record_outcomes(o_delivery uuid[], o_token uuid[], o_receipt uuid[], o_claimed_at timestamp with time zone[], o_attempt integer[], o_generation integer[], o_class text[], o_move text[], o_delay double precision[], o_dead_reason text[], o_reason text[], o_status_code smallint[], o_error_class text[], o_snippet text[], o_wait_ms real[], o_connect_ms real[], o_send_ms real[], o_first_byte_ms real[], o_total_ms real[], o_display_url text[], o_endpoint uuid[], o_answered boolean[], o_hold double precision[], o_hold_reason text[], p_threshold integer, p_cooldown double precision, p_max_cooldown double precision) RETURNS TABLE(delivery_id uuid, lease_token uuid, moved boolean, outcome public.receipt_outcome, lane uuid, breaker public.breaker_status, trips integer)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    held uuid[];
    held_tokens uuid[];
    settled uuid[];
    settled_tokens uuid[];
    settled_lanes uuid[];
    settled_troubled uuid[];
    moved_before uuid[];
    moved_before_tokens uuid[];
    acked_before uuid[];
    acked_receipts uuid[];
    closed_receipts uuid[];
    closed_outcomes receipt_outcome[];
    closed_before receipt_outcome[];
    receipts_before uuid[];
    lanes uuid[];
    troubled uuid[];
begin
    -- held: the deliveries that still bear their claim's token, locked in id order
    select array_agg(l.id), array_agg(l.lease_token), array_agg(distinct l.endpoint),
           array_agg(distinct l.endpoint) filter (where l.answered is false or l.hold is not null)
    into held, held_tokens, lanes, troubled
    from (
        select d.id, d.lease_token, o.endpoint, o.answered, o.hold
        from unnest(o_delivery, o_token, o_endpoint, o_answered, o_hold)
            as o (delivery, token, endpoint, answered, hold)
        join deliveries d on d.id = o.delivery and d.lease_token = o.token
        order by d.id for no key update of d
    ) l;

    with moved as (
        update deliveries d
        set status = case o.move when 'ack' then 'delivered' when 'receive' then 'in_flight'
                                 when 'retry' then 'pending' else 'dead' end::delivery_status,
            lease_token = null, lease_until = null,
            due_at = case when o.move = 'retry' then now() + o.delay * interval '1 second' else d.due_at end,
            received_at = case when o.move = 'receive' then now() end,
            acked_at = case when o.move = 'ack' then now() end,
            dead_at = case when o.move = 'bury' then now() end,
            dead_reason = o.dead_reason::dead_reason,
            last_error = case when o.move in ('ack', 'receive') then d.last_error else o.reason end
        from unnest(o_delivery, o_token, o_move, o_delay, o_dead_reason, o_reason)
            as o (delivery, token, move, delay, dead_reason, reason)
        where d.id = o.delivery and d.id = any (held) and d.lease_token = o.token
        returning d.receipt_id, o.move
    )
    select array_agg(m.receipt_id) filter (where m.move = 'ack') into acked_receipts from moved m;

    -- settled: those whose ack came while they were being sent; the ack has moved them, and their attempts are in time
    if coalesce(cardinality(held), 0) < cardinality(o_delivery) then
        select array_agg(s.id), array_agg(s.acked_token), array_agg(distinct s.endpoint),
               array_agg(distinct s.endpoint) filter (where s.answered is false or s.hold is not null)
        into settled, settled_tokens, settled_lanes, settled_troubled
        from (
            select d.id, d.acked_token, o.endpoint, o.answered, o.hold
            from unnest(o_delivery, o_token, o_endpoint, o_answered, o_hold)
                as o (delivery, token, endpoint, answered, hold)
            join deliveries d on d.id = o.delivery and d.acked_token = o.token
        ) s;
        lanes := lanes || settled_lanes;
        troubled := troubled || settled_troubled;
    end if;

    insert into delivery_attempts (delivery_id, at, lease_token, attempt, generation, outcome_class, reason,
                                   status_code, error_class, snippet, wait_ms, connect_ms, send_ms, first_byte_ms,
                                   total_ms, display_url, late)
    select o.delivery, o.claimed_at + o.wait_ms * interval '1 millisecond', o.token, o.attempt, o.generation,
           o.class::outcome_class, o.reason, o.status_code, o.error_class, o.snippet, o.wait_ms, o.connect_ms,
           o.send_ms, o.first_byte_ms, o.total_ms, o.display_url, h.id is null
    from unnest(o_delivery, o_claimed_at, o_token, o_attempt, o_generation, o_class, o_reason, o_status_code,
                o_error_class, o_snippet, o_wait_ms, o_connect_ms, o_send_ms, o_first_byte_ms, o_total_ms,
                o_display_url)
        as o (delivery, claimed_at, token, attempt, generation, class, reason, status_code, error_class, snippet,
              wait_ms, connect_ms, send_ms, first_byte_ms, total_ms, display_url)
    left join unnest(held || settled, held_tokens || settled_tokens) as h (id, token)
        on h.id = o.delivery and h.token = o.token
    order by o.delivery, o.token
    on conflict do nothing;

    if acked_receipts is not null then
        perform from receipts r where r.id = any (acked_receipts) order by r.id for no key update;
        with progressed as (
            update receipts r
            set acked = r.acked + a.acks,
                outcome = closing_outcome(r.expected, r.acked + a.acks, r.discarded, r.redriven),
                -- behind every ack that it closes with, also of a transaction that began after this one
                closed_at = case when r.acked + a.acks + r.discarded >= r.expected then clock_timestamp() end
            from (select x.id, count(*)::integer as acks from unnest(acked_receipts) as x (id) group by x.id) a
            where r.id = a.id
            returning r.id, r.outcome
        )
        select array_agg(p.id), array_agg(p.outcome) into closed_receipts, closed_outcomes
        from progressed p where p.outcome is not null;
    end if;

    -- what was not held was late, now or then, or was recorded before
    if coalesce(cardinality(held), 0) + coalesce(cardinality(settled), 0) < cardinality(o_delivery) then
        select array_agg(a.delivery_id), array_agg(a.lease_token),
               array_agg(a.delivery_id) filter (where o.move = 'ack')
        into moved_before, moved_before_tokens, acked_before
        from unnest(o_delivery, o_token, o_claimed_at, o_wait_ms, o_move)
            as o (delivery, token, claimed_at, wait_ms, move)
        join delivery_attempts a
            on a.delivery_id = o.delivery and a.at = o.claimed_at + o.wait_ms * interval '1 millisecond'
               and a.lease_token = o.token and not a.late
        where not exists (
            select from unnest(held || settled, held_tokens || settled_tokens) as h (id, token)
            where h.id = o.delivery and h.token = o.token
        );
        select array_agg(r.id), array_agg(r.outcome) into receipts_before, closed_before
        from (select distinct d.receipt_id, d.xmin as written_by from deliveries d
              where d.id = any (acked_before) and d.status = 'delivered') b
        join receipts r on r.id = b.receipt_id and r.xmin = b.written_by and r.outcome is not null;
    end if;

    select array_agg(s.endpoint_id) into lanes
    from endpoint_state s
    where s.endpoint_id = any (lanes)
      and (s.breaker <> 'closed' or s.failures > 0 or s.endpoint_id = any (troubled)
           or s.answered_at is null or s.answered_at < now() - interval '1 minute');
    if lanes is not null then
        return query
            select null::uuid, null::uuid, false, null::receipt_outcome, m.lane, m.breaker, m.trips
            from teach_lanes(lanes, held || settled, held_tokens || settled_tokens, o_delivery, o_token,
                             o_claimed_at, o_endpoint, o_answered, o_hold, o_hold_reason, p_threshold, p_cooldown,
                             p_max_cooldown) m;
    end if;

    return query
        select o.delivery, o.token, case when s.id is null then h.id is not null end, c.outcome, null::uuid,
               null::breaker_status, null::integer
        from unnest(o_delivery, o_token, o_receipt) as o (delivery, token, receipt)
        left join unnest(held || moved_before, held_tokens || moved_before_tokens) as h (id, token)
            on h.id = o.delivery and h.token = o.token
        left join unnest(settled, settled_tokens) as s (id, token) on s.id = o.delivery and s.token = o.token
        left join unnest(closed_receipts || receipts_before, closed_outcomes || closed_before) as c (receipt, outcome)
            on c.receipt = o.receipt;
end $$;

CREATE FUNCTION public.refuse_if_held(p_tables regclass[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    here oid := (select d.oid from pg_database d where d.datname = current_database());
    holders text[] := array(
        select l.virtualtransaction from pg_locks l
        where l.locktype = 'relation' and l.database = here and l.relation = any (p_tables::oid[])
          and l.pid is distinct from pg_backend_pid());
    held regclass;
begin
    if holders = '{}' then
        return;
    end if;
    perform pg_sleep(0.2);
    select l.relation::regclass into held from pg_locks l
    where l.locktype = 'relation' and l.database = here and l.relation = any (p_tables::oid[])
      and l.virtualtransaction = any (holders)
    limit 1;
    if held is not null then
        raise exception using errcode = 'lock_not_available', message = format('%s is in use for long', held);
    end if;
end $$;

CREATE FUNCTION public.refuse_rewriting() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise exception 'the audit is appended to, and never changed';
end
$$;

CREATE FUNCTION public.refuse_second_state() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ begin
    perform from endpoints e where e.id = new.endpoint_id for no key update;
    if exists (select from endpoint_state s where s.endpoint_id = new.endpoint_id) then
        raise exception using errcode = 'integrity_constraint_violation', constraint = tg_name, table = tg_table_name,
            message = format('endpoint %s has a state already', new.endpoint_id);
    end if;
    return new;
end $$;

CREATE FUNCTION public.revive_events(p_receipts uuid[]) RETURNS uuid[]
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.state_of(p_endpoint uuid) RETURNS SETOF public.endpoint_state
    LANGUAGE sql STABLE
    AS $$
    select s.* from endpoint_state s where s.endpoint_id = p_endpoint order by s.claimed_second desc limit 1
$$;

CREATE FUNCTION public.sweep_pruned_day(p_day date, p_after uuid, p_last uuid, p_batch integer) RETURNS TABLE(reached uuid, receipts bigint, deliveries bigint)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    over uuid[];
    furthest uuid;
    parts uuid[];
    swept bigint;
    parts_swept bigint;
begin
    select array_agg(n.id), max(n.id::text)::uuid into over, furthest
    from (
        select c.id, sum(greatest(c.expected, 1)) over (order by c.id) - greatest(c.expected, 1) as before
        from (
            select r.id, r.expected from receipts r
            where r.id > p_after and r.id <= p_last and r.journal_day = p_day
              and not exists (select from journal j where j.day = p_day and j.receipt_id = r.id)
            order by r.id limit p_batch
        ) c
    ) n
    where n.before < p_batch;
    if over is null then
        return;
    end if;
    parts := deliveries_of(over);
    perform from deliveries d where d.id = any (parts) order by d.id for update of d;
    perform from receipts r where r.id = any (over) order by r.id for update;
    over := array(select x.id from unnest(over) as x (id)
                  except
                  select d.receipt_id from deliveries d
                  where d.id = any (parts) and d.status in ('pending', 'in_flight'));
    parts := deliveries_of(over);
    delete from past_generations g where g.delivery_id = any (parts);
    delete from deliveries d where d.id = any (parts);
    get diagnostics parts_swept = row_count;
    delete from receipts r where r.id = any (over);
    get diagnostics swept = row_count;
    return query select furthest, swept, parts_swept;
end $$;

CREATE FUNCTION public.teach_lanes(p_lanes uuid[], p_held uuid[], p_held_tokens uuid[], o_delivery uuid[], o_token uuid[], o_claimed_at timestamp with time zone[], o_endpoint uuid[], o_answered boolean[], o_hold double precision[], o_hold_reason text[], p_threshold integer, p_cooldown double precision, p_max_cooldown double precision) RETURNS TABLE(lane uuid, breaker public.breaker_status, trips integer)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    locked uuid[];
    known endpoint_state;
    learned endpoint_state;
    notice record;
    disabled record;
begin
    -- with those that a hold reaches over their credential
    select array_agg(l.endpoint_id) into locked from (
        select s.endpoint_id from endpoint_state s
        where s.endpoint_id = any (p_lanes || array(
            select b.id
            from (select distinct o.endpoint from unnest(o_endpoint, o_hold) as o (endpoint, hold)
                  where o.hold < 'infinity') h
            join endpoints a on a.id = h.endpoint
            join endpoints b on b.credential = a.credential and b.removed_at is null))
        order by s.endpoint_id for no key update
    ) l;

    for notice in
        select o.endpoint, array_agg(o.token order by o.place) as tokens,
               array_agg(o.claimed_at order by o.place) as began, array_agg(o.answered order by o.place) as answered,
               (array_agg(o.answered and o.hold is null order by o.place desc)
                   filter (where o.answered is not null))[1] as last_welcome
        from unnest(o_delivery, o_token, o_claimed_at, o_endpoint, o_answered, o_hold) with ordinality
            as o (delivery, token, claimed_at, endpoint, answered, hold, place)
        join unnest(p_held, p_held_tokens) as h (id, token) on h.id = o.delivery and h.token = o.token
        where o.endpoint = any (p_lanes) and o.endpoint = any (locked)
        group by o.endpoint order by o.endpoint
    loop
        select s.* into known from endpoint_state s where s.endpoint_id = notice.endpoint;
        learned := known;
        if p_threshold is not null then
            for place in 1 .. cardinality(notice.tokens) loop
                learned := breaker_after(
                    learned, notice.tokens[place], notice.began[place], notice.answered[place],
                    p_threshold, p_cooldown, p_max_cooldown, now());
            end loop;
        end if;
        if not notice.last_welcome then
            learned.answered_at := null;
        elsif notice.last_welcome and (known.answered_at is null or known.answered_at < now() - interval '1 minute') then
            learned.answered_at := now();
        end if;
        continue when learned is not distinct from known;
        update endpoint_state s
        set breaker = learned.breaker, failures = learned.failures, trips = learned.trips,
            opened_at = learned.opened_at, cooldown_until = learned.cooldown_until,
            probe_token = learned.probe_token, probe_until = learned.probe_until, answered_at = learned.answered_at
        where s.endpoint_id = notice.endpoint;
        if learned.breaker <> known.breaker or learned.opened_at is distinct from known.opened_at then
            lane := notice.endpoint;
            breaker := learned.breaker;
            trips := learned.trips;
            return next;
        end if;
    end loop;

    breaker := null;
    trips := null;
    -- a hold that lasts longer already stays, with its reason
    for lane in
        with wished as (
            select o.endpoint, max(o.hold) as seconds, min(o.reason) as reason
            from unnest(o_delivery, o_token, o_endpoint, o_hold, o_hold_reason)
                as o (delivery, token, endpoint, hold, reason)
            join unnest(p_held, p_held_tokens) as h (id, token) on h.id = o.delivery and h.token = o.token
            where o.hold < 'infinity'
            group by o.endpoint
        ), reached as (
            select b.id, max(w.seconds) as seconds, min(w.reason) as reason
            from wished w
            join endpoints a on a.id = w.endpoint
            join endpoints b on b.id = a.id or (b.credential = a.credential and b.removed_at is null)
            group by b.id
        )
        update endpoint_state s
        set held_until = greatest(s.held_until, now() + r.seconds * interval '1 second'),
            held_reason = case when s.held_until >= now() + r.seconds * interval '1 second' then s.held_reason
                               else r.reason end
        from reached r
        where s.endpoint_id = r.id and s.endpoint_id = any (locked)
        returning s.endpoint_id
    loop
        return next;
    end loop;

    for disabled in
        select o.endpoint, min(o.reason) as reason
        from unnest(o_delivery, o_token, o_endpoint, o_hold, o_hold_reason) as o (delivery, token, endpoint, hold, reason)
        join unnest(p_held, p_held_tokens) as h (id, token) on h.id = o.delivery and h.token = o.token
        where o.hold = 'infinity'
        group by o.endpoint order by o.endpoint
    loop
        update endpoints e
        set status = 'disabled', status_reason = disabled.reason, revision = e.revision + 1, updated_at = now()
        where e.id = disabled.endpoint and e.status = 'active' and e.removed_at is null;
        lane := disabled.endpoint;
        return next;
    end loop;
end $$;

CREATE FUNCTION public.void_events(p_receipts uuid[], p_log_from pg_lsn, p_timeline bigint, p_standbys integer, p_names text[], p_promise text) RETURNS TABLE(receipt uuid, result text)
    LANGUAGE plpgsql
    AS $$
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

CREATE TABLE public.audit (
    id uuid NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    tenant text NOT NULL,
    actor text NOT NULL,
    actor_tenant text NOT NULL,
    action text NOT NULL,
    subject text,
    name text,
    changes jsonb DEFAULT '[]'::jsonb NOT NULL,
    details jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT audit_actor_check CHECK ((actor <> ''::text))
);

CREATE TABLE public.deliveries (
    id uuid NOT NULL,
    receipt_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    tenant text NOT NULL,
    journal_day date NOT NULL,
    status public.delivery_status DEFAULT 'pending'::public.delivery_status NOT NULL,
    due_at timestamp with time zone NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    generation integer DEFAULT 0 NOT NULL,
    generation_attempts integer DEFAULT 0 NOT NULL,
    generation_started_at timestamp with time zone,
    lease_token uuid,
    lease_until timestamp with time zone,
    claimed_at timestamp with time zone,
    received_at timestamp with time zone,
    acked_at timestamp with time zone,
    dead_at timestamp with time zone,
    dead_reason public.dead_reason,
    last_error text,
    announced_at timestamp with time zone,
    redriven_at timestamp with time zone,
    discarded_at timestamp with time zone,
    owed_by xid8,
    acked_token uuid,
    CONSTRAINT deliveries_check CHECK (((status <> 'in_flight'::public.delivery_status) OR (lease_token IS NOT NULL) OR (received_at IS NOT NULL))),
    CONSTRAINT deliveries_check1 CHECK (((status = 'in_flight'::public.delivery_status) OR (lease_token IS NULL))),
    CONSTRAINT deliveries_check2 CHECK (((status = 'delivered'::public.delivery_status) = (acked_at IS NOT NULL))),
    CONSTRAINT deliveries_check3 CHECK (((status = 'dead'::public.delivery_status) = (dead_reason IS NOT NULL))),
    CONSTRAINT deliveries_check4 CHECK (((discarded_at IS NULL) OR (status = 'dead'::public.delivery_status)))
)
WITH (fillfactor='90', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000', autovacuum_vacuum_insert_scale_factor='0.2', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_scale_factor='0.1', autovacuum_analyze_threshold='5000');

CREATE TABLE public.delivery_attempts (
    delivery_id uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    lease_token uuid NOT NULL,
    attempt integer NOT NULL,
    generation integer NOT NULL,
    outcome_class public.outcome_class NOT NULL,
    reason text,
    deferred_for_ms integer,
    status_code smallint,
    error_class text,
    snippet text,
    wait_ms real,
    connect_ms real,
    send_ms real,
    first_byte_ms real,
    total_ms real,
    display_url text,
    late boolean DEFAULT false NOT NULL
)
PARTITION BY RANGE (at);

CREATE TABLE public.delivery_attempts_default (
    delivery_id uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    lease_token uuid NOT NULL,
    attempt integer NOT NULL,
    generation integer NOT NULL,
    outcome_class public.outcome_class NOT NULL,
    reason text,
    deferred_for_ms integer,
    status_code smallint,
    error_class text,
    snippet text,
    wait_ms real,
    connect_ms real,
    send_ms real,
    first_byte_ms real,
    total_ms real,
    display_url text,
    late boolean DEFAULT false NOT NULL
);

CREATE TABLE public.heartbeats (
    process uuid NOT NULL,
    kind text NOT NULL,
    reported_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE public.idempotency_keys (
    tenant text NOT NULL,
    source text NOT NULL,
    key text NOT NULL,
    fingerprint bytea NOT NULL,
    receipt_id uuid NOT NULL,
    journal_day date NOT NULL,
    answer_head bytea NOT NULL,
    answer_tail bytea NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

CREATE TABLE public.journal (
    day date NOT NULL,
    receipt_id uuid NOT NULL,
    partition smallint NOT NULL,
    number bigint NOT NULL,
    tenant text NOT NULL,
    source text NOT NULL,
    event_id text NOT NULL,
    type text NOT NULL,
    schema text,
    received_at timestamp with time zone NOT NULL,
    content_type text NOT NULL,
    payload bytea NOT NULL,
    payload_sha256 bytea NOT NULL,
    forwarded jsonb,
    hops smallint NOT NULL,
    checked_us integer NOT NULL,
    assigned_us integer NOT NULL,
    committed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
PARTITION BY RANGE (day);

CREATE TABLE public.journal_default (
    day date NOT NULL,
    receipt_id uuid NOT NULL,
    partition smallint NOT NULL,
    number bigint NOT NULL,
    tenant text NOT NULL,
    source text NOT NULL,
    event_id text NOT NULL,
    type text NOT NULL,
    schema text,
    received_at timestamp with time zone NOT NULL,
    content_type text NOT NULL,
    payload bytea NOT NULL,
    payload_sha256 bytea NOT NULL,
    forwarded jsonb,
    hops smallint NOT NULL,
    checked_us integer NOT NULL,
    assigned_us integer NOT NULL,
    committed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE public.journal_heads (
    partition smallint NOT NULL,
    next_number bigint DEFAULT 1 NOT NULL,
    CONSTRAINT journal_heads_partition_check CHECK (((partition >= 0) AND (partition <= 15)))
)
WITH (fillfactor='10');

CREATE TABLE public.key_marks (
    sealed bytea NOT NULL,
    made_at timestamp with time zone DEFAULT now() NOT NULL,
    key_id bytea,
    retired_at timestamp with time zone
);

CREATE TABLE public.keys (
    id uuid NOT NULL,
    tenant text NOT NULL,
    name text NOT NULL,
    scopes text[] NOT NULL,
    source_id uuid,
    secret_sha256 bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    revoked_at timestamp with time zone,
    CONSTRAINT keys_check CHECK (((source_id IS NULL) OR (NOT (scopes && ARRAY['admin'::text, 'operator'::text])))),
    CONSTRAINT keys_name_check CHECK ((name <> ''::text)),
    CONSTRAINT keys_scopes_check CHECK (((scopes <> '{}'::text[]) AND (scopes <@ ARRAY['ingest'::text, 'read'::text, 'admin'::text, 'operator'::text]))),
    CONSTRAINT keys_secret_sha256_check CHECK ((octet_length(secret_sha256) = 32))
);

CREATE TABLE public.last_verification (
    singleton boolean DEFAULT true NOT NULL,
    verified_at timestamp with time zone DEFAULT now() NOT NULL,
    ok boolean NOT NULL,
    events bigint NOT NULL,
    unaccounted bigint NOT NULL,
    faults bigint NOT NULL,
    CONSTRAINT last_verification_singleton_check CHECK (singleton)
);

CREATE VIEW public.listed_standbys AS
 SELECT lower(application_name) AS name,
    max(flush_lsn) AS flushed
   FROM pg_stat_replication s
  WHERE ((state = 'streaming'::text) AND (sync_priority > 0))
  GROUP BY (lower(application_name));

CREATE TABLE public.old_days (
    day date NOT NULL,
    kept bigint NOT NULL,
    look_again_at timestamp with time zone NOT NULL,
    pruned_at timestamp with time zone,
    swept_at timestamp with time zone
);

CREATE TABLE public.past_generations (
    delivery_id uuid NOT NULL,
    generation integer NOT NULL,
    redriven_at timestamp with time zone DEFAULT now() NOT NULL,
    acked_at timestamp with time zone,
    dead_at timestamp with time zone,
    on_demand boolean DEFAULT false NOT NULL
);

CREATE TABLE public.pruned_ranges (
    day date NOT NULL,
    partition smallint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    pruned_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT pruned_ranges_check CHECK ((last >= first)),
    CONSTRAINT pruned_ranges_first_check CHECK ((first >= 1)),
    CONSTRAINT pruned_ranges_partition_check CHECK (((partition >= 0) AND (partition <= 15)))
);

CREATE TABLE public.receipts (
    id uuid NOT NULL,
    tenant text NOT NULL,
    journal_day date NOT NULL,
    event_id text NOT NULL,
    type text NOT NULL,
    rules_version bigint NOT NULL,
    expected integer NOT NULL,
    acked integer DEFAULT 0 NOT NULL,
    discarded integer DEFAULT 0 NOT NULL,
    redriven boolean DEFAULT false NOT NULL,
    reason public.dead_reason,
    outcome public.receipt_outcome,
    closed_at timestamp with time zone,
    unrouted_at timestamp with time zone,
    routed_at timestamp with time zone,
    void_at timestamp with time zone,
    CONSTRAINT receipts_check CHECK (((acked + discarded) <= GREATEST(expected, 1))),
    CONSTRAINT receipts_check1 CHECK (((outcome IS NULL) = (closed_at IS NULL))),
    CONSTRAINT receipts_void_check CHECK (((void_at IS NULL) OR ((outcome IS NULL) AND (unrouted_at IS NULL))))
)
WITH (fillfactor='45', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='20000');

CREATE TABLE public.request_keys (
    tenant text NOT NULL,
    key text NOT NULL,
    fingerprint bytea NOT NULL,
    status smallint,
    answer bytea,
    expires_at timestamp with time zone NOT NULL
);

CREATE TABLE public.rule_changes (
    version bigint NOT NULL,
    endpoint_id uuid NOT NULL,
    mark uuid DEFAULT gen_random_uuid() NOT NULL
);

CREATE TABLE public.schema_migrations (
    number integer NOT NULL,
    name text NOT NULL,
    sha256 bytea NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE public.schemas (
    tenant text NOT NULL,
    type text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    schema bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT schemas_type_check CHECK ((type <> ''::text)),
    CONSTRAINT schemas_version_check CHECK (((version >= 1) AND (version <= 999999999)))
);

CREATE TABLE public.secrets (
    id uuid NOT NULL,
    ciphertext bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    key_id bytea
);

CREATE VIEW public.shown_deliveries AS
 SELECT d.id,
    d.receipt_id,
    d.endpoint_id,
    d.tenant,
    e.name AS consumer,
    (d.status)::text AS status,
    d.attempts,
    d.acked_at,
    d.due_at,
    d.generation,
    (d.dead_reason)::text AS dead_reason,
    d.dead_at,
    d.last_error,
    d.received_at,
    d.redriven_at,
    d.discarded_at,
    (e.status)::text AS endpoint_status,
    (g.gate IS NOT NULL) AS lane_held,
    g.gate AS held_reason,
        CASE
            WHEN (g.gate <> 'endpoint_concurrency'::text) THEN public.opens_at(e.*, s.*, true)
            ELSE NULL::timestamp with time zone
        END AS held_until
   FROM (((public.deliveries d
     JOIN public.endpoints e ON ((e.id = d.endpoint_id)))
     JOIN public.endpoint_state s ON ((s.endpoint_id = d.endpoint_id)))
     CROSS JOIN LATERAL ( SELECT COALESCE(public.closed_by(e.*, s.*, true, now()),
                CASE
                    WHEN ((d.status = 'pending'::public.delivery_status) AND public.is_full(s.*)) THEN 'endpoint_concurrency'::text
                    ELSE NULL::text
                END) AS gate) g)
  WHERE (d.status <> 'void'::public.delivery_status);

CREATE TABLE public.signed_requests (
    tenant text NOT NULL,
    source text NOT NULL,
    digest bytea NOT NULL,
    fingerprint bytea NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

CREATE TABLE public.sources (
    id uuid NOT NULL,
    name text NOT NULL,
    tenant text NOT NULL,
    auth text[] DEFAULT '{}'::text[] NOT NULL,
    certificate_subject text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    secret_sha256 bytea,
    secret_id uuid,
    previous_secret_sha256 bytea,
    previous_secret_id uuid,
    previous_secret_expires_at timestamp with time zone,
    removed_at timestamp with time zone,
    CONSTRAINT sources_auth_check CHECK ((auth <@ ARRAY['bearer'::text, 'hmac'::text, 'mtls'::text])),
    CONSTRAINT sources_name_check CHECK ((name <> ''::text)),
    CONSTRAINT sources_previous_secret_sha256_check CHECK ((octet_length(previous_secret_sha256) = 32)),
    CONSTRAINT sources_secret_sha256_check CHECK ((octet_length(secret_sha256) = 32))
);

CREATE TABLE public.tenants (
    id text NOT NULL,
    name text NOT NULL,
    partition smallint NOT NULL,
    strict_schemas boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    removed_at timestamp with time zone,
    CONSTRAINT tenants_id_check CHECK ((id ~ '^acct_[A-Za-z0-9_-]{1,64}$'::text)),
    CONSTRAINT tenants_name_check CHECK ((name <> ''::text)),
    CONSTRAINT tenants_partition_check CHECK (((partition >= 0) AND (partition <= 15)))
);

CREATE TABLE public.versions (
    singleton boolean DEFAULT true NOT NULL,
    rules bigint NOT NULL,
    credentials bigint NOT NULL,
    schemas bigint NOT NULL,
    CONSTRAINT versions_singleton_check CHECK (singleton)
);

ALTER TABLE ONLY public.delivery_attempts ATTACH PARTITION public.delivery_attempts_default DEFAULT;

ALTER TABLE ONLY public.journal ATTACH PARTITION public.journal_default DEFAULT;

ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.delivery_attempts
    ADD CONSTRAINT delivery_attempts_pkey PRIMARY KEY (delivery_id, at, lease_token);

ALTER TABLE ONLY public.delivery_attempts_default
    ADD CONSTRAINT delivery_attempts_default_pkey PRIMARY KEY (delivery_id, at, lease_token);

ALTER TABLE ONLY public.endpoint_state
    ADD CONSTRAINT endpoint_state_pkey PRIMARY KEY (endpoint_id, claimed_second);

ALTER TABLE ONLY public.endpoints
    ADD CONSTRAINT endpoints_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.heartbeats
    ADD CONSTRAINT heartbeats_pkey PRIMARY KEY (process);

ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant, source, key);

ALTER TABLE ONLY public.journal
    ADD CONSTRAINT journal_partition_number_day_key UNIQUE (partition, number, day);

ALTER TABLE ONLY public.journal
    ADD CONSTRAINT journal_pkey PRIMARY KEY (day, receipt_id);

ALTER TABLE ONLY public.journal_default
    ADD CONSTRAINT journal_default_partition_number_day_key UNIQUE (partition, number, day);

ALTER TABLE ONLY public.journal_default
    ADD CONSTRAINT journal_default_pkey PRIMARY KEY (day, receipt_id);

ALTER TABLE ONLY public.journal_heads
    ADD CONSTRAINT journal_heads_pkey PRIMARY KEY (partition);

ALTER TABLE ONLY public.key_marks
    ADD CONSTRAINT key_marks_key_id_key UNIQUE (key_id);

ALTER TABLE ONLY public.key_marks
    ADD CONSTRAINT key_marks_pkey PRIMARY KEY (sealed);

ALTER TABLE ONLY public.keys
    ADD CONSTRAINT keys_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.keys
    ADD CONSTRAINT keys_secret_sha256_key UNIQUE (secret_sha256);

ALTER TABLE ONLY public.last_verification
    ADD CONSTRAINT last_verification_pkey PRIMARY KEY (singleton);

ALTER TABLE ONLY public.old_days
    ADD CONSTRAINT old_days_pkey PRIMARY KEY (day);

ALTER TABLE ONLY public.past_generations
    ADD CONSTRAINT past_generations_pkey PRIMARY KEY (delivery_id, generation);

ALTER TABLE ONLY public.pruned_ranges
    ADD CONSTRAINT pruned_ranges_pkey PRIMARY KEY (day, partition, first);

ALTER TABLE ONLY public.receipts
    ADD CONSTRAINT receipts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.request_keys
    ADD CONSTRAINT request_keys_pkey PRIMARY KEY (tenant, key);

ALTER TABLE ONLY public.rule_changes
    ADD CONSTRAINT rule_changes_pkey PRIMARY KEY (version);

ALTER TABLE ONLY public.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (number);

ALTER TABLE ONLY public.schemas
    ADD CONSTRAINT schemas_pkey PRIMARY KEY (tenant, type, version);

ALTER TABLE ONLY public.secrets
    ADD CONSTRAINT secrets_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.signed_requests
    ADD CONSTRAINT signed_requests_pkey PRIMARY KEY (tenant, source, digest);

ALTER TABLE ONLY public.sources
    ADD CONSTRAINT sources_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT tenants_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.versions
    ADD CONSTRAINT versions_pkey PRIMARY KEY (singleton);

CREATE INDEX audit_of_all ON public.audit USING btree (at, id);

CREATE INDEX audit_page ON public.audit USING btree (tenant, at, id);

CREATE INDEX deliveries_dead ON public.deliveries USING btree (tenant, dead_at, id) INCLUDE (receipt_id, endpoint_id) WHERE ((status = 'dead'::public.delivery_status) AND (discarded_at IS NULL));

CREATE INDEX deliveries_dead_endpoint ON public.deliveries USING btree (endpoint_id, dead_at, id) INCLUDE (receipt_id, dead_reason) WHERE ((status = 'dead'::public.delivery_status) AND (discarded_at IS NULL));

CREATE INDEX deliveries_dead_reason ON public.deliveries USING btree (tenant, dead_reason, dead_at, id) INCLUDE (receipt_id, endpoint_id) WHERE ((status = 'dead'::public.delivery_status) AND (discarded_at IS NULL));

CREATE INDEX deliveries_leased ON public.deliveries USING btree (lease_until) WHERE (status = 'in_flight'::public.delivery_status);

CREATE INDEX deliveries_of_endpoint ON public.deliveries USING btree (endpoint_id, status, id);

CREATE INDEX deliveries_owed ON public.deliveries USING btree (tenant, id) WHERE ((status = ANY (ARRAY['pending'::public.delivery_status, 'in_flight'::public.delivery_status, 'dead'::public.delivery_status])) AND (discarded_at IS NULL));

CREATE INDEX deliveries_pending ON public.deliveries USING btree (endpoint_id, due_at) WHERE (status = 'pending'::public.delivery_status);

CREATE INDEX deliveries_received ON public.deliveries USING btree (received_at) WHERE ((status = 'in_flight'::public.delivery_status) AND (received_at IS NOT NULL));

CREATE INDEX endpoint_state_breaker ON public.endpoint_state USING btree (endpoint_id) WHERE (breaker <> 'closed'::public.breaker_status);

CREATE INDEX endpoints_credential ON public.endpoints USING btree (credential) WHERE ((credential IS NOT NULL) AND (removed_at IS NULL));

CREATE INDEX endpoints_every_name ON public.endpoints USING btree (tenant, name);

CREATE UNIQUE INDEX endpoints_name ON public.endpoints USING btree (tenant, name) WHERE (removed_at IS NULL);

CREATE INDEX endpoints_page ON public.endpoints USING btree (tenant, id) WHERE (removed_at IS NULL);

CREATE INDEX endpoints_previous_secret ON public.endpoints USING btree (previous_secret_id) WHERE (previous_secret_id IS NOT NULL);

CREATE INDEX endpoints_removed ON public.endpoints USING btree (id) WHERE (removed_at IS NOT NULL);

CREATE INDEX endpoints_secret ON public.endpoints USING btree (secret_id);

CREATE INDEX idempotency_keys_expiry ON public.idempotency_keys USING btree (expires_at);

CREATE UNIQUE INDEX keys_name ON public.keys USING btree (tenant, name) WHERE (revoked_at IS NULL);

CREATE INDEX keys_page ON public.keys USING btree (tenant, id) WHERE (revoked_at IS NULL);

CREATE INDEX keys_source ON public.keys USING btree (source_id);

CREATE INDEX receipts_event ON public.receipts USING btree (tenant, event_id, id) WHERE (event_id <> ('evt_'::text || replace((id)::text, '-'::text, ''::text)));

CREATE INDEX receipts_page ON public.receipts USING btree (tenant, id);

CREATE INDEX receipts_type ON public.receipts USING btree (tenant, type, id);

CREATE INDEX receipts_unrouted ON public.receipts USING btree (tenant, unrouted_at, id) INCLUDE (type) WHERE (unrouted_at IS NOT NULL);

CREATE INDEX receipts_unrouted_page ON public.receipts USING btree (tenant, id) WHERE (unrouted_at IS NOT NULL);

CREATE INDEX request_keys_expiry ON public.request_keys USING btree (expires_at);

CREATE INDEX signed_requests_expiry ON public.signed_requests USING btree (expires_at);

CREATE UNIQUE INDEX sources_name ON public.sources USING btree (name) WHERE (removed_at IS NULL);

CREATE INDEX sources_page ON public.sources USING btree (tenant, id) WHERE (removed_at IS NULL);

CREATE INDEX sources_previous_secret ON public.sources USING btree (previous_secret_id) WHERE (previous_secret_id IS NOT NULL);

CREATE UNIQUE INDEX sources_secret ON public.sources USING btree (secret_sha256);

CREATE INDEX sources_secret_id ON public.sources USING btree (secret_id) WHERE (secret_id IS NOT NULL);

CREATE UNIQUE INDEX sources_subject ON public.sources USING btree (certificate_subject) WHERE (removed_at IS NULL);

ALTER INDEX public.delivery_attempts_pkey ATTACH PARTITION public.delivery_attempts_default_pkey;

ALTER INDEX public.journal_partition_number_day_key ATTACH PARTITION public.journal_default_partition_number_day_key;

ALTER INDEX public.journal_pkey ATTACH PARTITION public.journal_default_pkey;

CREATE TRIGGER an_endpoint_has_one_state BEFORE INSERT ON public.endpoint_state FOR EACH ROW EXECUTE FUNCTION public.refuse_second_state();

CREATE TRIGGER audit_is_appended_to BEFORE DELETE OR UPDATE OR TRUNCATE ON public.audit FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_rewriting();

ALTER TABLE ONLY public.endpoint_state
    ADD CONSTRAINT endpoint_state_endpoint_id_fkey FOREIGN KEY (endpoint_id) REFERENCES public.endpoints(id);

ALTER TABLE ONLY public.endpoints
    ADD CONSTRAINT endpoints_previous_secret_id_fkey FOREIGN KEY (previous_secret_id) REFERENCES public.secrets(id);

ALTER TABLE ONLY public.endpoints
    ADD CONSTRAINT endpoints_secret_id_fkey FOREIGN KEY (secret_id) REFERENCES public.secrets(id);

ALTER TABLE ONLY public.endpoints
    ADD CONSTRAINT endpoints_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.tenants(id);

ALTER TABLE ONLY public.keys
    ADD CONSTRAINT keys_source_id_fkey FOREIGN KEY (source_id) REFERENCES public.sources(id);

ALTER TABLE ONLY public.keys
    ADD CONSTRAINT keys_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.tenants(id);

ALTER TABLE ONLY public.schemas
    ADD CONSTRAINT schemas_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.tenants(id);

ALTER TABLE ONLY public.sources
    ADD CONSTRAINT sources_previous_secret_id_fkey FOREIGN KEY (previous_secret_id) REFERENCES public.secrets(id);

ALTER TABLE ONLY public.sources
    ADD CONSTRAINT sources_secret_id_fkey FOREIGN KEY (secret_id) REFERENCES public.secrets(id);

ALTER TABLE ONLY public.sources
    ADD CONSTRAINT sources_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.tenants(id);
