"""What Relay costs among a million endpoints, by counting: `make bench-scale`, or `python -m tests.loadtest.scale`.

Owns what is counted and the table of it, which `docs/scaling.md` shows. Blocks of the server, bytes and processor time
are counted, which other work on the machine does not change much; seconds are told only where they are the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from relay.domain.endpoint import EndpointConfig
from relay.domain.secret import Secret
from relay.domain.telemetry import Process
from relay.loadtest.installation import Installation, installation
from relay.metrics import Metrics
from relay.store import statements
from relay.store.credentials import CredentialReader
from relay.store.database import Commits, Database
from relay.store.endpoints import Endpoints
from relay.store.health import LANES_AT_ONCE
from relay.store.queue import FIRST_LANE, Queue
from relay.store.vault import Vault, new_key
from tests.store import bulk

WITHIN_SECONDS = 600.0
Answer = TypeVar("Answer")

PER_TENANT = 100
"""Endpoints of each tenant."""
KEYS = 100_000
TIMES = 5
TICK = 0.05
"""Processor seconds below this are too few to be told from none."""
CLAIMS = 20
BATCH = 300

_TENANTS = """
insert into tenants (id, name, partition)
select 'acct_' || n, 'Tenant ' || n, get_byte(sha256(convert_to('acct_' || n, 'UTF8')), 0) % 16
from generate_series(1, $1::integer) n
"""
_ENDPOINTS = """
with secret as (
    insert into secrets (id, ciphertext) values (gen_random_uuid(), '') returning id
), made as (
    insert into endpoints (id, tenant, name, url, event_types, rate_per_second, burst, max_in_flight, secret_id)
    select gen_random_uuid(), 'acct_' || 1 + n / $2::integer, 'consumer-' || n, 'https://hooks.example.com/' || n,
           '{invoice.paid,order.*}', 1e5, 1e5, 32, s.id
    from generate_series(0, $1::integer - 1) n cross join secret s
    returning id
)
insert into endpoint_state (endpoint_id, answered_at) select m.id, now() from made m
"""
_CREDENTIALS = """
with made as (
    insert into tenants (id, name, partition)
    select 'acct_k' || n, 'Tenant ' || n, n % 16 from generate_series(1, $1::integer) n returning id
)
insert into keys (id, tenant, name, scopes, secret_sha256)
select gen_random_uuid(), m.id, 'own', '{admin}', sha256(convert_to(m.id, 'UTF8')) from made m
"""
# what a process asks every few seconds or for a page, with values that it asks with
_ASKED: tuple[tuple[str, str, tuple[object, ...]], ...] = (
    ("measure_queue", "the gauges, each 5 s", (1800.0, 259_200.0, 300.0)),
    ("measure_lateness", "lateness, each 5 s and per /readyz", (FIRST_LANE, LANES_AT_ONCE)),
    ("bury_removed", "the reaper, each 5 s", (500,)),
    ("next_due", "when to claim next", ([], [], [], 4, True, 256)),
    ("list_endpoints", "a page of 50 endpoints", ("acct_1", uuid.UUID(int=(1 << 128) - 1), 51)),
    ("let_go_of_endpoint_secrets", "old secrets, each hour", (200, 3600.0)),
)


def say(line: str) -> None:
    """A line for whoever watches."""
    print(line, flush=True)  # noqa: T201 # this is what the command is for


@dataclass(slots=True)
class Column:
    """What was counted with so many endpoints, in the order of the rows."""

    title: str
    cells: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bench:
    """One database with endpoints in it, and whoever counts."""

    ground: Installation
    database: Database
    claims: Database
    column: Column

    def tell(self, row: str, cell: str) -> None:
        self.column.cells[row] = cell
        say(f"{self.column.title:>30}  {row}: {cell}")

    async def count(self) -> None:
        """Count everything, the queue empty at first, then with work in few lanes, then in very many."""
        await self.count_snapshot()
        await self.count_asked("nothing owed")
        await self.count_claims("nothing owed", CLAIMS)
        async with self.database.connection() as connection:
            lanes = [row[0] for row in await connection.fetch("select id from endpoints order by id")]
        await self.owe(BATCH * CLAIMS, lanes[:BATCH])
        await self.count_claims(f"{BATCH} lanes with work", CLAIMS)
        await self.count_asked(f"{BATCH} lanes with work")
        if len(lanes) > 100_000:
            await self.owe(200_000, lanes[: len(lanes) // 10])
            await self.count_claims("a tenth of the lanes with work", CLAIMS)
            await self.count_asked("a tenth of the lanes with work")
            await self.count_credentials()

    async def owe(self, rows: int, lanes: list[uuid.UUID]) -> None:
        """So many deliveries more."""
        async with self.database.connection() as connection:
            await bulk.owe(connection, rows, lanes)
            await bulk.analyze(connection)

    async def count_snapshot(self) -> None:
        """What a gateway keeps and reads."""
        endpoints = Endpoints(self.database, Vault([new_key()]))
        before = _memory()
        took, stall, snapshot = await _watched(endpoints.snapshot)
        rules = sum(1 for _ in snapshot.rules.rules)
        self.tell("a gateway reads all rules", f"{took:.1f} s of its processor, {1e3 * stall:.0f} ms at once at most")
        self.tell("its memory", f"{(_memory() - before) / max(rules, 1):,.0f} bytes an endpoint")
        tenant = snapshot.rules.rules[0].tenant
        began = time.process_time()
        for place in range(1, 1001):
            snapshot.rules.route(tenant, f"order.paid.{place}")
        self.tell(f"routing an event to {PER_TENANT}", f"{1e3 * (time.process_time() - began):.0f} µs")
        spent = []
        for _ in range(TIMES):
            await endpoints.create(
                tenant,
                uuid.uuid4(),
                EndpointConfig(name=uuid.uuid4().hex, url="https://hooks.example.com/"),
                secret_id=uuid.uuid4(),
                secret=Secret("whsec_x"),
            )
            known = snapshot
            began = time.process_time()
            snapshot = await endpoints.snapshot(known)
            spent.append(time.process_time() - began)
        self.tell("it follows a change", f"{1e3 * min(spent):.1f} ms of its processor")

    async def count_credentials(self) -> None:
        """What every gateway reads and keeps after each change of a key."""
        async with self.database.connection() as connection:
            await connection.execute(_CREDENTIALS, KEYS)
            for table in ("tenants", "keys"):
                await connection.execute(f"vacuum (analyze) {table}")
        reader = CredentialReader(self.database, Vault([new_key()]), monotonic=time.monotonic)
        before, spent = _memory(), self.ground.postgres_seconds()
        took, stall, found = await _watched(lambda: reader.read(None))
        spent = self.ground.postgres_seconds() - spent
        assert found is not None, "nothing is known before"
        self.tell(
            f"a gateway reads {KEYS:,} tenants with a key each",
            f"{spent:.1f} s of the server's processor, {took:.1f} s of its own, {1e3 * stall:.0f} ms at once at most,"
            f" {(_memory() - before) / KEYS:,.0f} bytes each",
        )

    async def count_asked(self, title: str) -> None:
        """Blocks of the server that each statement looks at."""
        for name, what, arguments in _ASKED:
            began = self.ground.postgres_seconds()
            async with self.database.connection() as connection, connection.transaction():
                text = await connection.fetchval(
                    f"explain (analyze, buffers, format json) {statements.text(name)}", *arguments
                )
            top = json.loads(text)[0]
            blocks = top["Plan"]["Shared Hit Blocks"] + top["Plan"]["Shared Read Blocks"]
            spent = self.ground.postgres_seconds() - began
            self.tell(f"{what} ({title})", f"{blocks:,} blocks" + (f", {1e3 * spent:.0f} ms" if spent >= TICK else ""))

    async def count_claims(self, title: str, claims: int) -> None:
        """The server's processor time of claims, one after the other, and what they bring."""
        queue = Queue(self.claims, self.database)
        after, rows = FIRST_LANE, 0
        await queue.claim_due(after=after, batch=1, token=uuid.uuid4(), lease_seconds=600)
        began = self.ground.postgres_seconds()
        for _ in range(claims):
            claim = await queue.claim_due(after=after, batch=BATCH, token=uuid.uuid4(), lease_seconds=600)
            after = claim.resume_after
            rows += len(claim.deliveries)
        spent = self.ground.postgres_seconds() - began
        cell = f"{rows / claims:.0f} rows, {1e3 * spent / claims:.1f} ms of the server's processor"
        self.tell(f"a claim ({title})", cell + (f", {1e6 * spent / rows:.0f} µs a row" if rows else ""))


async def _watched(work: Callable[[], Awaitable[Answer]]) -> tuple[float, float, Answer]:
    """Processor seconds that it took, how many of them it kept others from running at most, and what came of it."""
    longest, over = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal longest
        while not over.is_set():
            began = time.process_time()
            await asyncio.sleep(0.002)
            longest = max(longest, time.process_time() - began)

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        began = time.process_time()
        answer = await work()
        took = time.process_time() - began
        over.set()
    return took, longest, answer


def _memory() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


@asynccontextmanager
async def filled(ground: Installation, endpoints: int, column: Column) -> AsyncIterator[Bench]:
    """The installation's database with so many endpoints."""
    await ground.migrate()
    database = await Database.connect(ground.dsn, name="scale", size=2, within=WITHIN_SECONDS)
    claims = await Database.connect(ground.dsn, name="scale", size=1, commits=Commits.LAZY, within=WITHIN_SECONDS)
    try:
        async with database.connection() as connection:
            await connection.execute(_TENANTS, 1 + endpoints // PER_TENANT)
            await connection.execute(_ENDPOINTS, endpoints, PER_TENANT)
            await connection.execute("vacuum (analyze) tenants")
            await bulk.analyze(connection)
        yield Bench(ground, database, claims, column)
    finally:
        await claims.close()
        await database.close()


def exposition_bytes(consumers: int) -> tuple[int, int]:
    """How long the text of a dispatcher's metrics is, and how many lines it has, once so many consumers were seen."""
    metrics = Metrics(Process.DISPATCHER)
    metrics.introduce(f"consumer-{n}" for n in range(consumers))
    text = metrics.exposition()[1]
    metrics.close()
    return len(text), text.count(b"\n")


def table(columns: list[Column]) -> str:
    """The columns side by side, as the document shows them."""
    rows = dict.fromkeys(row for column in columns for row in column.cells)
    lines = ["| | " + " | ".join(column.title for column in columns) + " |", "|---" * (1 + len(columns)) + "|"]
    lines += [f"| {row} | " + " | ".join(column.cells.get(row, "") for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def main() -> int:
    """Count with few endpoints and with many, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.loadtest.scale")
    parser.add_argument("--endpoints", type=int, nargs="+", default=[1_000, 1_000_000])
    asked = parser.parse_args()
    columns = []

    async def count(ground: Installation, number: int) -> None:
        columns.append(Column(f"{number:,} endpoints"))
        async with filled(ground, number, columns[-1]) as bench:
            await bench.count()
        size, lines = exposition_bytes(number)
        bench.tell("/metrics of a dispatcher", f"{size / 1024:,.0f} KiB in {lines:,} lines")

    for number in asked.endpoints:
        with installation(say) as ground:
            asyncio.run(count(ground, number))
    say(table(columns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
