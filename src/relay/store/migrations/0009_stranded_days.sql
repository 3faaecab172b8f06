-- A gateway whose clock is days behind appends to days that nobody made a partition for any more, and its events stayed in
-- the default partition, which no retention drops. Days of the last month that lie there are made, too, and their rows
-- moved; what is older is nobody's clock.
create or replace function ensure_day_partitions(parent text, days_ahead integer) returns integer
language plpgsql as $$
declare
    day date;
    child text;
    made integer := 0;
    today date := (now() at time zone 'UTC')::date;
    key_column text := case parent when 'journal' then 'day' else 'at' end;
    key_day text := case parent when 'journal' then 'day' else '(at at time zone ''UTC'')::date' end;
    cast_to text := case parent when 'journal' then '' else ' 00:00:00+00' end;
    stranded date[];
begin
    perform pg_advisory_xact_lock(hashtext('ensure_day_partitions'), hashtext(parent));
    execute format(
        'select coalesce(array_agg(distinct %1$s), ''{}'') from %2$I where %3$I >= %4$L and %3$I < %5$L',
        key_day, parent || '_default', key_column, (today - 30) || cast_to, (today - 1) || cast_to)
        into stranded;
    for day in select generate_series(today - 1, today + days_ahead, interval '1 day')::date
               union all select unnest(stranded) loop
        child := parent || '_' || to_char(day, 'YYYYMMDD');
        continue when to_regclass(child) is not null;
        execute format('create table %I (like %I including all)', child, parent);
        execute format('lock table %I in access exclusive mode', parent || '_default');
        execute format(
            'with fallen as (delete from %1$I where %2$I >= %3$L and %2$I < %4$L returning *)'
            ' insert into %5$I select * from fallen',
            parent || '_default', key_column, day || cast_to, (day + 1) || cast_to, child);
        execute format('alter table %I attach partition %I for values from (%L) to (%L)',
            parent, child, day || cast_to, (day + 1) || cast_to);
        made := made + 1;
    end loop;
    return made;
end $$;
