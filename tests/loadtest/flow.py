"""What an event costs the server on its way: `make bench-scale`, or `python -m tests.loadtest.flow`.

Owns the counting of log, transactions, connections and processor time while events are appended, drained and posted one
by one, and that of wake-ups by the number of those who listen.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg

from relay.loadtest.backlog import Shape
from relay.loadtest.children import child
from relay.loadtest.installation import Installation, installation, sink_url
from relay.loadtest.steady import Load, measure
from relay.store.wakeups import CHANNEL

EVENTS, ENDPOINTS, PAYLOAD_BYTES = 20_000, 20, 300
RATE, STEADY_SECONDS = 200.0, 10.0
DISPATCHERS = (1, 8)
"""Workers; what each of them starts with is counted as well."""
LISTENERS = (1, 50)
NOTICES = 500
_NOW = """
select pg_current_wal_lsn() - '0/0'::pg_lsn as log, d.xact_commit as transactions
from pg_stat_database d where d.datname = current_database()
"""
_VERSIONS = """
select relname, n_tup_upd as updated, n_tup_hot_upd as hot from pg_stat_user_tables
where relname in ('deliveries', 'receipts', 'endpoint_state') order by relname
"""
_CONNECTIONS = """
select count(*) from pg_stat_activity
where datname = current_database() and application_name like $1 and backend_type = 'client backend'
"""


def say(line: str) -> None:
    """A line for whoever watches."""
    print(line, flush=True)  # noqa: T201 # this is what the command is for


@dataclass(slots=True)
class Counted:
    """What was spent inside a block."""

    log: int = 0
    transactions: int = 0
    seconds: float = 0.0

    def row(self, title: str, number: int) -> str:
        """A row of the table, for one of so many."""
        return (
            f"| {title} | {self.log / number:,.0f} | {self.transactions / number:.3f} |"
            f" {1e6 * self.seconds / number:.0f} |"
        )


@contextlib.asynccontextmanager
async def counting(ground: Installation, looking: asyncpg.Connection) -> AsyncIterator[Counted]:
    """Count what the server spends inside the block."""
    counted = Counted()
    # statistics of others come within a second
    await asyncio.sleep(1.5)
    before, spent = await looking.fetchrow(_NOW), ground.postgres_seconds()
    yield counted
    await asyncio.sleep(1.5)
    after = await looking.fetchrow(_NOW)
    assert before is not None, "each database has a row"
    assert after is not None, "likewise"
    counted.log, counted.transactions = (int(after[each] - before[each]) for each in ("log", "transactions"))
    counted.seconds = ground.postgres_seconds() - spent


async def drained(ground: Installation, looking: asyncpg.Connection) -> int:
    """Wait until nothing is owed; answers how many connections a dispatcher had at most."""
    most, ends = 0, time.monotonic() + 120.0
    while await ground.owed():
        most = max(most, await looking.fetchval(_CONNECTIONS, "relay dispatcher%"))
        if time.monotonic() > ends:
            raise RuntimeError("the backlog was not drained within two minutes")
        await asyncio.sleep(0.2)
    return most


async def flow(ground: Installation) -> list[str]:
    """Rows of the table: of appends in groups, of a drain, of posts one by one."""
    looking = await asyncpg.connect(ground.dsn)
    try:
        await ground.migrate()
        rows = []
        with child("relay.loadtest.sink") as sink:
            async with counting(ground, looking) as appended:
                await ground.fill(sink_url(sink), Shape(EVENTS, ENDPOINTS, PAYLOAD_BYTES))
            rows.append(appended.row("an event appended, in groups of 500", EVENTS))
            async with counting(ground, looking) as sent:
                with ground.dispatcher(1):
                    connections = await drained(ground, looking)
            rows.append(sent.row("a delivery of a backlog: claim, send, record", EVENTS))
        say(f"a dispatcher had {connections} connections at most")
        for table in await looking.fetch(_VERSIONS):
            each, hot = table["updated"] / EVENTS, table["hot"] / max(table["updated"], 1)
            say(f"{table['relname']}: {each:.2f} updates a delivery, {hot:.0%} of them in place (HOT)")
        for dispatchers in DISPATCHERS:
            async with counting(ground, looking) as steady:
                await measure(Load(RATE, STEADY_SECONDS, 1, PAYLOAD_BYTES, 1, dispatchers), ground)
            title = f"an event at {RATE:.0f}/s from its post to its ack, dispatchers: {dispatchers}"
            rows.append(steady.row(title, int(RATE * STEADY_SECONDS)))
        return rows
    finally:
        await looking.close()


async def wakeups(ground: Installation) -> list[str]:
    """Rows of the table: what a wake-up costs the server, by how many listen."""
    rows = []
    for listeners in LISTENERS:
        heard = [await asyncpg.connect(ground.dsn) for _ in range(listeners)]
        teller = await asyncpg.connect(ground.dsn)
        try:
            for each in heard:
                await each.add_listener(CHANNEL, lambda *_: None)
            before = ground.postgres_seconds()
            for _ in range(NOTICES):
                await teller.execute("select pg_notify($1, '')", CHANNEL)
                await asyncio.sleep(0.002)
            spent = ground.postgres_seconds() - before
        finally:
            for each in (*heard, teller):
                await each.close()
        rows.append(f"| a wake-up that {listeners} hear | | 1 | {1e6 * spent / NOTICES:.0f} |")
    return rows


async def count() -> list[str]:
    """All rows."""
    with installation(say) as ground:
        return [*await flow(ground), *await wakeups(ground)]


def main() -> int:
    """Count and print the table."""
    rows = asyncio.run(count())
    say("| | bytes of log | transactions | µs of the server's processor |\n|---|---|---|---|")
    say("\n".join(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
