"""What the hot statements and the pages touch does not grow with what lies around it: counted in blocks, not in time.

What is asked of a small database is asked of larger ones as well: one with twenty times as much due in as many lanes
and 28 days behind, and one with ten thousand lanes. They may touch no more than the few levels more that their indexes
have.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice

import asyncpg
import pytest

from relay.domain import ids
from relay.domain.delivery import ClaimedDelivery, DeadReason, DeliveryStatus
from relay.store.database import _SESSION, Database
from relay.store.dead_letters import DeadLetters
from relay.store.filters import DeadLetterFilter, ReceiptFilter
from relay.store.history import NEWEST, History
from tests.loadtest import past
from tests.store import bulk
from tests.store.world import TENANT, World, attempt, event, named, new_id, only
from tests.support.database import TEMPLATE, Server

BATCH = 300
PAGE = 50
DAYS = 28
ALLOWED = 1.5
"""How much more may be touched in a larger one: an index of 100,000 rows is a level deeper than one of a thousand."""

IN_MANY_LANES = 2.0
"""How much more by a claim that takes five rows of each of 64 lanes instead of thirty of each of ten."""


@dataclass(frozen=True, slots=True)
class Size:
    """So many deliveries due in so many lanes, and so many delivered ones in each of the days behind."""

    name: str
    due: int
    lanes: int
    each_day: int


SMALL = Size("relay_small", 5_000, 10, 0)
DEEP = Size("relay_deep", 100_000, 10, 1_000)
WIDE = Size("relay_wide", 50_000, 10_000, 0)
SIZES = (SMALL, DEEP, WIDE)


@dataclass(frozen=True, slots=True)
class Watched:
    """A world whose session tells what each statement of it touched."""

    world: World
    told: list[str]

    @property
    def blocks(self) -> int:
        """How many blocks were touched by what was told of, and since: it is forgotten."""
        plans = [json.loads(message.split("plan:", 1)[1])["Plan"] for message in self.told if "plan:" in message]
        self.told.clear()
        assert plans, "something was asked"
        return sum(int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]) for plan in plans)


async def fill(dsn: str, size: Size) -> None:
    """Everything of that size, as if it had been at work for weeks; a fifth of what is due is dead."""
    database = await Database.connect(dsn, name="filler", size=1)
    async with database.connection() as connection:
        lanes = await bulk.add_lanes(connection, size.lanes)
    today = datetime.now(UTC).date()
    for days in range(DAYS if size.each_day else 0):
        day = today - timedelta(days=days + 2)
        await past.events(database, day, size.each_day, payload=b"{}")
        await past.attempts(database, day, size.each_day)
    async with database.connection() as connection:
        await bulk.owe(connection, size.due, lanes)
        await connection.execute(
            "update deliveries set status = 'dead', dead_reason = 'exhausted', dead_at = now()"
            " where status = 'pending' and get_byte(uuid_send(id), 5) % 5 = 0"
        )
        await bulk.analyze(connection)
    await database.close()


@pytest.fixture(scope="module")
def dsns(database_server: Server) -> Iterator[dict[Size, str]]:
    """A database of each size."""

    async def make(size: Size) -> str:
        dsn = await database_server.clone(TEMPLATE, size.name)
        await fill(dsn, size)
        return dsn

    yield {size: asyncio.run(make(size)) for size in SIZES}
    for size in SIZES:
        asyncio.run(database_server.drop(size.name))


@asynccontextmanager
async def watching(dsn: str) -> AsyncIterator[Watched]:
    """A session as the store has them, which tells of each statement."""
    connection = await asyncpg.connect(dsn, server_settings=_SESSION)
    told: list[str] = []
    await connection.execute("load 'auto_explain'; set client_min_messages = notice")
    for setting in ("log_min_duration = 0", "log_level = notice", "log_format = json", "log_timing = off"):
        await connection.execute(f"set auto_explain.{setting}")
    await connection.execute("set auto_explain.log_analyze = on; set auto_explain.log_buffers = on")
    connection.add_log_listener(lambda _, message: told.append(str(message)))
    yield Watched(World.over(only(connection)), told)
    await connection.close()


@pytest.fixture
async def small(dsns: dict[Size, str]) -> AsyncIterator[Watched]:
    """The small one."""
    async with watching(dsns[SMALL]) as watched:
        yield watched


@pytest.fixture
async def deep(dsns: dict[Size, str]) -> AsyncIterator[Watched]:
    """The one with much due and much behind."""
    async with watching(dsns[DEEP]) as watched:
        yield watched


@pytest.fixture
async def wide(dsns: dict[Size, str]) -> AsyncIterator[Watched]:
    """The one with many lanes."""
    async with watching(dsns[WIDE]) as watched:
        yield watched


async def claim(watched: Watched) -> list[ClaimedDelivery]:
    """Some claimed rows; what that touched is forgotten."""
    claimed = list((await watched.world.claim(batch=BATCH)).deliveries)
    watched.told.clear()
    return claimed


async def claim_costs(watched: Watched) -> float:
    """Blocks for each row of a claim."""
    claimed = (await watched.world.claim(batch=BATCH)).deliveries
    assert len(claimed) > BATCH / 2
    return watched.blocks / len(claimed)


async def record_costs(watched: Watched) -> float:
    """Blocks for each row that is recorded."""
    claimed = await claim(watched)
    assert len(claimed) > BATCH / 2
    await watched.world.record(*(attempt(each) for each in claimed))
    return watched.blocks / len(claimed)


async def append_costs(watched: Watched) -> float:
    """Blocks for each event that is appended."""
    lanes = [row["id"] for row in await watched.world.sql("select id from endpoints order by id limit 10")]
    group = [event(to=(lane,), key=named(new_id().hex)) for lane in islice(cycle(lanes), BATCH)]
    versions = await watched.world.versions()
    watched.told.clear()
    await watched.world.journal.append(versions, group)
    return watched.blocks / len(group)


each_cost = pytest.mark.parametrize("costs", [claim_costs, record_costs, append_costs])


@each_cost
async def test_a_row_costs_as_many_blocks_with_twenty_times_as_much_due_and_weeks_behind(
    small: Watched, deep: Watched, costs: Callable[[Watched], Awaitable[float]]
) -> None:
    assert await costs(deep) <= ALLOWED * await costs(small)


@pytest.mark.parametrize(
    ("costs", "allowed"), [(claim_costs, IN_MANY_LANES), (record_costs, ALLOWED), (append_costs, ALLOWED)]
)
async def test_a_row_costs_about_as_many_blocks_with_ten_thousand_lanes(
    small: Watched, wide: Watched, costs: Callable[[Watched], Awaitable[float]], allowed: float
) -> None:
    assert await costs(wide) <= allowed * await costs(small)


async def receipts(watched: Watched, wanted: ReceiptFilter, days: float = 0.0) -> int:
    """Blocks for a page of receipts from so many days ago on."""
    before = ids.first_at(datetime.now(UTC) - timedelta(days=days)) if days else NEWEST
    page = await History(watched.world.database).receipts(TENANT, wanted, before=before, limit=PAGE)
    assert len(page.items) == PAGE
    return watched.blocks


async def first_lane(watched: Watched) -> str:
    """The name of an endpoint."""
    name = await watched.world.value("select name from endpoints order by id limit 1")
    watched.told.clear()
    return str(name)


RECEIPTS = {
    "all": ReceiptFilter(),
    "open": ReceiptFilter(open=True),
    "open, of some types": ReceiptFilter(open=True, type="invoice.*"),
    "of a type": ReceiptFilter(type="invoice.paid"),
    "of some types": ReceiptFilter(type="invoice.*"),
}


@pytest.mark.parametrize("wanted", RECEIPTS.values(), ids=RECEIPTS)
async def test_a_page_of_receipts_costs_as_many_blocks_among_many(
    small: Watched, deep: Watched, wanted: ReceiptFilter
) -> None:
    assert await receipts(deep, wanted) <= ALLOWED * await receipts(small, wanted)


async def test_a_page_of_receipts_of_one_consumer_costs_as_many_blocks_among_many(
    small: Watched, deep: Watched
) -> None:
    costs = [await receipts(each, ReceiptFilter(consumer=await first_lane(each))) for each in (deep, small)]
    assert costs[0] <= ALLOWED * costs[1]


@pytest.mark.parametrize("wanted", [ReceiptFilter(), ReceiptFilter(type="invoice.paid"), ReceiptFilter(open=False)])
@pytest.mark.parametrize("days", [3, 15, 28])
async def test_a_page_from_weeks_ago_costs_as_many_blocks_as_the_first(
    deep: Watched, wanted: ReceiptFilter, days: float
) -> None:
    first = await receipts(deep, replace(wanted, open=None))
    assert await receipts(deep, wanted, days) <= ALLOWED * first


async def dead_letters(watched: Watched, wanted: DeadLetterFilter) -> int:
    """Blocks for a page of dead letters."""
    page = await DeadLetters(watched.world.database).list(TENANT, wanted, limit=PAGE)
    assert len(page.items) == PAGE
    return watched.blocks


@pytest.mark.parametrize("wanted", [DeadLetterFilter(), DeadLetterFilter(reason=DeadReason.EXHAUSTED)])
async def test_a_page_of_dead_letters_costs_as_many_blocks_among_many(
    small: Watched, deep: Watched, wanted: DeadLetterFilter
) -> None:
    assert await dead_letters(deep, wanted) <= ALLOWED * await dead_letters(small, wanted)


@pytest.mark.parametrize("status", [None, DeliveryStatus.PENDING])
async def test_a_page_of_an_endpoints_deliveries_costs_as_many_blocks_among_many(
    small: Watched, deep: Watched, status: DeliveryStatus | None
) -> None:
    costs = []
    for watched in (deep, small):
        endpoint = await watched.world.value("select id from endpoints order by id limit 1")
        watched.told.clear()
        page = await History(watched.world.database).deliveries(TENANT, endpoint, status=status, limit=PAGE)
        assert len(page.items) == PAGE
        costs.append(watched.blocks)
    assert costs[0] <= ALLOWED * costs[1]


async def test_a_page_of_endpoints_costs_what_its_rows_do_and_not_what_there_are(wide: Watched) -> None:
    """In the small one there is no page of them; with each row its lane's state is looked up."""
    costs = []
    for rows in (5, PAGE):
        assert len(await wide.world.endpoints.list(TENANT, limit=rows)) == rows
        costs.append(wide.blocks / rows)
    assert costs[1] <= costs[0]


async def test_a_receipt_with_its_attempts_costs_as_many_blocks_among_many_days(small: Watched, deep: Watched) -> None:
    costs = []
    for watched in (deep, small):
        claimed = (await watched.world.claim(batch=1)).deliveries[0]
        await watched.world.record(attempt(claimed))
        watched.told.clear()
        view = await watched.world.receipts.get(TENANT, claimed.receipt_id)
        assert view is not None
        assert len(await watched.world.receipts.attempts(view.deliveries[0])) == 1
        costs.append(watched.blocks)
    assert costs[0] <= ALLOWED * costs[1]
