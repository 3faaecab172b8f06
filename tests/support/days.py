"""Day partitions that are missing, as if no maintainer had run for long."""

from __future__ import annotations

DROP_DAYS_TO_COME = """
do $$ declare child regclass; begin
    for child in select inhrelid::regclass from pg_inherits
                 where inhparent in ('journal'::regclass, 'delivery_attempts'::regclass)
                   and inhrelid::regclass::text !~ 'default$'
                   and right(inhrelid::regclass::text, 8) > to_char(now() at time zone 'UTC', 'YYYYMMDD') loop
        execute format('drop table %s', child);
    end loop;
end $$
"""
