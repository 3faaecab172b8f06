"""A batch whose answer was lost is recorded again, and reports what its first try did."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import pytest

from relay.domain.attempt import AttemptRecord
from relay.domain.delivery import DeadReason, DeliveryMove, DeliveryStatus
from relay.domain.receipt import ReceiptOutcome
from relay.store.database import Database
from relay.store.faults import StoreUnavailable
from relay.store.queue import Queue, Recorded
from tests.store.world import World, attempt, held
from tests.support.link import Link

NOTHING_LOST: frozenset[tuple[UUID, UUID]] = frozenset()


@pytest.fixture
async def link(database_dsn: str) -> AsyncIterator[Link]:
    async with Link(database_dsn) as link:
        yield link


@pytest.fixture
async def queue(link: Link) -> AsyncIterator[Queue]:
    """A queue behind the link, whose one connection has prepared its statements."""
    database = await Database.connect(link.dsn, name="t", size=1)
    queue = Queue(database, database)
    await queue.record([])
    yield queue
    await database.close()


async def twice(link: Link, queue: Queue, batch: Sequence[AttemptRecord]) -> Recorded:
    """Record a batch whose answer is lost, and then once more."""
    link.lose_next_answer()
    with pytest.raises(StoreUnavailable):
        await queue.record(batch)
    assert link.losses == 1
    return await queue.record(batch)


async def test_what_was_committed_before_its_answer_was_lost_lost_no_lease(
    world: World, link: Link, queue: Queue
) -> None:
    receipts = await world.owe(4, await world.add_endpoint())
    acked, retried, buried, received = (await world.claim()).deliveries
    batch = [
        attempt(acked),
        attempt(retried, DeliveryMove.RETRY, delay=60.0),
        attempt(buried, DeliveryMove.BURY, dead=DeadReason.EXHAUSTED),
        attempt(received, DeliveryMove.RECEIVE),
    ]
    recorded = await twice(link, queue, batch)
    assert recorded == Recorded(NOTHING_LOST, {acked.receipt_id: ReceiptOutcome.DELIVERED})
    assert acked.receipt_id in receipts
    assert await world.rows_in("delivery_attempts") == 4


async def test_a_lost_answer_to_a_batch_with_a_hold_is_made_good_too(world: World, link: Link, queue: Queue) -> None:
    (receipt,) = await world.owe(1, await world.add_endpoint())
    batch = [attempt(await world.claim_one(), lane=held(60.0))]
    recorded = await twice(link, queue, batch)
    assert recorded == Recorded(NOTHING_LOST, {receipt: ReceiptOutcome.DELIVERED})


async def test_a_late_attempt_is_late_however_often_it_is_recorded(world: World, link: Link, queue: Queue) -> None:
    await world.owe(1, await world.add_endpoint())
    stalled = await world.claim_lapsed()
    await world.queue.reap(batch=10)
    recorded = await twice(link, queue, [attempt(stalled)])
    assert recorded == Recorded(frozenset({(stalled.id, stalled.lease_token)}), {})


async def test_a_repeated_batch_tells_its_late_attempts_from_the_others(world: World, link: Link, queue: Queue) -> None:
    (receipt,) = await world.owe(1, await world.add_endpoint())
    stalled = await world.claim_lapsed()
    await world.queue.reap(batch=10)
    successor = await world.claim_one()
    late = attempt(stalled, DeliveryMove.BURY, dead=DeadReason.PERMANENT_FAILURE)
    recorded = await twice(link, queue, [late, attempt(successor)])
    assert recorded == Recorded(frozenset({(stalled.id, stalled.lease_token)}), {receipt: ReceiptOutcome.DELIVERED})


async def test_what_was_recorded_before_counts_although_its_delivery_was_claimed_again_since(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    first = attempt(await world.claim_one(), DeliveryMove.RETRY)
    await world.record(first)
    successor = await world.claim_one()
    assert (await world.record(first)).lost == NOTHING_LOST
    row = await world.delivery(successor.id)
    assert (row["status"], row["lease_token"]) == (DeliveryStatus.IN_FLIGHT, successor.lease_token)


async def test_a_repeated_batch_goes_on_with_what_came_meanwhile(world: World) -> None:
    lanes = await world.add_endpoints(2)
    (receipt,) = await world.owe(1, *lanes)
    before, after = (await world.claim()).deliveries
    assert await world.record(attempt(before)) == Recorded(NOTHING_LOST, {})
    recorded = await world.record(attempt(before), attempt(after))
    assert recorded == Recorded(NOTHING_LOST, {receipt: ReceiptOutcome.DELIVERED})
    assert await world.value("select acked from receipts where id = $1", receipt) == 2


async def test_a_receipt_that_another_ack_closed_is_not_told_by_a_repeated_one(world: World) -> None:
    await world.owe(1, *await world.add_endpoints(2))
    earlier, later = (await world.claim()).deliveries
    await world.record(attempt(earlier))
    await world.record(attempt(later))
    assert await world.record(attempt(earlier)) == Recorded(NOTHING_LOST, {})


async def test_a_retry_that_is_repeated_after_its_delivery_was_acked_closes_nothing(world: World) -> None:
    (receipt,) = await world.owe(1, await world.add_endpoint())
    retried = attempt(await world.claim_one(), DeliveryMove.RETRY)
    await world.record(retried)
    assert (await world.record(attempt(await world.claim_one()))).closed == {receipt: ReceiptOutcome.DELIVERED}
    assert await world.record(retried) == Recorded(NOTHING_LOST, {})
