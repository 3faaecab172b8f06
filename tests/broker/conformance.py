"""What every transport has to do: one test per promise of `relay.broker.Broker`.

`test_conformance.py` runs it on real servers, and on the transport in memory that stands in for them elsewhere.
"""

from __future__ import annotations

import asyncio

import pytest

from relay.broker import LONGEST_WAIT_SECONDS, MESSAGE_DELIVERIES, Standing
from relay.domain.telemetry import BrokerEmptied, BrokerEntriesDropped
from tests.broker.grounds import Ground, deliveries, ids

NOW = 0.0
LONG = LONGEST_WAIT_SECONDS


class Conformance:
    """The suite. `ground` is the transport."""

    async def test_what_is_announced_is_received_in_order(self, ground: Ground) -> None:
        broker = ground.consumer()
        await broker.announce([ids(2), ids(1, first=3)])
        messages = await broker.receive(count=10, wait_seconds=LONG)
        assert [message.deliveries for message in messages] == [tuple(ids(2)), tuple(ids(1, first=3))]

    async def test_a_message_carries_fifty_ids(self, ground: Ground) -> None:
        broker = ground.consumer()
        await broker.announce([ids(MESSAGE_DELIVERIES)])
        assert deliveries(tuple(await broker.receive(count=1, wait_seconds=LONG))) == ids(MESSAGE_DELIVERIES)

    @pytest.mark.parametrize("count", [0, MESSAGE_DELIVERIES + 1])
    async def test_a_message_of_another_size_is_a_bug_of_the_caller(self, ground: Ground, count: int) -> None:
        with pytest.raises(ValueError, match="ids"):
            await ground.consumer().announce([ids(1), ids(count)])

    async def test_nothing_to_announce_is_nothing(self, ground: Ground) -> None:
        broker = ground.consumer()
        await broker.announce([])
        assert await broker.standing() == Standing(unread=0, pending=0)

    async def test_what_is_unread_says_for_how_long_it_is(self, ground: Ground) -> None:
        broker = ground.consumer()
        await broker.receive(count=1, wait_seconds=NOW)
        assert (await broker.standing()).unread_seconds == 0
        await broker.announce([ids(1)])
        assert 0 <= (await broker.standing()).unread_seconds < 30

    async def test_no_more_is_received_than_was_asked_for(self, ground: Ground) -> None:
        broker = ground.consumer()
        await broker.announce([[each] for each in ids(3)])
        assert deliveries(tuple(await broker.receive(count=2, wait_seconds=LONG))) == ids(2)
        assert await broker.receive(count=0, wait_seconds=LONG) == ()

    async def test_an_empty_broker_answers_an_empty_read(self, ground: Ground) -> None:
        assert list(await ground.consumer().receive(count=1, wait_seconds=NOW)) == []

    async def test_a_read_waits_until_something_is_announced(self, ground: Ground) -> None:
        reader, announcer = ground.consumer("a"), ground.consumer("b")
        await reader.receive(count=1, wait_seconds=NOW)
        waiting = asyncio.create_task(reader.receive(count=1, wait_seconds=LONG))
        await announcer.announce([ids(1)])
        assert deliveries(tuple(await waiting)) == ids(1)

    async def test_a_read_that_waits_holds_up_no_other_call(self, ground: Ground) -> None:
        broker = ground.consumer()
        waiting = asyncio.create_task(broker.receive(count=1, wait_seconds=LONG))
        async with asyncio.timeout(LONG - 1):
            assert (await broker.standing()).unread == 0
            await broker.announce([ids(1)])
            await waiting

    async def test_a_read_without_news_ends_empty(self, ground: Ground) -> None:
        assert list(await ground.consumer().receive(count=1, wait_seconds=0.05)) == []

    async def test_a_cancelled_read_leaves_the_broker_usable(self, ground: Ground) -> None:
        broker = ground.consumer()
        await broker.receive(count=1, wait_seconds=NOW)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await broker.receive(count=1, wait_seconds=LONG)
        await broker.announce([ids(1), ids(1, first=2)])
        found = deliveries(tuple(await broker.reclaim(idle_seconds=0, count=10)))
        found += deliveries(tuple(await broker.receive(count=10, wait_seconds=1.0)))
        found += deliveries(tuple(await broker.reclaim(idle_seconds=0, count=10)))
        assert set(found) == set(ids(2))

    async def test_each_message_is_read_by_one_consumer(self, ground: Ground) -> None:
        first, second = ground.consumer("a"), ground.consumer("b")
        await first.announce([[each] for each in ids(20)])
        read = [deliveries(tuple(await each.receive(count=15, wait_seconds=NOW))) for each in (first, second)]
        assert [len(each) for each in read] == [15, 5]
        assert set(read[0] + read[1]) == set(ids(20))

    async def test_what_is_read_stays_pending_until_it_is_acknowledged(self, ground: Ground) -> None:
        broker = ground.consumer()
        await broker.announce([ids(2), ids(3)])
        (message,) = await broker.receive(count=1, wait_seconds=NOW)
        assert await broker.standing() == Standing(unread=1, pending=1)
        await broker.acknowledge([message.id])
        assert await broker.standing() == Standing(unread=1, pending=0)

    async def test_an_acknowledged_message_never_comes_again(self, ground: Ground) -> None:
        broker = ground.consumer()
        await broker.announce([ids(1)])
        (message,) = await broker.receive(count=1, wait_seconds=NOW)
        await broker.acknowledge([message.id])
        assert list(await broker.reclaim(idle_seconds=0, count=10)) == []
        assert list(await broker.receive(count=10, wait_seconds=NOW)) == []

    async def test_acknowledging_what_is_not_known_is_passed_over(self, ground: Ground) -> None:
        broker = ground.consumer()
        await broker.announce([ids(1)])
        (message,) = await broker.receive(count=1, wait_seconds=NOW)
        await broker.acknowledge([message.id])
        await broker.acknowledge([message.id])
        await broker.acknowledge([])

    async def test_what_a_consumer_left_is_reclaimed_by_another(self, ground: Ground) -> None:
        gone, heir = ground.consumer("a"), ground.consumer("b")
        await gone.announce([[each] for each in ids(10)])
        await gone.receive(count=10, wait_seconds=NOW)
        taken = [*await heir.reclaim(idle_seconds=0, count=6), *await heir.reclaim(idle_seconds=0, count=6)]
        assert deliveries(taken)[:10] == ids(10)

    async def test_what_is_held_for_a_moment_is_not_reclaimed(self, ground: Ground) -> None:
        holder, other = ground.consumer("a"), ground.consumer("b")
        await holder.announce([ids(1)])
        await holder.receive(count=1, wait_seconds=NOW)
        assert list(await other.reclaim(idle_seconds=60, count=10)) == []

    async def test_what_was_reclaimed_is_its_new_holders(self, ground: Ground) -> None:
        gone, heir = ground.consumer("a"), ground.consumer("b")
        await gone.announce([ids(1)])
        await gone.receive(count=1, wait_seconds=NOW)
        (message,) = await heir.reclaim(idle_seconds=0, count=1)
        assert list(await gone.reclaim(idle_seconds=60, count=1)) == []
        await heir.acknowledge([message.id])
        assert await heir.standing() == Standing(unread=0, pending=0)

    async def test_a_consumer_that_holds_something_outlives_its_process(self, ground: Ground) -> None:
        """C128: what an ended process had read is still pending, so somebody can take it over."""
        stopped, heir = ground.consumer("a"), ground.consumer("b")
        await stopped.announce([[each] for each in ids(10)])
        read = await stopped.receive(count=10, wait_seconds=NOW)
        await stopped.acknowledge([read[0].id])
        await stopped.close()
        assert "a" in ground.consumers()
        assert deliveries(tuple(await heir.reclaim(idle_seconds=0, count=10))) == ids(9, first=2)

    async def test_a_consumer_that_holds_nothing_goes_with_its_process(self, ground: Ground) -> None:
        """C128: else a fleet that restarts collects consumers for ever."""
        stopped = ground.consumer("a")
        await stopped.announce([ids(1)])
        (message,) = await stopped.receive(count=1, wait_seconds=NOW)
        await stopped.acknowledge([message.id])
        await stopped.close()
        assert ground.consumers() == set()

    async def test_closing_twice_is_closing(self, ground: Ground) -> None:
        broker = ground.consumer()
        await broker.close()
        await broker.close()

    async def test_nothing_is_unread_or_pending_where_there_is_nothing(self, ground: Ground) -> None:
        assert await ground.consumer().standing() == Standing(unread=0, pending=0)

    async def test_a_broker_that_came_back_empty_takes_and_gives_as_before(self, ground: Ground) -> None:
        """C130."""
        broker = ground.consumer()
        await broker.announce([ids(1)])
        await broker.receive(count=1, wait_seconds=NOW)
        for first in (10, 20, 30):
            ground.flush()
            await broker.announce([ids(2, first=first)])
            assert deliveries(tuple(await broker.receive(count=10, wait_seconds=LONG))) == ids(2, first=first)

    async def test_a_broker_that_came_back_empty_is_told_of_once_per_loss(self, ground: Ground) -> None:
        """C130."""
        broker = ground.consumer()
        await broker.receive(count=1, wait_seconds=NOW)
        assert ground.told == []
        for _ in range(2):
            ground.flush()
            for _ in range(3):
                assert list(await broker.receive(count=1, wait_seconds=NOW)) == []
                assert list(await broker.reclaim(idle_seconds=0, count=1)) == []
        assert ground.told == [BrokerEmptied(), BrokerEmptied()]

    async def test_a_read_that_waits_survives_the_loss_of_everything(self, ground: Ground) -> None:
        """C130: whatever the server says to whoever was blocked."""
        broker, announcer = ground.consumer("a"), ground.consumer("b")
        await announcer.announce([ids(1)])
        await broker.receive(count=1, wait_seconds=NOW)
        waiting = asyncio.create_task(broker.receive(count=1, wait_seconds=LONG))
        await announcer.standing()
        ground.flush()
        await announcer.announce([ids(1, first=7)])
        found = deliveries(tuple(await waiting)) or deliveries(tuple(await broker.receive(count=1, wait_seconds=LONG)))
        assert found == ids(1, first=7)

    async def test_acknowledging_after_a_loss_is_no_fault(self, ground: Ground) -> None:
        broker = ground.consumer()
        await broker.announce([ids(1)])
        (message,) = await broker.receive(count=1, wait_seconds=NOW)
        ground.flush()
        await broker.acknowledge([message.id])
        assert await broker.standing() == Standing(unread=0, pending=0)

    async def test_entries_that_are_not_ours_are_dropped_and_counted(self, ground: Ground) -> None:
        broker = ground.consumer()
        await broker.announce([ids(1)])
        ground.insert_alien()
        ground.insert_alien()
        await broker.announce([ids(1, first=2)])
        assert deliveries(tuple(await broker.receive(count=10, wait_seconds=LONG))) == ids(2)
        assert ground.told == [BrokerEntriesDropped(2)]
        assert await broker.standing() == Standing(unread=0, pending=2)
