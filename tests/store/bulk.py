"""Lanes and deliveries by the hundred thousand, in seconds: for plans and costs, which depend on size.

Owns the shapes of those rows. They are what the append would have written, made inside the database.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from relay.store.database import Connection

_LIMIT_SECONDS = 600.0

_LANES = """
with secret as (
    insert into secrets (id, ciphertext) values (gen_random_uuid(), '') returning id
), made as (
    insert into endpoints (id, tenant, name, url, event_types, rate_per_second, burst, max_in_flight, secret_id)
    select gen_random_uuid(), 'acct_default', 'bulk-' || gen_random_uuid(), 'http://127.0.0.1/', '{*}', 1e5, 1e5, $2,
           s.id
    from generate_series(1, $1::integer) as n cross join secret s
    returning id
), state as (
    insert into endpoint_state (endpoint_id, answered_at) select m.id, now() from made m
)
select m.id from made m order by m.id
"""

# One event per row, received so many microseconds after the other and due in that order; `lane` counts from 1.
_EVENTS = """
create temporary table bulk_events on commit drop as
select n, (lpad(to_hex(floor(extract(epoch from e.due_at) * 1000)::bigint), 12, '0') || '7000'
           || '8' || lpad(to_hex(n >> 16), 3, '0') || lpad(to_hex(n & 65535), 4, '0') || '00000000')::uuid as receipt,
       case when n <= $1::integer * $3::double precision then $2::integer else 1 + n % $2::integer end as lane, e.due_at
from generate_series(1, $1::integer) as n
cross join lateral (select now() - $4::interval + n * $5::interval as due_at) e
"""
_JOURNAL = """
insert into journal (day, receipt_id, partition, number, tenant, source, event_id, type, received_at, content_type,
                     payload, payload_sha256, hops, checked_us, assigned_us)
select (b.due_at at time zone 'UTC')::date, b.receipt, 6, h.next_number + b.n - 1, 'acct_default', 'anonymous',
       'evt_' || b.n, 'invoice.paid', b.due_at, 'application/json', $1::bytea, sha256($1::bytea), 0, 0, 0
from bulk_events b cross join journal_heads h where h.partition = 6
"""
_HEAD = "update journal_heads set next_number = next_number + $1::integer where partition = 6"
_RECEIPTS = """
insert into receipts (id, tenant, journal_day, event_id, type, rules_version, expected)
select b.receipt, 'acct_default', (b.due_at at time zone 'UTC')::date, 'evt_' || b.n, 'invoice.paid', 1, 1
from bulk_events b
"""
_DELIVERIES = """
insert into deliveries (id, receipt_id, endpoint_id, tenant, journal_day, due_at)
select overlay(b.receipt::text placing '1' from 36)::uuid, b.receipt, l.id, 'acct_default',
       (b.due_at at time zone 'UTC')::date, b.due_at
from bulk_events b
join unnest($1::uuid[]) with ordinality as l (id, place) on l.place = b.lane
"""


async def add_lanes(connection: Connection, number: int, *, max_in_flight: int = 5_000) -> list[UUID]:
    """So many endpoints, in the order of their lanes."""
    rows: list[Any] = await connection.fetch(_LANES, number, max_in_flight)
    return [row["id"] for row in rows]


async def owe(
    connection: Connection,
    rows: int,
    lanes: list[UUID],
    *,
    last_lanes_share: float = 0.0,
    payload: bytes = b"x" * 300,
    since: timedelta = timedelta(hours=1),
    apart: timedelta = timedelta(milliseconds=1),
) -> None:
    """Append so many events, one delivery each, lanes in turn; the last lane has the oldest share of them.

    They are due since then, one so long after the other.
    """
    async with connection.transaction():
        await connection.execute(_EVENTS, rows, len(lanes), last_lanes_share, since, apart, timeout=_LIMIT_SECONDS)
        await connection.execute(_JOURNAL, payload, timeout=_LIMIT_SECONDS)
        await connection.execute(_HEAD, rows)
        await connection.execute(_RECEIPTS, timeout=_LIMIT_SECONDS)
        await connection.execute(_DELIVERIES, lanes, timeout=_LIMIT_SECONDS)


async def analyze(connection: Connection) -> None:
    """Let the planner know what was added."""
    for table in ("deliveries", "journal", "receipts", "endpoints", "endpoint_state", "delivery_attempts"):
        await connection.execute(f"vacuum (analyze) {table}", timeout=_LIMIT_SECONDS)
