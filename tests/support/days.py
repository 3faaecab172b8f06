"""Days that are missing, as if no maintainer had run for long; and days that are long gone, as if Relay were older."""

from __future__ import annotations

from datetime import date, timedelta
from uuid import UUID

from relay.domain import ids
from relay.store.database import Database

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

_MAKE_DAY = """
do $$ begin
    if to_regclass('{parent}_{day:%Y%m%d}') is null then
        create table {parent}_{day:%Y%m%d} partition of {parent}
            for values from ('{day} 00:00:00+00') to ('{next} 00:00:00+00');
    end if;
end $$
"""

_AGE = """
with moved as (
    delete from journal where receipt_id = any ($1::uuid[]) returning *
)
insert into journal
select ($2::date), overlay(m.receipt_id::text placing $3 from 1)::uuid, m.partition, m.number, m.tenant, m.source,
       m.event_id, m.type, m.schema, m.received_at - $4::interval, m.content_type, m.payload, m.payload_sha256,
       m.forwarded, m.hops, m.checked_us, m.assigned_us, m.committed_at - $4::interval
from moved m
"""
_AGE_RECEIPTS = """
update receipts set id = overlay(id::text placing $3 from 1)::uuid, journal_day = $2::date,
    closed_at = closed_at - $4::interval, unrouted_at = unrouted_at - $4::interval, void_at = void_at - $4::interval
where id = any ($1::uuid[])
"""
_AGE_DELIVERIES = """
update deliveries set id = overlay(id::text placing $3 from 1)::uuid,
    receipt_id = overlay(receipt_id::text placing $3 from 1)::uuid, journal_day = $2::date,
    due_at = due_at - $4::interval, acked_at = acked_at - $4::interval, dead_at = dead_at - $4::interval,
    discarded_at = discarded_at - $4::interval
where receipt_id = any ($1::uuid[])
"""
_AGE_KEYS = """
update idempotency_keys set receipt_id = overlay(receipt_id::text placing $3 from 1)::uuid, journal_day = $2::date,
    expires_at = expires_at - $4::interval
where receipt_id = any ($1::uuid[])
"""
_AGE_GENERATIONS = """
update past_generations set delivery_id = overlay(delivery_id::text placing $3 from 1)::uuid
where $4::interval is not null and $2::date is not null and delivery_id = any (array(
    select d.id from deliveries d where d.receipt_id = any ($1::uuid[])))
"""


async def age(database: Database, receipts: list[UUID], days: int) -> list[UUID]:
    """Let events be so many days older, with all that belongs to them, in a day of their own; answers their ids then.

    All of them have to be of one day.
    """
    (day,) = {ids.day_of(each) for each in receipts}
    then = day - timedelta(days=days)
    await make_day(database, "journal", then)
    aged = [UUID(int=each.int - (days * 86_400_000 << 80)) for each in receipts]
    async with database.transaction() as connection:
        for receipt, old in zip(receipts, aged, strict=True):
            moved = ([receipt], then, str(old)[:13], timedelta(days=days))
            for statement in (_AGE, _AGE_GENERATIONS, _AGE_DELIVERIES, _AGE_RECEIPTS, _AGE_KEYS):
                await connection.execute(statement, *moved)
    return aged


async def make_day(database: Database, parent: str, day: date) -> None:
    """Make the partition of a day, unless there is one."""
    async with database.connection() as connection:
        await connection.execute(_MAKE_DAY.format(parent=parent, day=day, next=day + timedelta(days=1)))
