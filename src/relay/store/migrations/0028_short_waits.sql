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

-- As in 0025_retention and 0027_narrow_claims, but for how they wait for those locks.
create or replace function drop_oldest_day(p_parent text, p_days double precision) returns date language plpgsql as $$
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

create or replace function prune_journal_day(p_day date, p_first uuid, p_last uuid, p_delivered double precision)
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
        perform lock_alone(array[parent::regclass]);
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
