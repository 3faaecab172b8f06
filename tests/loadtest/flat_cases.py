"""The cases of `make bench-flat`: what is special about each, and how an installation comes to be like that.

Owns the sizes. Everything is owed as an append would have left it. Invariant: the plain case and each other one differ
in what the case is about, and in nothing else.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from relay.loadtest import backlog
from relay.loadtest.backlog import Shape
from relay.loadtest.installation import Installation
from relay.store.database import Connection, Database
from relay.store.vault import Vault, new_key
from tests.loadtest import past
from tests.store import bulk

FLAT = 1.5
"""How much more a delivery may cost than a plain one, as for claims."""

SAME_SHARE = 1.25
"""How much smaller than the plain case's the share of a floor may be that is reached."""

DAYS = 28
"""Days of history: all of them younger than what retention takes away."""

WITHIN_SECONDS = 600.0

NO_TIME = timedelta()
"""All that is owed in a round is due now, as what is appended is: behind what was taken before."""


@dataclass(frozen=True, slots=True)
class Case:
    """So many `rows` are drained in each round, to so many endpoints. Besides, so many deliveries are `due` all the
    while, and so many lie behind, of days that are over.

    With `own_floor`, the bare client is slower too: what is judged then is which share of that is reached.
    """

    name: str
    title: str
    rows: int = 40_000
    endpoints: int = 10
    payload_bytes: int = 300
    fan_out: int = 1
    due: int = 0
    history: int = 0
    tls: bool = False
    own_floor: bool = False
    wanted: float = FLAT

    def smaller(self, share: float) -> Case:
        """The same with this share of all rows, for whoever tries out the measurement itself."""
        rows = max(self.fan_out, int(self.rows * share))
        return replace(self, rows=rows, due=int(self.due * share), history=int(self.history * share))


PLAIN = Case("plain", "10 endpoints, payloads of 300 bytes")
CASES = (
    Case("due", "1,000,000 rows due", due=1_000_000),
    Case("history", "10,000,000 events in 28 days behind", history=10_000_000),
    Case("endpoints", "10,000 endpoints", rows=80_000, endpoints=10_000),
    Case("fan-out", "1,000 deliveries to a receipt", endpoints=1_000, fan_out=1_000),
    Case("payload", "payloads of 100 KiB", rows=4_000, payload_bytes=102_400, own_floor=True, wanted=SAME_SHARE),
    Case("tls", "receivers with TLS", tls=True, own_floor=True, wanted=SAME_SHARE),
)


async def prepare(case: Case, ground: Installation, database: Database, url: str) -> None:
    """Endpoints that are owed an event each, and what else there is in this case."""
    await ground.fill(url, Shape(case.endpoints, case.endpoints, 300))
    today = datetime.now(UTC).date()
    for days in range(DAYS if case.history else 0):
        day = today - timedelta(days=days + 1)
        await past.events(database, day, case.history // DAYS, payload=b"x" * 300)
        await past.attempts(database, day, case.history // DAYS)
    async with database.connection() as connection:
        if case.due:
            await bulk.owe(connection, case.due, await lanes(connection), since=NO_TIME, apart=NO_TIME)
        await bulk.analyze(connection)


async def owe(case: Case, database: Database, rows: int) -> None:
    """Owe so many deliveries more."""
    async with database.connection() as connection:
        to = await lanes(connection)
        if case.fan_out == 1:
            await bulk.owe(connection, rows, to, payload=odd_payload(case.payload_bytes), since=NO_TIME, apart=NO_TIME)
    if case.fan_out > 1:
        shape = Shape(-(-rows // case.fan_out), len(to), case.payload_bytes, fan_out=case.fan_out)
        await backlog.fill(database, Vault([new_key()]), to, shape)


async def lanes(connection: Connection) -> list[UUID]:
    """The endpoints there are."""
    return [row[0] for row in await connection.fetch("select id from endpoints where removed_at is null order by id")]


def odd_payload(size: int) -> bytes:
    """So many bytes of text that compress as little as a digest does: to half."""
    digests, length = [], 0
    while length < size:
        digests.append(hashlib.sha256(length.to_bytes(8, "big")).hexdigest())
        length += 64
    return "".join(digests)[:size].encode()
