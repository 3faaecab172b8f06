"""Deliveries through a broker: what is announced, who claims it, and that nothing is lost or doubled by it.

The broker is the one in memory, which passes the suite that Redis passes; the database is real.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from relay.broker import Broker, BrokerUnavailable, Message
from relay.dispatcher import consumer as consuming
from relay.dispatcher import mode
from relay.domain.housekeeping import BrokerStrangersFound
from relay.domain.outcome import HandBackReason
from relay.domain.telemetry import (
    AttemptsRecorded,
    BrokerModeChanged,
    DeliveriesHandedBack,
    Loop,
    LoopCrashed,
    ProcessStopped,
)
from relay.store import announcing
from relay.store.journal import Journal
from relay.store.queue import Claim, Queue
from tests.store.world import event
from tests.support.dispatching import TUNING, House
from tests.support.gate import Gate
from tests.support.installation import eventually
from tests.support.memory_broker import MemoryBroker, MemoryStream
from tests.support.receiver import Receiver

QUICK = replace(TUNING, sweep_seconds=1.0)


@pytest.fixture
def stream() -> MemoryStream:
    return MemoryStream()


def consumer(house: House, stream: MemoryStream, name: str = "one") -> MemoryBroker:
    return MemoryBroker(stream, consumer=name, emit=house.ear)


def attempted(house: House) -> Counter[UUID]:
    """How often each delivery was attempted, as recorded."""
    return Counter(fact.delivery_id for told in house.heard(AttemptsRecorded) for fact in told.attempts)


async def until_attempted(house: House, number: int) -> None:
    """Return once so many deliveries were attempted."""
    await house.until(lambda: len(attempted(house)) >= number)


def modes(house: House) -> list[bool]:
    return [told.active for told in house.heard(BrokerModeChanged)]


async def until_standing(broker: Broker, *, unread: int, pending: int) -> None:
    """Return once the broker holds just that."""

    async def is_standing() -> bool:
        standing = await broker.standing()
        return (standing.unread, standing.pending) == (unread, pending)

    await eventually(is_standing, 10, f"{unread} are unread, {pending} pending")


async def quiet(broker: Broker) -> None:
    """Return once everything that was announced is acknowledged."""
    await until_standing(broker, unread=0, pending=0)


async def until_asked(stream: MemoryStream, call: str, times: int) -> None:
    """Return once the broker was asked this so often."""

    async def is_asked() -> bool:
        return stream.calls.get(call, 0) >= times

    await eventually(is_asked, 10, f"{call} is called {times} times")


async def holding_two_of_four(house: House, gate: Gate, endpoint: UUID, stream: MemoryStream) -> None:
    """Return once two deliveries are at the gate, and one message with two more is held."""
    await house.until(lambda: modes(house) == [True])
    await house.events(4, endpoint)
    await gate.visits(2, 10)
    await until_standing(consumer(house, stream, "looks"), unread=0, pending=1)
    # it has tried to read, has claimed what it could of what it read then, and reads on
    await until_asked(stream, "receive", 3)


async def rows(house: House, sql: str) -> list[Any]:
    async with house.database.connection() as connection:
        return list(await connection.fetch(sql))


async def test_what_is_accepted_is_announced_claimed_by_its_id_and_delivered_once(
    house: House, receiver: Receiver, stream: MemoryStream
) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(broker=consumer(house, stream)):
        await house.until(lambda: modes(house) == [True])
        await house.events(200, endpoint)
        await house.until(lambda: len(attempted(house)) == 200)
    assert (set(attempted(house).values()), stream.calls["announce"] > 0) == ({1}, True)
    assert not house.heard(LoopCrashed)


async def test_every_message_is_acknowledged(house: House, receiver: Receiver, stream: MemoryStream) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    broker = consumer(house, stream)
    async with house.dispatching(broker=broker):
        await house.until(lambda: modes(house) == [True])
        await house.events(100, endpoint)
        await house.until(lambda: len(attempted(house)) == 100)
    standing = await broker.standing()
    assert (standing.unread, standing.pending) == (0, 0)


async def test_two_dispatchers_share_what_is_announced_and_send_nothing_twice(
    house: House, receiver: Receiver, stream: MemoryStream
) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with (
        house.dispatching(broker=consumer(house, stream, "one")),
        house.dispatching(broker=consumer(house, stream, "two")),
    ):
        await house.until(lambda: modes(house) == [True, True])
        await house.events(500, endpoint)
        await house.until(lambda: len(attempted(house)) == 500)
    assert set(attempted(house).values()) == {1}


async def test_a_dispatcher_that_comes_later_has_its_window_full_while_more_is_due_than_both_take(
    house: House, stream: MemoryStream
) -> None:
    """What was announced before sits with the first one, whose window is full."""
    tuning = replace(TUNING, drain_seconds=0.1, sweep_seconds=3_600.0, heartbeat_seconds=0.2)
    async with Gate() as gate:
        endpoint = await house.endpoint(gate.url, max_in_flight=4)
        async with house.dispatching(tuning, broker=consumer(house, stream, "one")):
            await house.until(lambda: modes(house) == [True])
            await house.events(40, endpoint)
            await gate.visits(4, 10)
            await until_standing(consumer(house, stream, "looks"), unread=0, pending=2)
            async with house.dispatching(tuning, broker=consumer(house, stream, "two")):
                await gate.visits(4, 10)


async def test_the_windows_of_a_whole_fleet_are_full_again_after_each_answer(
    house: House, stream: MemoryStream
) -> None:
    """Three dispatchers, and a lane that is deeper than all of their windows: the shape of a backlog."""
    tuning = replace(TUNING, drain_seconds=0.1, sweep_seconds=3_600.0, heartbeat_seconds=0.2)
    async with Gate() as gate, AsyncExitStack() as stack:
        endpoint = await house.endpoint(gate.url, max_in_flight=4)
        for number in range(3):
            await stack.enter_async_context(house.dispatching(tuning, broker=consumer(house, stream, str(number))))
        await house.until(lambda: modes(house) == [True] * 3)
        await house.events(80, endpoint)
        for _ in range(5):
            for visit in await gate.visits(12, 10):
                visit.answer()


async def test_what_the_broker_loses_is_announced_again(house: House, receiver: Receiver, stream: MemoryStream) -> None:
    """C130: the stream is emptied while everything in it waits for a lane that is full."""
    endpoint = await house.endpoint(receiver.url("/slow?ms=30"))
    async with house.dispatching(QUICK, broker=consumer(house, stream)):
        await house.until(lambda: modes(house) == [True])
        await house.events(100, endpoint)
        await house.until(lambda: len(attempted(house)) >= 10)
        stream.flush()
        await house.until(lambda: len(attempted(house)) == 100)
    assert set(attempted(house).values()) == {1}


async def test_without_the_broker_deliveries_are_polled_for_and_with_it_announced_again(
    house: House, receiver: Receiver, stream: MemoryStream
) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(QUICK, broker=consumer(house, stream)):
        await house.until(lambda: modes(house) == [True])
        stream.is_away = True
        await house.events(50, endpoint)
        await house.until(lambda: len(attempted(house)) == 50)
        assert modes(house) == [True, False]
        stream.is_away = False
        await house.until(lambda: modes(house) == [True, False, True])
        await house.events(50, endpoint)
        await house.until(lambda: len(attempted(house)) == 100)
    assert set(attempted(house).values()) == {1}


async def test_a_claim_that_is_lost_is_acknowledged_and_dropped(house: House, stream: MemoryStream) -> None:
    broker, other = consumer(house, stream), consumer(house, stream, "other")
    async with house.dispatching(broker=broker):
        await house.until(lambda: modes(house) == [True])
        await other.announce([[uuid4() for _ in range(50)]] * 4)
        await quiet(other)
    assert not house.heard(LoopCrashed)


async def test_ids_that_are_fed_twice_are_not_sent_twice(
    house: House, receiver: Receiver, stream: MemoryStream
) -> None:
    """C130."""
    endpoint = await house.endpoint(receiver.url("/slow?ms=20"))
    other = consumer(house, stream, "other")
    async with house.dispatching(broker=consumer(house, stream)), house.dispatching(broker=other):
        await house.until(lambda: modes(house) == [True, True])
        await house.events(100, endpoint)
        owed = [row[0] for row in await rows(house, "select id from deliveries")]
        await other.announce([owed[:50], owed[50:], owed[:50], owed[50:]])
        await house.until(lambda: len(attempted(house)) == 100)
        await quiet(other)
    assert (set(attempted(house).values()), len(receiver.received())) == ({1}, 100)


async def test_what_was_announced_before_it_was_there_is_delivered_within_a_poll(
    house: House, receiver: Receiver, stream: MemoryStream
) -> None:
    """C113: the word came before the commit, found no row and was dropped; no wake-up and no traffic follows."""
    endpoint = await house.endpoint(receiver.url("/ok"))
    other = consumer(house, stream, "other")
    addition = event(to=(endpoint,))
    async with house.dispatching(broker=consumer(house, stream)):
        await house.until(lambda: modes(house) == [True])
        await other.announce([[addition.fan_out[0][0]]])
        await quiet(other)
        snapshot = await house.endpoints.snapshot()
        await Journal(house.database, key_retention_seconds=60).append(snapshot.versions, [addition])
        await house.until(lambda: len(attempted(house)) == 1)


async def test_a_retry_waits_in_the_database_and_is_sent_once_when_it_is_due(
    house: House, receiver: Receiver, stream: MemoryStream
) -> None:
    """C126: with eight dispatchers, whose broker holds nothing of it meanwhile."""
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with AsyncExitStack() as stack:
        for number in range(8):
            await stack.enter_async_context(house.dispatching(broker=consumer(house, stream, str(number))))
        await house.until(lambda: modes(house) == [True] * 8)
        await house.execute("update endpoints set status = 'paused', revision = revision + 1")
        await house.event(endpoint)
        await house.execute("update deliveries set due_at = now() + interval '12 hours'")
        await house.execute("update endpoints set status = 'active', revision = revision + 1")
        standing = await consumer(house, stream).standing()
        assert (standing.unread, standing.pending) == (0, 0)
        await house.pass_time(12 * 3600)
        await house.until(lambda: len(attempted(house)) == 1)
        await quiet(consumer(house, stream))
    assert len(receiver.received()) == 1


async def test_a_stop_announces_anew_what_it_has_read_and_not_claimed(house: House, stream: MemoryStream) -> None:
    async with Gate() as gate:
        endpoint = await house.endpoint(gate.url, max_in_flight=2)
        async with house.dispatching(replace(TUNING, drain_seconds=0.1), broker=consumer(house, stream)):
            await holding_two_of_four(house, gate, endpoint, stream)
        standing = await consumer(house, stream, "other").standing()
        assert standing.pending == 0
        assert len({delivery for message in stream.announced for delivery in message}) == 2


async def test_a_stop_drains_beside_a_broker_that_hangs(
    house: House, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "LET_GO_SECONDS", 3_600.0)
    stream.bound_seconds = 3_600.0

    async def nothing_is_leased() -> bool:
        return not await rows(house, "select id from deliveries where status = 'in_flight'")

    async with Gate() as gate:
        endpoint = await house.endpoint(gate.url, max_in_flight=2)
        async with house.dispatching(replace(TUNING, drain_seconds=0.1), broker=consumer(house, stream)) as running:
            await holding_two_of_four(house, gate, endpoint, stream)
            stream.freeze()
            running.stop.set()
            await eventually(nothing_is_leased, 10, "every lease is over")
            assert not running.task.done()
            stream.thaw()


async def test_a_stop_waits_for_a_broker_that_hangs_no_longer_than_its_bound(
    house: House, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "LET_GO_SECONDS", 0.1)
    stream.bound_seconds = 3_600.0
    async with Gate() as gate:
        endpoint = await house.endpoint(gate.url, max_in_flight=2)
        async with house.dispatching(replace(TUNING, drain_seconds=0.1), broker=consumer(house, stream)) as running:
            await holding_two_of_four(house, gate, endpoint, stream)
            stream.freeze()
            running.stop.set()
            await running.task
    assert [told.abandoned for told in house.heard(ProcessStopped)] == [0]


class Stuck(MemoryBroker):
    """Has a bug where it is closed."""

    async def close(self) -> None:
        raise ValueError("not closed")


async def test_a_bug_in_taking_leave_of_the_broker_leaves_no_lease_behind(house: House, stream: MemoryStream) -> None:
    async with Gate() as gate:
        endpoint = await house.endpoint(gate.url, max_in_flight=2)
        with pytest.raises(ValueError, match="not closed"):
            async with house.dispatching(
                replace(TUNING, drain_seconds=0.1), broker=Stuck(stream, consumer="one", emit=house.ear)
            ):
                await holding_two_of_four(house, gate, endpoint, stream)
    assert [told.abandoned for told in house.heard(ProcessStopped)] == [0]
    assert await rows(house, "select id from deliveries where status = 'in_flight'") == []


async def test_what_is_announced_again_while_it_is_held_leaves_nothing_at_the_broker(
    house: House, stream: MemoryStream
) -> None:
    """By a sweep, say: each word of a full lane would stay pending until the lane has room."""
    async with Gate() as gate:
        endpoint = await house.endpoint(gate.url, max_in_flight=2)
        async with house.dispatching(replace(TUNING, drain_seconds=0.1), broker=consumer(house, stream)):
            await holding_two_of_four(house, gate, endpoint, stream)
            held = [row["id"] for row in await rows(house, "select id from deliveries where status = 'pending'")]
            other = consumer(house, stream, "other")
            for _ in range(5):
                await other.announce([held])
            await until_standing(other, unread=0, pending=1)


async def test_a_lane_that_hangs_costs_few_claims_and_keeps_no_other_lane(
    house: House, receiver: Receiver, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims: list[float] = []
    claim_due = Queue.claim_due

    async def noting(queue: Queue, **wanted: Any) -> Claim:
        claims.append(time.monotonic())
        return await claim_due(queue, **wanted)

    monkeypatch.setattr(Queue, "claim_due", noting)
    async with Gate() as gate:
        hanging, healthy = await house.endpoint(gate.url, max_in_flight=2), await house.endpoint(receiver.url("/ok"))
        async with house.dispatching(replace(TUNING, drain_seconds=0.1), broker=consumer(house, stream)):
            await house.until(lambda: modes(house) == [True])
            await house.events(50, hanging)
            await gate.visits(2, 10)
            claims.clear()
            began = time.monotonic()
            await house.until(lambda: len(claims) >= 8 or time.monotonic() - began > 10)
            # from below: a machine that is busy makes it longer
            assert time.monotonic() - began > 1.0, "each quarter of a second is enough"
            await house.events(20, healthy)
            await receiver.arrive(20, 10)


async def test_what_is_read_for_a_full_lane_does_not_slow_down_what_is_left_over(
    house: House, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims of what was just read are in vain here, since somebody has that already; then something lands."""
    claims: list[Sequence[UUID]] = []
    claim_due = Queue.claim_due

    async def noting(queue: Queue, **wanted: Any) -> Claim:
        claim = await claim_due(queue, **wanted)
        claims.extend([wanted["announced"]] if wanted.get("announced") else [])
        return claim

    monkeypatch.setattr(Queue, "claim_due", noting)
    monkeypatch.setattr(consuming, "AGAIN_SECONDS", 3_600.0)
    async with Gate() as gate:
        endpoint = await house.endpoint(gate.url, max_in_flight=1)
        async with house.dispatching(replace(TUNING, drain_seconds=0.1), broker=consumer(house, stream)):
            await house.until(lambda: modes(house) == [True])
            await house.events(2, endpoint)
            (first,) = await gate.visits(1, 10)
            for _ in range(16):
                claims.clear()
                await consumer(house, stream, "other").announce([[UUID(first.delivery_id)]])
                await house.until(lambda: claims != [])
            first.answer()
            await gate.visits(1, 10)


async def test_where_permits_are_scarce_nothing_is_let_go_for_what_is_read_after_it(
    house: House, receiver: Receiver, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was let go stays pending at the broker until it is reclaimed."""
    monkeypatch.setattr(consuming, "MOST_HELD", 300)
    lanes = [await house.endpoint(receiver.url("/slow?ms=50")) for _ in range(40)]
    tuning = replace(TUNING, concurrency=32, claim=replace(TUNING.claim, batch=32))
    other, most = consumer(house, stream, "other"), 0
    async with house.dispatching(tuning, broker=consumer(house, stream)):
        await house.until(lambda: modes(house) == [True])
        await house.events(30, *lanes)
        for number in range(20, 801, 20):
            await until_attempted(house, number)
            most = max(most, (await other.standing()).pending)
    assert 0 < most <= 12, "of 24 messages of fifty"


async def test_an_idle_consumer_asks_the_broker_once_per_wait(
    house: House, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    receive = MemoryBroker.receive

    async def noting(broker: MemoryBroker, *, count: int, wait_seconds: float) -> Sequence[Message]:
        waits.append(wait_seconds)
        return await receive(broker, count=count, wait_seconds=wait_seconds)

    monkeypatch.setattr(MemoryBroker, "receive", noting)
    monkeypatch.setattr(consuming, "WAIT_SECONDS", 0.2)
    async with house.dispatching(broker=consumer(house, stream)):
        await house.until(lambda: modes(house) == [True])
        waits.clear()
        await house.until(lambda: len(waits) >= 10)
    assert set(waits) == {0.2}
    assert "announce" not in stream.calls


async def test_where_nobody_announces_a_dispatcher_looks_by_itself(
    house: House, receiver: Receiver, stream: MemoryStream
) -> None:
    """Somebody has the lock and says nothing to this broker, say one whose broker is another one."""
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.database.kept_connection() as leads:
        assert await leads.fetchval("select pg_try_advisory_lock($1)", announcing.PUBLISHING_LOCK)
        async with house.dispatching(replace(TUNING, sweep_seconds=0.5), broker=consumer(house, stream)):
            await house.until(lambda: modes(house) == [True])
            await house.events(150, endpoint)
            await house.until(lambda: len(attempted(house)) == 150)
        await leads.execute("select pg_advisory_unlock_all()")
    assert "announce" not in stream.calls


async def test_a_broker_that_hangs_is_done_without(house: House, receiver: Receiver, stream: MemoryStream) -> None:
    """C134."""
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(QUICK, broker=consumer(house, stream)):
        await house.until(lambda: modes(house) == [True])
        stream.freeze()
        await house.events(50, endpoint)
        await house.until(lambda: len(attempted(house)) == 50)
        assert modes(house) == [True, False]
        stream.thaw()
        await house.until(lambda: modes(house) == [True, False, True])
    assert set(attempted(house).values()) == {1}


async def test_a_broker_that_is_away_from_the_start_is_told_of_once(
    house: House, receiver: Receiver, stream: MemoryStream
) -> None:
    stream.is_away = True
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(QUICK, broker=consumer(house, stream)):
        await house.events(50, endpoint)
        await house.until(lambda: len(attempted(house)) == 50)
        await until_asked(stream, "receive", 3)
    assert modes(house) == [False]


async def test_what_is_not_on_the_quorum_is_not_sent_because_it_was_announced(
    house: House, receiver: Receiver, stream: MemoryStream
) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    tuning = replace(TUNING, quorum=2, quorum_seconds=0.05)
    async with house.dispatching(tuning, broker=consumer(house, stream)):
        await house.until(lambda: modes(house) == [True])
        await house.event(endpoint)
        await house.until(lambda: bool(house.heard(DeliveriesHandedBack)))
        await house.until(lambda: len(house.heard(DeliveriesHandedBack)) >= 2)
    reasons = {each.reason for each in house.heard(DeliveriesHandedBack)}
    assert (reasons, receiver.received()) == ({HandBackReason.QUORUM}, [])


async def test_a_broker_that_takes_no_writes_is_told_of_once_and_used_again_when_it_does(
    house: House, receiver: Receiver, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A primary that was demoted, or cannot save: it answers what it holds all the while."""
    monkeypatch.setattr(consuming, "PROBE_SECONDS", 0.02)
    monkeypatch.setattr(mode, "REST_SECONDS", 0.02)
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(QUICK, broker=consumer(house, stream)):
        await house.until(lambda: modes(house) == [True])
        await until_asked(stream, "receive", 2)  # after the trial it waits for a message
        stream.demote()
        asked = stream.calls["receive"]
        for number in range(1, 11):
            await house.events(5, endpoint)
            await house.until(lambda: len(attempted(house)) == 5 * number)  # noqa: B023 - it is over with this round
        await until_asked(stream, "receive", asked + 5)
        assert modes(house) == [True, False]
        stream.promote()
        await house.until(lambda: modes(house) == [True, False, True])
        await house.events(50, endpoint)
        await house.until(lambda: len(attempted(house)) == 100)
        await quiet(consumer(house, stream))
    assert (modes(house), set(attempted(house).values())) == ([True, False, True], {1})


class Deaf(MemoryBroker):
    """Answers every trial, and never waits for a message."""

    async def receive(self, *, count: int, wait_seconds: float) -> Sequence[Message]:
        if wait_seconds:
            raise BrokerUnavailable("no permission to wait")
        return await super().receive(count=count, wait_seconds=wait_seconds)


async def test_a_broker_that_answers_and_does_not_serve_is_tried_more_and_more_seldom(
    house: House, receiver: Receiver, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mode, "REST_SECONDS", 0.05)
    endpoint = await house.endpoint(receiver.url("/ok"))
    began = time.monotonic()
    async with house.dispatching(broker=Deaf(stream, consumer="deaf", emit=house.ear)):
        await house.events(20, endpoint)
        await house.until(lambda: len(attempted(house)) == 20)
        await house.until(lambda: modes(house).count(False) == 5)
    assert time.monotonic() - began > 0.05 * (1 + 2 + 4 + 8)


class Odd(MemoryBroker):
    """Answers what nobody can read: its first trial, or its first read."""

    odd_trial = odd_read = False

    async def receive(self, *, count: int, wait_seconds: float) -> Sequence[Message]:
        if self.odd_read if wait_seconds else self.odd_trial:
            self.odd_read = self.odd_trial = False
            raise ValueError("not enough values to unpack")
        return await super().receive(count=count, wait_seconds=wait_seconds)


@pytest.mark.parametrize("odd", ["odd_trial", "odd_read"])
async def test_a_bug_in_a_transport_ends_its_loop_which_is_told_and_begun_anew(
    house: House, receiver: Receiver, stream: MemoryStream, odd: str
) -> None:
    endpoint, broker = await house.endpoint(receiver.url("/ok")), Odd(stream, consumer="odd", emit=house.ear)
    setattr(broker, odd, True)
    async with house.dispatching(broker=broker):
        await house.until(lambda: bool(house.heard(LoopCrashed)))
        await until_asked(stream, "receive", 2)
        await house.events(20, endpoint)
        await house.until(lambda: len(attempted(house)) == 20)
    assert [(type(told.error), told.loop) for told in house.heard(LoopCrashed)] == [(ValueError, Loop.CLAIMER)]
    assert modes(house)[-1:] == [True]


async def test_words_for_another_installation_are_told_of_once_a_minute(
    house: House, receiver: Receiver, stream: MemoryStream
) -> None:
    """Two installations on one stream: each takes what is for the other, which is late then."""
    endpoint, other = await house.endpoint(receiver.url("/ok")), consumer(house, stream, "other")
    async with house.dispatching(broker=consumer(house, stream)):
        await house.until(lambda: modes(house) == [True])
        await house.events(50, endpoint)
        await house.until(lambda: len(attempted(house)) == 50)
        await other.announce([list(attempted(house))])  # ours, and delivered: nobody is a stranger
        await quiet(other)
        assert not house.heard(BrokerStrangersFound)
        async with asyncio.timeout(10):
            while not house.heard(BrokerStrangersFound):
                await other.announce([[uuid4() for _ in range(7)]])
                await quiet(other)
        for _ in range(3):
            await other.announce([[uuid4() for _ in range(7)]])
            await quiet(other)
    assert [told.count for told in house.heard(BrokerStrangersFound)] == [7]


async def test_what_is_taken_over_from_others_stays_within_the_bound_of_what_is_held(
    house: House, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three hundred messages of a dead consumer name a lane that is full here; one process keeps some of them."""
    for name, value in {"RECLAIM_EVERY_SECONDS": 0.05, "RECLAIM_IDLE_SECONDS": 0.0, "MOST_HELD": 120}.items():
        monkeypatch.setattr(consuming, name, value)
    most: list[int] = []
    take = consuming.Held.take

    def noting(held: consuming.Held, messages: Iterable[Message]) -> list[str]:
        needless = take(held, messages)
        most.append(len(held))
        return needless

    monkeypatch.setattr(consuming.Held, "take", noting)
    async with Gate() as gate:
        endpoint = await house.endpoint(gate.url, max_in_flight=1)
        dead = consumer(house, stream, "dead")
        await house.events(300, endpoint)
        owed = [row[0] for row in await rows(house, "select id from deliveries")]
        await dead.announce([[delivery] for delivery in owed])
        await dead.receive(count=300, wait_seconds=0)
        async with house.dispatching(replace(TUNING, drain_seconds=0.1), broker=consumer(house, stream)):
            await gate.visits(1, 10)
            await until_asked(stream, "reclaim", 20)
    assert 100 < max(most) <= 120 + consuming.RECLAIM_MESSAGES


async def test_lanes_by_the_hundred_are_announced_in_rotation(
    house: House, receiver: Receiver, stream: MemoryStream
) -> None:
    """One look sees 64 open lanes, and one claim takes from as many."""
    endpoints = [await house.endpoint(receiver.url(f"/ok/{number}")) for number in range(150)]
    async with (
        house.dispatching(broker=consumer(house, stream, "one")),
        house.dispatching(broker=consumer(house, stream, "two")),
    ):
        await house.until(lambda: modes(house) == [True, True])
        await house.events(3, *endpoints)
        await house.until(lambda: len(attempted(house)) == 450)
        await quiet(consumer(house, stream))
    assert set(attempted(house).values()) == {1}
