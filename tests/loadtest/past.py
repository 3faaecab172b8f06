"""Days that are over, by the hundred thousand rows: what was sent in them, and all that is kept of it.

Owns the shapes of those rows. They are what a Relay would have left that had been at work then, made inside the
database.
"""

from __future__ import annotations

from datetime import date

from relay.store.database import Connection, Database
from tests.support.days import make_day

LIMIT_SECONDS = 600.0

_ATTEMPTS = """
insert into delivery_attempts (delivery_id, at, lease_token, attempt, generation, outcome_class, status_code, snippet,
                               wait_ms, connect_ms, send_ms, first_byte_ms, total_ms, display_url)
select gen_random_uuid(), $1::date + n * interval '80 milliseconds', gen_random_uuid(), 1, 0, 'success', 200, 'ok',
       1, 2, 3, 4, 5, 'https://example.com/hooks'
from generate_series(1, $2::integer) n
"""
_EVENTS = """
create temporary table old_events on commit drop as
select n, (lpad(to_hex((extract(epoch from $1::date) * 1000)::bigint + n), 12, '0') || '70008'
           || lpad(to_hex(n >> 16), 3, '0') || lpad(to_hex(n & 65535), 4, '0') || '00000000')::uuid as receipt,
       $1::date + n * interval '1 millisecond' as at
from generate_series(1, $2::integer) n
"""
_JOURNAL = """
insert into journal (day, receipt_id, partition, number, tenant, source, event_id, type, received_at, content_type,
                     payload, payload_sha256, hops, checked_us, assigned_us)
select $1::date, e.receipt, 6, h.next_number + e.n - 1, 'acct_default', 'anonymous', 'evt_' || e.n, 'invoice.paid',
       e.at, 'application/json', $2::bytea, sha256($2::bytea), 0, 0, 0
from old_events e cross join journal_heads h where h.partition = 6
"""
_HEAD = "update journal_heads set next_number = next_number + $1::integer where partition = 6"
_RECEIPTS = """
insert into receipts (id, tenant, journal_day, event_id, type, rules_version, expected, acked, outcome, closed_at)
select e.receipt, 'acct_default', $1::date, 'evt_' || e.n, 'invoice.paid', 1, 1, 1, 'delivered', e.at from old_events e
"""
_DELIVERIES = """
insert into deliveries (id, receipt_id, endpoint_id, tenant, journal_day, due_at, status, acked_at, attempts)
select overlay(e.receipt::text placing '1' from 36)::uuid, e.receipt, l.id, 'acct_default', $1::date, e.at,
       'delivered', e.at, 1
from old_events e
join (select id, row_number() over (order by id) - 1 as place, count(*) over () as number from endpoints
      where removed_at is null) l on l.place = e.n % l.number
"""


async def attempts(database: Database, day: date, number: int) -> None:
    """So many attempts in that day."""
    await make_day(database, "delivery_attempts", day)
    async with database.transaction() as connection:
        await connection.execute(_ATTEMPTS, day, number, timeout=LIMIT_SECONDS)


async def events(database: Database, day: date, number: int, *, payload: bytes = b"x" * 500) -> None:
    """So many events of that day, each delivered to one of the endpoints in turn."""
    await make_day(database, "journal", day)
    async with database.transaction() as connection:
        await connection.execute(_EVENTS, day, number, timeout=LIMIT_SECONDS)
        await connection.execute(_JOURNAL, day, payload, timeout=LIMIT_SECONDS)
        await connection.execute(_HEAD, number)
        await connection.execute(_RECEIPTS, day, timeout=LIMIT_SECONDS)
        await connection.execute(_DELIVERIES, day, timeout=LIMIT_SECONDS)


async def analyze(connection: Connection) -> None:
    """Let the planner know what was added, and vacuum know that all of it is seen by everybody."""
    for table in ("delivery_attempts", "journal", "receipts", "deliveries"):
        await connection.execute(f"vacuum (analyze) {table}", timeout=LIMIT_SECONDS)
