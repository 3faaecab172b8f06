"""Re-drives and discards beside everything else that changes deliveries: whoever comes first, the counts stay true."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from itertools import product
from random import Random
from uuid import UUID

import pytest

from relay.domain.delivery import ClaimedDelivery, DeadReason, DeliveryMove
from relay.domain.endpoint import EndpointConfig
from relay.store.database import Database
from relay.store.filters import DeadLetterFilter
from relay.store.redrive import NotRedrivable, Redrive, Redrives
from relay.store.request_keys import KeptAnswer
from tests.store.world import TENANT, World, attempt, event, only

DONE = KeptAnswer(202, b"{}")
Work = Callable[[Redrive], Awaitable[object]]


async def perform(world: World, work: Work) -> None:
    """One re-drive or discard, in the transaction of the world's database."""

    async def answered(redrive: Redrive) -> KeptAnswer:
        await work(redrive)
        return DONE

    await Redrives(world.database, entropy=os.urandom, key_retention_seconds=60.0).perform(TENANT, None, answered)


class Scene:
    """A receipt with a delivery in each state, and one without a route."""

    def __init__(self, receipt: UUID, unrouted: UUID, leased: ClaimedDelivery, delivered: UUID, lane: UUID) -> None:
        self.receipt = receipt
        self.unrouted = unrouted
        self.leased = leased
        self.delivered = delivered
        self.lane = lane


async def set_up(world: World) -> Scene:
    """Of five deliveries one is leased (its time is over), one dead, one given up, one waits, one is delivered."""
    lanes = [
        await world.add_endpoint(EndpointConfig(name=f"c{place}", url="http://h/", event_types=("never",)))
        for place in range(5)
    ]
    added = event()
    (receipt,) = await world.owe(1, *lanes)
    await world.append(added)
    await world.add_endpoint(EndpointConfig(name="all", url="http://h/"))
    first, second, third, fourth, leased = (await world.claim(batch=5, lease=-1.0)).deliveries
    bury = DeliveryMove.BURY
    await world.record(
        attempt(first, bury, dead=DeadReason.EXHAUSTED),
        attempt(second),
        attempt(third, DeliveryMove.RETRY),
        attempt(fourth, bury, dead=DeadReason.REFUSED),
    )
    await perform(world, lambda redrive: redrive.discard_dead_letters(DeadLetterFilter(reason=DeadReason.REFUSED)))
    return Scene(receipt, added.envelope.receipt_id, leased, second.id, first.endpoint_id)


async def redrive_receipt(world: World, scene: Scene) -> None:
    await perform(world, lambda redrive: redrive.receipt(scene.receipt))


async def redrive_delivered(world: World, scene: Scene) -> None:
    await perform(world, lambda redrive: redrive.delivery(scene.delivered))


async def redrive_leased(world: World, scene: Scene) -> None:
    try:
        await perform(world, lambda redrive: redrive.delivery(scene.leased.id))
    except NotRedrivable:
        assert (await world.delivery(scene.leased.id))["lease_token"] == scene.leased.lease_token


async def redrive_unrouted(world: World, scene: Scene) -> None:
    await perform(world, lambda redrive: redrive.receipt(scene.unrouted))


async def redrive_all(world: World, scene: Scene) -> None:
    await perform(world, lambda redrive: redrive.redrive_dead_letters(DeadLetterFilter()))


async def discard_all(world: World, scene: Scene) -> None:
    await perform(world, lambda redrive: redrive.discard_dead_letters(DeadLetterFilter()))


async def record_ack(world: World, scene: Scene) -> None:
    await world.record(attempt(scene.leased))


async def record_burial(world: World, scene: Scene) -> None:
    await world.record(attempt(scene.leased, DeliveryMove.BURY, dead=DeadReason.EXHAUSTED))


async def reap(world: World, scene: Scene) -> None:
    await world.queue.reap(batch=10)


async def claim(world: World, scene: Scene) -> None:
    await world.claim(lease=-1.0)


async def remove(world: World, scene: Scene) -> None:
    await world.endpoints.remove(TENANT, scene.lane)
    await world.queue.bury_removed(batch=10)


CHANGES = (redrive_receipt, redrive_delivered, redrive_leased, redrive_unrouted, redrive_all, discard_all)
OTHERS = (*CHANGES, record_ack, record_burial, reap, claim, remove)


async def counts_are_true(world: World) -> None:
    """What each receipt says of its deliveries is so, and it is open exactly while something of it is owed."""
    wrong = await world.sql(
        "select r.*, d.* from receipts r cross join lateral ("
        " select count(*) as expected, count(*) filter (where status = 'delivered') as acked,"
        "  count(*) filter (where discarded_at is not null) as discarded,"
        "  bool_or(status <> 'delivered' and discarded_at is null) as owed"
        " from deliveries where receipt_id = r.id) d"
        " where r.expected <> d.expected or r.acked <> d.acked"
        "  or r.discarded <> case when d.expected = 0 and r.unrouted_at is null then 1 else d.discarded end"
        "  or (r.outcome is null) <> coalesce(d.owed, r.unrouted_at is not null)"
    )
    assert wrong == []


async def deliver_all(world: World) -> None:
    """Let the reaper have its round, and everything that can be delivered be delivered."""
    await world.queue.reap(batch=100)
    await world.queue.bury_removed(batch=100)
    await world.make_due_again()
    while claimed := (await world.claim()).deliveries:
        await world.record(*(attempt(each) for each in claimed))


@pytest.mark.parametrize(
    ("first", "second"),
    list(dict.fromkeys((*product(CHANGES, OTHERS), *product(OTHERS, CHANGES)))),
    ids=lambda each: each.__name__,
)
async def test_whoever_comes_first_the_counts_are_true_and_all_that_is_owed_can_be_delivered(
    world: World, first: Callable[[World, Scene], Awaitable[None]], second: Callable[[World, Scene], Awaitable[None]]
) -> None:
    """The second begins while the first has changed everything and not committed yet."""
    scene = await set_up(world)
    await counts_are_true(world)

    async def later() -> None:
        await second(world, scene)

    async with world.database.transaction() as connection:
        await first(World.over(only(connection)), scene)
        task = asyncio.create_task(later())
        await world.until_blocked(task)
    async with asyncio.timeout(20):
        await task
    await counts_are_true(world)
    await deliver_all(world)
    await counts_are_true(world)
    assert await world.value("select count(*) from deliveries where status in ('pending', 'in_flight')") == 0


async def test_two_redrives_of_one_receipt_send_it_again_once(world: World) -> None:
    scene = await set_up(world)
    before = await world.value("select max(generation) from deliveries")
    async with world.database.transaction() as connection:
        await redrive_all(World.over(only(connection)), scene)
        task = asyncio.create_task(redrive_all(world, scene))
        await world.until_blocked(task)
    async with asyncio.timeout(20):
        await task
    assert await world.value("select max(generation) from deliveries") == before + 1
    assert await world.value("select count(*) from deliveries where receipt_id = $1", scene.unrouted) == 1


async def test_a_late_outcome_of_the_generation_before_changes_nothing(world: World) -> None:
    """Its lease was reaped, and the delivery sent for again."""
    scene = await set_up(world)
    await reap(world, scene)
    await redrive_receipt(world, scene)
    recorded = await world.record(attempt(scene.leased))
    assert recorded.lost == {(scene.leased.id, scene.leased.lease_token)}
    row = await world.delivery(scene.leased.id)
    assert (row["status"], row["generation"]) == ("pending", 1)


async def test_an_endpoint_removed_beside_a_redrive_has_what_it_is_owed_buried_again(world: World) -> None:
    scene = await set_up(world)
    async with world.database.transaction() as connection:
        await redrive_receipt(World.over(only(connection)), scene)
        await world.endpoints.remove(TENANT, scene.lane)
        await world.queue.bury_removed(batch=10)
    await world.queue.bury_removed(batch=10)
    rows = await world.sql("select status::text, dead_reason::text from deliveries where endpoint_id = $1", scene.lane)
    assert [tuple(row) for row in rows] == [("dead", "endpoint_removed")]


async def test_in_a_turmoil_of_all_of_them_nobody_deadlocks_and_no_count_goes_wrong(
    world: World, database_dsn: str
) -> None:
    """Real sessions, each busy with one kind of change until the others are through; a fault of any is a fault."""
    lanes = await world.add_endpoints(3)
    receipts = await world.owe(30, *lanes)
    await world.append(*(event() for _ in range(10)))
    chance = Random(7)
    pool = await Database.connect(database_dsn, name="turmoil", size=8)
    other = World.over(pool)

    async def works() -> None:
        for _ in range(40):
            claimed = (await other.claim(batch=20, lease=chance.choice((60.0, -1.0)))).deliveries
            moves = (DeliveryMove.ACK, DeliveryMove.RETRY, DeliveryMove.BURY, DeliveryMove.RECEIVE)
            outcomes = [(each, chance.choice(moves)) for each in claimed]
            await other.record(
                *(
                    attempt(each, move, dead=DeadReason.EXHAUSTED if move is DeliveryMove.BURY else None)
                    for each, move in outcomes
                )
            )
            await other.queue.reap(batch=5)

    async def sends_again(by: Callable[[Redrive], Awaitable[object]]) -> None:
        for _ in range(40):
            try:
                await perform(other, by)
            except NotRedrivable:
                continue

    every = [row[0] for row in await world.sql("select id from deliveries")]
    wanted = DeadLetterFilter()
    try:
        async with asyncio.timeout(90), asyncio.TaskGroup() as group:
            group.create_task(works())
            group.create_task(works())
            group.create_task(sends_again(lambda redrive: redrive.receipt(chance.choice(receipts))))
            group.create_task(sends_again(lambda redrive: redrive.delivery(chance.choice(every))))
            group.create_task(sends_again(lambda redrive: redrive.redrive_dead_letters(wanted, limit=7)))
            group.create_task(sends_again(lambda redrive: redrive.discard_dead_letters(wanted, limit=5)))
    finally:
        await pool.close()
    await counts_are_true(world)
