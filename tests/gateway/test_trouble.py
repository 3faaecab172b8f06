"""Claims about a database that refuses an append: for what is in an event, or for others' locks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from relay.domain.ambient import Ambient
from relay.domain.failure import FailureReason
from relay.domain.telemetry import AppendCommitted, JournalCouldNotWrite, RejectReason, RequestFailed, RequestRefused
from relay.gateway.appender import (
    ANSWER_SECONDS,
    APPEND_SECONDS,
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    REDONE_SECONDS,
    Appender,
)
from relay.gateway.submission import Submission
from relay.store.faults import StoreUnavailable
from relay.store.journal import Journal
from tests.gateway.world import World, event
from tests.support.asgi import Reply
from tests.support.said import said
from tests.support.world import real_ambient

_TRIGGER = """
create function judge() returns trigger language plpgsql as $$ begin {body} return new; end $$;
create trigger judge before insert on journal for each row execute function judge();
"""
UNFIT = "if new.type = 'guilty' then raise exception 'no such date' using errcode = '22007'; end if;"
BROKEN = "if new.type = 'guilty' then raise exception 'a rule' using errcode = '23514'; end if;"
CROSSED = "if nextval('tries') <= {times} then raise exception 'crossed' using errcode = '40P01'; end if;"
ALWAYS = 10**9


async def judged(world: World, body: str) -> None:
    """From now on the database judges each event that is appended."""
    async with world.database.connection() as connection:
        await connection.execute("create sequence tries;" + _TRIGGER.format(body=body))


async def posted_together(world: World, *types: str) -> list[Reply]:
    """Events that share one append: what comes while another one is under way."""
    async with world.appends_held():
        first = asyncio.create_task(world.post())
        await world.until_an_append_waits()
        together = [asyncio.create_task(world.post(event(each))) for each in types]
        await world.until_waiting(len(together))
    assert (await first).status == 202
    return [await each for each in together]


@pytest.mark.parametrize("guilty", [(0,), (7,), (19,), (3, 4, 11), tuple(range(20))], ids=str)
async def test_only_the_event_that_the_database_refuses_is_refused(world: World, guilty: tuple[int, ...]) -> None:
    await judged(world, UNFIT)
    replies = await posted_together(world, *("guilty" if n in guilty else "innocent" for n in range(20)))
    assert tuple(n for n, reply in enumerate(replies) if reply.status != 202) == guilty
    assert {reply.code for reply in replies if reply.status == 422} == {"unstorable"}
    assert [await world.count(table) for table in ("journal", "receipts")] == [21 - len(guilty)] * 2


async def test_who_shared_an_append_with_a_refused_event_keeps_its_place(world: World) -> None:
    await judged(world, UNFIT)
    replies = await posted_together(world, *("innocent" if n != 5 else "guilty" for n in range(12)))
    positions = [reply.json()["journal_pos"] for reply in replies if reply.status == 202]
    assert positions == [f"p06:{n}" for n in range(2, 13)]


async def test_one_guilty_event_costs_its_group_few_appends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await judged(world, UNFIT)
    counted, append = itertools.count(), Journal.append

    async def counting(*arguments: object) -> object:
        next(counted)
        return await append(*arguments)  # type: ignore[arg-type] # handed on as they came

    monkeypatch.setattr(Journal, "append", counting)
    await posted_together(world, *("innocent" if n != 37 else "guilty" for n in range(64)))
    assert next(counted) == 1 + 1 + 2 * 6, "the one that was under way, the group, and two halves each time"


async def test_a_refused_event_counts_as_refused_and_is_logged_without_its_payload(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await judged(world, UNFIT)
    reply = await world.post(event("guilty", card="4111"))
    assert (reply.status, reply.code) == (422, "unstorable")
    assert world.ear.of(RequestRefused) == [RequestRefused(RejectReason.MALFORMED)]
    assert "no such date" in said(caplog)
    assert "4111" not in said(caplog)


async def test_a_rule_that_an_event_breaks_is_relays_own_fault_and_the_others_are_stored(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await judged(world, BROKEN)
    replies = await posted_together(world, "innocent", "guilty", "innocent")
    assert [reply.status for reply in replies] == [202, 500, 202]
    assert replies[1].code == "internal"
    assert "a rule" in said(caplog)
    assert world.ear.of(RequestFailed) == [RequestFailed(FailureReason.INTERNAL)]


async def test_requests_of_one_name_are_refused_one_by_one(world: World) -> None:
    await judged(world, UNFIT)
    key = ("Idempotency-Key", "the-same")
    async with world.appends_held():
        first = asyncio.create_task(world.post())
        await world.until_an_append_waits()
        named = [asyncio.create_task(world.post(event(each), key)) for each in ("guilty", "guilty", "innocent")]
        await world.until_waiting(len(named))
    assert [(await each).status for each in (first, *named)] == [202, 422, 422, 202]


async def test_the_next_events_share_their_appends_again(world: World) -> None:
    await judged(world, UNFIT)
    await posted_together(world, "guilty", "innocent")
    world.ear.heard.clear()
    await posted_together(world, *["innocent"] * 9)
    assert [each.events for each in world.ear.of(AppendCommitted)] == [1, 9]


@dataclass
class Patience:
    """A clock that moves by the pauses that are made, and remembers them."""

    pauses: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self.pauses.append(seconds)

    def ambient(self) -> Ambient:
        """A world with this clock, in which chance always draws a half."""
        return replace(real_ambient(), monotonic=lambda: sum(self.pauses), draw=lambda: 0.5, sleep=self.sleep)


@pytest.fixture
def patience() -> Patience:
    return Patience()


@pytest.fixture
async def patient(database_dsn: str, patience: Patience) -> AsyncIterator[World]:
    """A gateway that waits by that clock."""
    async with World.over(database_dsn, ambient=patience.ambient()) as made:
        yield made


async def test_others_locks_are_waited_for_longer_each_time(patient: World, patience: Patience) -> None:
    await judged(patient, CROSSED.format(times=8))
    assert (await patient.post()).status == 202
    planned = [min(FIRST_PAUSE_SECONDS * 2**n, LONGEST_PAUSE_SECONDS) for n in range(8)]
    assert patience.pauses == [pause * 0.75 for pause in planned]


async def test_the_first_pause_is_short_again_after_a_success(patient: World, patience: Patience) -> None:
    await judged(patient, CROSSED.format(times=3))
    await patient.post()
    await patient.sql("select setval('tries', 2)")
    so_far = len(patience.pauses)
    await patient.post()
    assert patience.pauses[so_far:] == [FIRST_PAUSE_SECONDS * 0.75]


async def test_an_event_waits_for_others_locks_for_so_long_and_no_longer(patient: World, patience: Patience) -> None:
    await judged(patient, CROSSED.format(times=ALWAYS))
    reply = await patient.post()
    assert (reply.status, reply.code) == (503, "database_unavailable")
    assert reply.headers["retry-after"] == "1"
    assert REDONE_SECONDS <= sum(patience.pauses) < REDONE_SECONDS + LONGEST_PAUSE_SECONDS
    assert await patient.stored_nothing()


async def test_a_drain_ends_the_wait_for_others_locks(database_dsn: str) -> None:
    asleep, for_ever = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        asleep.set()
        await for_ever.wait()

    async with World.over(database_dsn, ambient=replace(real_ambient(), sleep=sleep)) as world:
        await judged(world, CROSSED.format(times=ALWAYS))
        posts = [asyncio.create_task(world.post()) for _ in range(3)]
        async with asyncio.timeout(10):
            await asleep.wait()
        assert await world.gateway.drain(0.05) == 3
        assert [(await each).code for each in posts] == ["draining"] * 3


@dataclass
class Hanging:
    """A database that hangs until it is given up, and the clock by which that takes as long as it may.

    Nothing is given up before so many events have been taken in, and whoever is answered has heard it.
    """

    events: int
    now: float = 0.0
    hangs: bool = False
    appends: int = 0
    began: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    taken: list[Submission] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)

    @property
    def answered(self) -> int:
        """How many events have got their answer."""
        return sum(submission.outcome.done() for submission in self.taken)

    def stand_before(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on hear of every event and every append, and let these hang when told."""
        append, take = Journal.append, Appender.take

        async def hang(journal: Journal, *arguments: Any, **named: Any) -> Any:
            if not self.hangs:
                return await append(journal, *arguments, **named)
            self.appends += 1
            self.began.set()
            async with asyncio.timeout(10):
                while len(self.taken) < self.events or len(self.waited) < self.answered:
                    self.changed.clear()
                    await self.changed.wait()
            self.now = self.appends * APPEND_SECONDS
            raise StoreUnavailable("it hung")

        def note(taker: Appender, submission: Submission) -> None:
            take(taker, submission)
            self.taken.append(submission)
            self.changed.set()

        monkeypatch.setattr(Journal, "append", hang)
        monkeypatch.setattr(Appender, "take", note)


async def test_no_sender_waits_long_for_a_database_that_hangs(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever came while an append hung must not wait for the next one to hang as well."""
    hanging = Hanging(events=20)

    async def post(world: World, number: int) -> None:
        hanging.now = began = number * APPEND_SECONDS / hanging.events
        reply = await world.post(event(), ("Idempotency-Key", f"key-{number}"))
        hanging.waited.append(hanging.now - began)
        hanging.changed.set()
        assert (reply.status, reply.code) == (503, "database_unavailable")
        assert "same Idempotency-Key" in reply.json()["detail"]

    ambient = replace(real_ambient(), monotonic=lambda: hanging.now)
    async with World.over(database_dsn, ambient=ambient) as world:
        hanging.stand_before(monkeypatch)
        hanging.hangs = True
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(post(world, 0))
            await hanging.began.wait()
            for number in range(1, hanging.events):
                group.create_task(post(world, number))
        assert (len(hanging.waited), hanging.appends) == (hanging.events, 2)
        assert max(hanging.waited) <= ANSWER_SECONDS
        away = RequestFailed(FailureReason.DATABASE_UNAVAILABLE)
        assert world.ear.of(RequestFailed) == [away] * hanging.events
        hanging.hangs = False
        assert (await world.post(event(), ("Idempotency-Key", "key-0"))).status == 202


async def test_a_database_that_answers_and_cannot_write_is_counted_apart(world: World, database_dsn: str) -> None:
    """As with a full disk, or behind a failover."""
    async with world.database.connection() as connection:
        name = urlsplit(database_dsn).path[1:]
        await connection.execute(f"alter database {name} set default_transaction_read_only = on")
    async with World.over(database_dsn) as standby:
        reply = await standby.post(event())
    assert (reply.status, reply.code) == (503, "database_unavailable")
    assert standby.ear.of(JournalCouldNotWrite) == [JournalCouldNotWrite()]
    assert standby.ear.of(RequestFailed) == [RequestFailed(FailureReason.DATABASE_UNAVAILABLE)]
