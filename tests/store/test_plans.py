"""Plans: what the statements count on is what PostgreSQL uses, at a size at which it matters.

A hundred thousand deliveries lie in two thousand lanes, half of them in one that is paused. Plans are asked for as a
session has them that planned while everything was still empty: generic, cached, and never made anew.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

from relay.domain.delivery import DeliveryMove
from relay.domain.outcome import LaneNotice
from relay.store import statements
from relay.store.database import _SESSION, Connection
from relay.store.queue import FIRST_LANE, UNBOUNDED
from relay.store.statements import Statement
from tests.store import bulk
from tests.store.world import World, attempt, event, held, named, new_id, only
from tests.support.database import TEMPLATE, Server
from tests.support.run import once

ROWS = 100_000
LANES = 2_000
BIG = ("deliveries", "journal", "receipts", "delivery_attempts", "idempotency_keys")
DATABASE = "relay_plans"

# What an insert counts on is a constraint, which no plan shows; nor does a plan of a call show what the function does.
UNIQUE_ONLY = {"insert_endpoint", "insert_secret", "owe_anew", "claim_request_key", "keep_verification"} | {
    "insert_key", "insert_source", "insert_tenant", "claim_signed_requests", "insert_audit_entry",
}  # fmt: skip
CALLS = {"append_events", "record_outcomes", "void_events", "ack_deliveries", "ensure_partitions"} | {
    "expire_dead_letters", "prune_journal_day", "sweep_pruned_day",
}  # fmt: skip
# Small by nature (one row per process, one row in all, all of it is wanted), or read once at a start: whether an index
# is used does not matter.
WHOLE_TABLES = {
    "longest_timeouts",
    "bump_rules",
    "changed_rules",
    "report_heartbeat",
    "forget_heartbeats",
    "last_heartbeat",
    "count_present",
    "read_credentials",
    "bump_schemas",
    "load_catalogue",
    "bump_credentials",
}

# These count all that is pending or in flight, by the narrowest index there is.
COUNTS = {"count_owed", "measure_queue"}

# With these, only the partitions of one day are left when a plan begins to run; with null, there would be none.
SAMPLES = {
    "journal day": "(now() at time zone 'UTC')::date",
    "journal_day date": "(now() at time zone 'UTC')::date",
    "not before": "now() - interval '1 hour'",
    "from day": "(now() at time zone 'UTC')::date",
}

EXPLAINED = [
    each for each in statements.load().values() if each.indexes and each.name not in UNIQUE_ONLY | CALLS | WHOLE_TABLES
]


@dataclass(slots=True)
class Plan:
    """What a plan does: which indexes it uses, which tables it reads from end to end, and which indexes it sweeps: from
    one end to the other, into a bitmap, before the first row comes out."""

    indexes: set[str] = field(default_factory=set)
    read_whole: set[str] = field(default_factory=set)
    swept: set[str] = field(default_factory=set)

    def add(self, node: dict[str, Any]) -> Plan:
        """Take a node of a plan in, with everything below it."""
        if "Index Name" in node:
            self.indexes.add(parent(node["Index Name"]))
        if node["Node Type"] == "Seq Scan":
            self.read_whole.add(parent(node["Relation Name"]))
        if node["Node Type"] == "Bitmap Index Scan" and "Index Cond" not in node:
            self.swept.add(parent(node["Index Name"]))
        for below in node.get("Plans", ()):
            self.add(below)
        return self


def parent(name: str) -> str:
    """The name of the partitioned table or index that a day's belongs to; what is meant to be empty keeps its own."""
    return re.sub(r"^(journal|delivery_attempts)_(?:[0-9]{8}|default(?=_))", r"\1", name)


async def prepare(connection: Connection, statement: Statement) -> None:
    """Prepare a statement under its name and have it planned, generic, on what is there now."""
    await connection.execute(f"prepare {statement.name} as {statement.text}")
    await explain(connection, statement)


async def explain(connection: Connection, statement: Statement) -> Plan:
    """The plan that the session has for a prepared statement."""
    values = ", ".join(SAMPLES.get(each, "null") for each in statement.parameters)
    call = f"{statement.name}({values})" if values else statement.name
    answer = await connection.fetchval(f"explain (format json) execute {call}")
    return Plan().add(json.loads(answer)[0]["Plan"])


@pytest.fixture(scope="module")
def plans_dsn(database_server: Server) -> Iterator[str]:
    """A database of its own for this module: migrated, and filled by the first test that needs it full."""
    yield asyncio.run(database_server.clone(TEMPLATE, DATABASE))
    asyncio.run(database_server.drop(DATABASE))


async def session(dsn: str) -> asyncpg.Connection:
    """A session as the store has them, planning as if for ever."""
    settings = _SESSION
    return await asyncpg.connect(dsn, server_settings=settings)


async def fill(connection: Connection) -> None:
    """A hundred thousand deliveries, half of them of one paused endpoint. Nothing is analyzed."""
    lanes = await bulk.add_lanes(connection, LANES)
    await bulk.owe(connection, ROWS, lanes, last_lanes_share=0.5)
    await connection.execute("update endpoints set status = 'paused' where id = $1", lanes[-1])
    await connection.execute(
        "update deliveries set status = 'in_flight', lease_token = id, lease_until = now()"
        " where id in (select id from deliveries limit 2000)"
    )
    await connection.execute(
        "update deliveries set status = 'dead', dead_reason = 'exhausted', dead_at = now()"
        " where id in (select id from deliveries where status = 'pending' limit 2000)"
    )


async def plans_of(connection: Connection) -> dict[str, Plan]:
    """The plan of each statement, as this session has it."""
    return {each.name: await explain(connection, each) for each in EXPLAINED}


@pytest.fixture(scope="module")
def plans(plans_dsn: str) -> dict[str, dict[str, Plan]]:
    """The plans made on empty tables, the same after the statistics came in, and those of a new session.

    Tables are filled once for all workers.
    """

    async def collect() -> dict[str, dict[str, Plan]]:
        early = await session(plans_dsn)
        for statement in EXPLAINED:
            await prepare(early, statement)
        filler = await session(plans_dsn)
        await fill(filler)
        found = {"planned on empty tables": await plans_of(early)}
        soon = await session(plans_dsn)
        for statement in EXPLAINED:
            await prepare(soon, statement)
        found["planned on full tables that nobody has analyzed"] = await plans_of(soon)
        await bulk.analyze(filler)
        found["planned anew"] = await plans_of(early)
        late = await session(plans_dsn)
        for statement in EXPLAINED:
            await prepare(late, statement)
        found["planned on full tables"] = await plans_of(late)
        for each in (early, soon, filler, late):
            await each.close()
        return found

    return once("plans", lambda: asyncio.run(collect()))


@pytest.fixture(scope="module")
def full_dsn(plans: dict[str, dict[str, Plan]], plans_dsn: str) -> str:
    """The module's database when it is full: another worker may have collected the plans, on its own."""

    async def fill_if_empty() -> None:
        filler = await session(plans_dsn)
        if not await filler.fetchval("select exists (select from endpoints)"):
            await fill(filler)
            await bulk.analyze(filler)
        await filler.close()

    asyncio.run(fill_if_empty())
    return plans_dsn


moments = pytest.mark.parametrize(
    "moment",
    [
        "planned on empty tables",
        "planned on full tables that nobody has analyzed",
        "planned anew",
        "planned on full tables",
    ],
)


@moments
@pytest.mark.parametrize("statement", EXPLAINED, ids=lambda each: each.name)
def test_a_statement_uses_the_indexes_that_it_names(
    plans: dict[str, dict[str, Plan]], moment: str, statement: Statement
) -> None:
    used = plans[moment][statement.name].indexes
    assert [each for each in statement.indexes if each.isdisjoint(used)] == []


@moments
@pytest.mark.parametrize("statement", EXPLAINED, ids=lambda each: each.name)
def test_no_statement_reads_a_big_table_from_end_to_end(
    plans: dict[str, dict[str, Plan]], moment: str, statement: Statement
) -> None:
    assert plans[moment][statement.name].read_whole.isdisjoint(BIG)


@moments
@pytest.mark.parametrize("statement", EXPLAINED, ids=lambda each: each.name)
def test_no_statement_sweeps_an_index_of_a_big_table(
    plans: dict[str, dict[str, Plan]], moment: str, statement: Statement
) -> None:
    """A claim's rows were found by their ids and by the index of all that is pending, as long as the planner took that
    for small: each claim then paid for the whole backlog."""
    swept = plans[moment][statement.name].swept
    assert statement.name in COUNTS or [index for index in swept if index.startswith(BIG)] == []


@moments
@pytest.mark.parametrize(
    "name",
    ["claim_due", "get_receipt", "show_receipts", "read_payload", "end_of_window", "examine_records", "examine_keys"],
)
def test_an_event_is_found_by_its_receipt_even_in_a_day_that_was_empty_when_that_was_planned(
    plans: dict[str, dict[str, Plan]], moment: str, name: str
) -> None:
    of_the_journal = {index for index in plans[moment][name].indexes if index.startswith("journal")}
    assert {index.removesuffix("_pkey") for index in of_the_journal} <= {"journal", "journal_default"}


@pytest.fixture
async def watched(full_dsn: str) -> AsyncIterator[tuple[World, list[str]]]:
    """A world over the full database whose session tells each plan that it executes, inside functions too."""
    connection = await session(full_dsn)
    told: list[str] = []
    await connection.execute("load 'auto_explain'; set client_min_messages = notice")
    for setting in ("log_min_duration = 0", "log_nested_statements = on", "log_level = notice", "log_format = json"):
        await connection.execute(f"set auto_explain.{setting}")
    connection.add_log_listener(lambda _, message: told.append(str(message)))
    yield World.over(only(connection)), told
    await connection.close()


def executed(told: list[str]) -> Plan:
    """Everything that the plans told of do."""
    plan = Plan()
    for message in told:
        if "plan:" in message:
            plan.add(json.loads(message.split("plan:", 1)[1])["Plan"])
    return plan


async def test_an_append_finds_everything_by_index(watched: tuple[World, list[str]]) -> None:
    world, told = watched
    group = [event(to=(new_id(), new_id()), key=named(f"k{number}")) for number in range(20)]
    await world.append(*group)
    told.clear()
    await world.append(*group)
    plan = executed(told)
    assert {"idempotency_keys_pkey", "journal_pkey"} <= plan.indexes
    assert plan.read_whole.isdisjoint(BIG)


async def test_a_record_finds_everything_by_index(watched: tuple[World, list[str]]) -> None:
    world, told = watched
    claimed = (await world.claim(batch=50)).deliveries
    assert len(claimed) == 50
    told.clear()
    await world.record(*(attempt(each) for each in claimed))
    plan = executed(told)
    assert {"deliveries_pkey", "receipts_pkey"} <= plan.indexes
    assert plan.read_whole.isdisjoint(BIG)


async def test_a_record_from_which_lanes_learn_finds_them_by_index(watched: tuple[World, list[str]]) -> None:
    """Failures for the breaker, and holds, which look for others with the same credential."""
    world, told = watched
    claimed = (await world.claim(batch=50)).deliveries
    told.clear()
    notices = [LaneNotice(answered=False), held(1.0)]
    await world.record(
        *(attempt(each, DeliveryMove.RETRY, lane=notices[place % 2]) for place, each in enumerate(claimed))
    )
    plan = executed(told)
    assert {"endpoint_state_pkey", "endpoints_pkey", "endpoints_credential"} <= plan.indexes
    assert plan.read_whole.isdisjoint({*BIG, "endpoints", "endpoint_state"})


async def test_lateness_touches_each_lane_and_not_its_rows(watched: tuple[World, list[str]]) -> None:
    world, _ = watched
    async with world.database.connection() as connection:
        answer = await connection.fetchval(
            f"explain (analyze, buffers, format json) {statements.text('measure_lateness')}", FIRST_LANE, 20_000
        )
    top = json.loads(answer)[0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < LANES * 15


async def test_the_gauges_of_the_queue_read_indexes_and_no_rows(watched: tuple[World, list[str]]) -> None:
    """A hundred thousand rows lie in some thousand blocks; their index entries in some hundred."""
    world, _ = watched
    async with world.database.connection() as connection:
        answer = await connection.fetchval(
            f"explain (analyze, buffers, format json) {statements.text('measure_queue')}", 1800.0, 3600.0, 300.0
        )
    top = json.loads(answer)[0]["Plan"]
    assert heap_fetches(top) < ROWS / 10
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < LANES * 20


def heap_fetches(node: dict[str, Any]) -> int:
    """How many rows were looked up although an index had what was asked for, or because it had not."""
    below = sum(heap_fetches(each) for each in node.get("Plans", ()))
    if node.get("Relation Name") != "deliveries" or node["Node Type"] == "Index Only Scan":
        return below + int(node.get("Heap Fetches", 0))
    return below + int(node["Actual Rows"] * node["Actual Loops"])


async def test_a_claim_touches_few_rows_however_many_a_closed_lane_holds(watched: tuple[World, list[str]]) -> None:
    """Fifty thousand rows lie in a closed lane, the last one; the claim passes it and may not even look at them."""
    world, _ = watched
    near_the_end = await world.value("select id from endpoints order by id desc offset 50 limit 1")
    async with world.database.connection() as connection, connection.transaction():
        await connection.execute("select pg_stat_force_next_flush()")
        answer = await connection.fetchval(
            f"explain (analyze, buffers, format json) {statements.text('claim_due')}",
            near_the_end, 300, new_id(), 60.0, [], [], [], UNBOUNDED, UNBOUNDED, [], True, 10.0, 5.0, False, None,
        )  # fmt: skip # the arguments of one call
    top = json.loads(answer)[0]["Plan"]
    # around the end it comes to lanes from which other tests have claimed
    assert 49 * 5 <= top["Actual Rows"] <= 300
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 300 * 40
