-- Retention: what is over goes, days as partitions and the rest as rows. Partitions are found by what they hold, whatever
-- they are called.

-- Days of the journal that retention has looked at: how many events of each must stay (`kept`), when another look pays,
-- and, once events of it went, when that was and since when their receipts and deliveries are gone as well.
create table old_days (
    day date primary key,
    kept bigint not null,
    look_again_at timestamptz not null,
    pruned_at timestamptz,
    swept_at timestamptz
);

-- a table of which a day's rows go at once is vacuumed before a fifth of it is dead
alter table receipts set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 20000);

create function partitions_of(p_parent text)
returns table (child regclass, from_at timestamptz, below_at timestamptz, is_default boolean)
language sql stable set timezone = 'UTC' as $$
    select c.oid::regclass, substring(b.bounds from 'FROM \(''([^'']+)''\)')::timestamptz,
           substring(b.bounds from 'TO \(''([^'']+)''\)')::timestamptz, b.bounds = 'DEFAULT'
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    cross join lateral (select pg_get_expr(c.relpartbound, c.oid) as bounds) b
    where i.inhparent = to_regclass(p_parent)
$$;

-- How many days from tomorrow on, without one missing, have a partition; -1 if today has none.
create function days_ahead(p_parent text) returns bigint language sql stable set timezone = 'UTC' as $$
    select min(d.ahead) - 1
    from generate_series(0, 400) as d (ahead)
    where not exists (
        select from partitions_of(p_parent) p
        where not p.is_default and coalesce(p.from_at <= now()::date + d.ahead, true)
          and coalesce(p.below_at > now()::date + d.ahead, true))
$$;

-- Refuse at once where a transaction keeps any of these tables locked: whoever waited behind it for a lock against
-- everyone would have everyone wait. Those that come and go within a fifth of a second are no reason.
create function refuse_if_held(p_tables regclass[]) returns void language plpgsql as $$
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

-- Have tables to oneself, all of them or none, parents first. Whoever waits for that has everybody wait behind him, so no
-- wait is longer than 50 ms; it is tried for five seconds or so, with room for others in between.
create function lock_alone(p_tables regclass[]) returns void language plpgsql set lock_timeout = '50ms' as $$
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

-- Make the day partitions of a table from yesterday to so many days ahead, and those of days (a hundred at a time) of
-- which rows lie in the default partition, so that these move out of it. A partition is made apart and then attached,
-- since CREATE TABLE … PARTITION OF would lock the parent against everyone. The default partition is locked (attaching
-- does that anyway) before its rows are moved, and the parent too where there are some: who plans a statement just then may
-- have listed the partitions before and look at them after, and would find such a row in neither. Callers take turns.
create or replace function ensure_day_partitions(parent text, days_ahead integer) returns integer
language plpgsql set timezone = 'UTC' as $$
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
end $$;

-- Drop the oldest partition that ends before so many days ago; answers its first day, null if there is none or another
-- session is at it. Never one that ends after yesterday began. Parent first, as whoever reads all days locks them.
create function drop_oldest_day(p_parent text, p_days double precision) returns date language plpgsql as $$
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

-- The receipts of which something is owed, or is a dead letter that nobody gave up, with ids between these.
create function owed_between(p_first uuid, p_last uuid, p_most integer) returns table (id uuid) language sql stable as $$
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

-- What of a day must stay: the receipts of events that are owed or dead, that closed or became void within the window, or
-- of which something is not as it should be, which is for `relay verify` to name. At most so many.
create function events_to_keep(
    p_day date, p_first uuid, p_last uuid, p_delivered double precision, p_most integer
) returns uuid[] language sql stable as $$
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

-- Let the events of a day of the journal go of which nothing must stay any more, and write down which positions those
-- were. A day of which nothing stays is dropped; one of which little stays is written anew with just that. One that a
-- name leads to which is not over, or of which much stays, is left alone for some hours.
--
-- `result`: `dropped`, `thinned`, `kept`, `elsewhere` (another session is at it) or `absent`. `p_first` and `p_last` are
-- the ids that events of that day may have.
--
-- Nobody writes to the day from the first lock on, nobody reads it for the moment in which it goes. Whoever makes
-- something of an old event owed again reads its event first, and in the same transaction: so he is either waited for, and
-- seen in the last look, or finds the event gone.
create function prune_journal_day(p_day date, p_first uuid, p_last uuid, p_delivered double precision)
returns table (result text, gone bigint, kept bigint) language plpgsql set timezone = 'UTC' as $$
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

-- Remove receipts of a pruned day, in the order of their ids behind one, with their deliveries and what these were before:
-- those whose events are gone. About `p_batch` rows at a time. Answers the last receipt that was looked at, null where
-- none is left. What is owed although its event is gone stays, for `relay verify` to name.
create function sweep_pruned_day(p_day date, p_after uuid, p_last uuid, p_batch integer)
returns table (reached uuid, receipts bigint, deliveries bigint) language plpgsql as $$
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

-- Give up dead letters that have waited for a person for longer than they are kept, about so many at a time, of events
-- that matched no rule as well. A receipt of which nothing else is owed closes as `expired`. Answers how many dead letters
-- that were, and how many receipts it closed.
create function expire_dead_letters(p_days double precision, p_batch integer)
returns table (deliveries bigint, events bigint, closed bigint) language plpgsql as $$
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
