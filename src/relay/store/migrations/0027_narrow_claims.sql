-- From where on in a lane a claim need look: what was due before this was not pending when one last looked there, but for
-- what came late. Nobody but a claim that is told to be `narrow` relies on it.
--
-- A claimed row leaves a dead entry in the index of what is pending. While some transaction keeps an old snapshot open,
-- nothing removes these, and each claim of a lane would pass over all that were taken from it since.
alter table endpoint_state add column looked_from timestamptz;

-- When the first of a lane is due from an instant on, null if nothing is.
create function first_due(p_endpoint uuid, p_from timestamptz) returns timestamptz language sql stable as $$
    select d.due_at from deliveries d
    where d.status = 'pending' and d.endpoint_id = p_endpoint and d.due_at >= coalesce(p_from, '-infinity')
    order by d.due_at limit 1
$$;

-- As in 0025_retention, and rows move out of the default partition only while nobody else has the parent: who plans a
-- statement just then may have listed the partitions before and look at them after, and would find such a row in neither.
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
        execute format('lock table only %I in access exclusive mode', parent);
    elsif missing <> '{}' then
        perform refuse_if_held(array[(parent || '_default')::regclass]);
    end if;
    foreach day in array missing loop
        child := parent || '_' || to_char(day, 'YYYYMMDD');
        while to_regclass(child) is not null loop
            child := child || '_again';  -- somebody keeps a table of that name
        end loop;
        execute format('create table %I (like %I including all)', child, parent);
        execute format('lock table %I in access exclusive mode', parent || '_default');
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
