"""A link to the database that dies without a word, at any moment: each loop finds out within its bound and goes on by
itself, and whatever was under way is neither lost nor done twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from relay.dispatcher import maintainer, pruner, reaper, reconciler, recorder, reporter
from relay.domain.telemetry import Loop, LoopCrashed, LoopHeldUp, LoopSucceeded, ReceiptsClosed
from relay.store import database as database_module
from relay.store import health, wakeups
from relay.store.database import Database
from tests.support.dispatching import TUNING, House
from tests.support.link import Link
from tests.support.receiver import Receiver

WITHIN_SECONDS = 1.0
EVENTS = 5
DEADLINE = 30.0

QUICK = replace(TUNING, heartbeat_seconds=0.2)
PERIODS = (
    (maintainer, "EVERY_SECONDS"),
    (pruner, "EVERY_SECONDS"),
    (reaper, "EVERY_SECONDS"),
    (reconciler, "EVERY_SECONDS"),
    (recorder, "QUIET_SECONDS"),
    (reporter, "EVERY_SECONDS"),
    (wakeups, "QUIET_SECONDS"),
)
BOUNDS = ((health, "MEASURING_SECONDS"), (wakeups, "ANSWER_SECONDS"), (wakeups, "CONNECT_TIMEOUT"))

STATEMENTS = {
    Loop.CLAIMER: b"with recursive announced",
    Loop.RECORDER: b"record_outcomes",
    Loop.REAPER: b"reaped as (",
    Loop.RECONCILER: b"with late as materialized",
    Loop.HEARTBEAT: b"insert into heartbeats",
    Loop.MAINTAINER: b"ensure_day_partitions",
    Loop.PRUNER: b"delete from idempotency_keys",
    Loop.REPORTER: b"journal_default_partition_rows",
}
"""A piece of the text of what each loop asks."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops that go round several times a second, and wait for an answer for a second."""
    for module, period in PERIODS:
        monkeypatch.setattr(module, period, 0.2)
    for module, bound in BOUNDS:
        monkeypatch.setattr(module, bound, WITHIN_SECONDS)
    monkeypatch.setitem(database_module._SESSION, "idle_in_transaction_session_timeout", "1s")


@pytest.fixture
async def link(database_dsn: str) -> AsyncIterator[Link]:
    async with Link(database_dsn) as made:
        yield made


def rounds(house: House, loop: Loop) -> int:
    """How often a loop has succeeded."""
    return sum(each.loop is loop for each in house.heard(LoopSucceeded))


def is_held_up(house: House, loop: Loop) -> bool:
    return any(each.loop is loop for each in house.heard(LoopHeldUp))


def closed(house: House) -> int:
    return sum(each.count for each in house.heard(ReceiptsClosed))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("loop", STATEMENTS)
async def test_a_link_that_dies_in_the_middle_of_a_statement_holds_up_its_loop_alone_and_loses_nothing(
    link: Link, database: Database, receiver: Receiver, loop: Loop
) -> None:
    """The server has carried the statement out, and its answer never comes."""
    house = House(link.dsn, database)
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(QUICK, within=WITHIN_SECONDS):
        await house.until(lambda: rounds(house, loop) > 0)
        link.strand_next(STATEMENTS[loop])
        await house.events(EVENTS, endpoint)
        await house.until(lambda: is_held_up(house, loop), DEADLINE)
        before = rounds(house, loop)
        if loop is Loop.CLAIMER:  # nobody knows of this lease: it has to run out
            await house.execute("update deliveries set lease_until = now() - interval '1 second' where attempts = 1")
        await house.until(lambda: closed(house) == EVENTS and rounds(house, loop) > before, DEADLINE)
    assert link.strandings == 1
    assert len(receiver.received()) == EVENTS
    assert house.heard(LoopCrashed) == []


@pytest.mark.usefixtures("quick")
async def test_every_loop_goes_on_by_itself_when_all_links_have_died_and_new_ones_are_there_again(
    link: Link, database: Database, receiver: Receiver
) -> None:
    house = House(link.dsn, database)
    loops = {*STATEMENTS, Loop.WAKEUPS}
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(QUICK, within=WITHIN_SECONDS):
        await house.until(lambda: all(rounds(house, loop) for loop in loops))
        await house.events(EVENTS, endpoint)
        link.strand(new_ones_too=True)
        await house.until(lambda: all(is_held_up(house, loop) for loop in loops - {Loop.RECORDER}), DEADLINE)
        link.come_up()
        await house.execute(
            "update deliveries set lease_until = now() - interval '1 second' where status = 'in_flight'"
        )
        before = {loop: rounds(house, loop) for loop in loops}
        await house.events(EVENTS, endpoint)
        await house.until(lambda: all(rounds(house, loop) > before[loop] for loop in loops), DEADLINE)
        await house.until(lambda: closed(house) == 2 * EVENTS, DEADLINE)
    assert house.heard(LoopCrashed) == []
