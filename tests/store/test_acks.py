"""Explicit acks: whenever they come they count once, and of all that ack a receipt one closes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from relay.domain.breaker import BreakerState
from relay.domain.delivery import ClaimedDelivery, DeadReason, DeliveryMove, DeliveryStatus
from relay.domain.outcome import LaneNotice
from relay.domain.receipt import ReceiptOutcome
from relay.store.acks import Ack, Acks, AckWanted, Reconciled
from relay.store.database import Database
from relay.store.queue import Recorded
from relay.store.redrive import Redrive
from tests.store.verifying import discard, perform, verified
from tests.store.world import TENANT, World, attempt, new_id

GENERATIONS = 12


@pytest.fixture
def acks(database: Database) -> Acks:
    """The acks of the test's database."""
    return Acks(database)


async def ack(acks: Acks, receipt: UUID, delivery: UUID | None = None, consumer: str | None = None) -> Ack | None:
    """Take one ack."""
    (taken,) = await acks.acknowledge([AckWanted(TENANT, receipt, delivery, consumer)])
    return taken


async def received(world: World) -> ClaimedDelivery:
    """The one delivery of an event, received and not acked."""
    await world.owe(1, await world.add_endpoint())
    claimed = await world.claim_one()
    await world.record(attempt(claimed, DeliveryMove.RECEIVE))
    return claimed


async def held(world: World) -> ClaimedDelivery:
    """The one delivery of an event while it is being sent."""
    await world.owe(1, await world.add_endpoint())
    return await world.claim_one()


async def retried(world: World) -> ClaimedDelivery:
    """The one delivery of an event before its next try."""
    claimed = await held(world)
    await world.record(attempt(claimed, DeliveryMove.RETRY, delay=60.0))
    return claimed


async def buried(world: World) -> ClaimedDelivery:
    """The one delivery of an event as a dead letter."""
    claimed = await held(world)
    await world.record(attempt(claimed, DeliveryMove.BURY, dead=DeadReason.EXHAUSTED))
    return claimed


@pytest.mark.parametrize("standing", [received, held, retried, buried], ids=lambda each: each.__name__)
async def test_an_ack_is_proof_whenever_it_comes(
    world: World, acks: Acks, standing: Callable[[World], Awaitable[ClaimedDelivery]]
) -> None:
    claimed = await standing(world)
    taken = await ack(acks, claimed.receipt_id, claimed.id)
    assert taken is not None
    assert (taken.is_new, taken.closed, taken.outcome) == (True, True, ReceiptOutcome.DELIVERED)
    row = await world.delivery(claimed.id)
    assert (row["status"], row["acked_at"], row["lease_token"], row["dead_reason"]) == (
        DeliveryStatus.DELIVERED,
        taken.acked_at,
        None,
        None,
    )
    assert await world.value("select acked from receipts") == 1


async def test_what_was_received_waits_without_a_lease(world: World) -> None:
    claimed = await received(world)
    row = await world.delivery(claimed.id)
    assert (row["status"], row["lease_token"], row["lease_until"]) == (DeliveryStatus.IN_FLIGHT, None, None)
    await world.sql("update deliveries set received_at = received_at - interval '1 day'")
    assert await world.queue.reap(batch=10) == 0
    assert (await world.claim()).deliveries == ()


async def test_a_repeated_ack_gets_the_answer_of_the_first(world: World, acks: Acks) -> None:
    claimed = await received(world)
    first = await ack(acks, claimed.receipt_id, claimed.id)
    again = await ack(acks, claimed.receipt_id, claimed.id)
    assert first is not None
    assert again is not None
    assert (again.acked_at, again.outcome, again.is_new, again.closed) == (first.acked_at, first.outcome, False, False)
    assert await world.value("select acked from receipts") == 1


async def test_two_calls_of_one_transaction_for_one_delivery_are_one_ack(world: World, acks: Acks) -> None:
    claimed = await received(world)
    wanted = AckWanted(TENANT, claimed.receipt_id, claimed.id)
    taken = await acks.acknowledge([wanted, wanted])
    assert [(each.is_new, each.closed) for each in taken if each] == [(True, True), (False, False)]


async def test_a_delivery_is_named_by_its_consumer_too(world: World, acks: Acks) -> None:
    lanes = await world.add_endpoints(2)
    (receipt,) = await world.owe(1, *lanes)
    await world.record(*(attempt(each, DeliveryMove.RECEIVE) for each in (await world.claim()).deliveries))
    taken = await ack(acks, receipt, consumer="consumer-1")
    assert taken is not None
    assert (taken.consumer, taken.outcome) == ("consumer-1", None)
    statuses = await world.statuses()
    assert statuses == {"delivered": 1, "in_flight": 1}


async def test_an_endpoint_that_was_removed_acks_under_its_name(world: World, acks: Acks) -> None:
    claimed = await received(world)
    name = await world.value("select name from endpoints")
    await world.endpoints.remove(TENANT, claimed.endpoint_id)
    await world.queue.bury_removed(batch=10)
    taken = await ack(acks, claimed.receipt_id, consumer=name)
    assert taken is not None
    assert taken.outcome is ReceiptOutcome.DELIVERED


async def test_nobody_acks_what_there_is_not(world: World, acks: Acks) -> None:
    claimed = await received(world)
    await world.add_tenant("acct_other", 3)
    calls = [
        AckWanted(TENANT, claimed.receipt_id, new_id()),
        AckWanted(TENANT, new_id(), claimed.id),
        AckWanted("acct_other", claimed.receipt_id, claimed.id),
        AckWanted("acct_other", claimed.receipt_id, consumer="consumer-0"),
        AckWanted(TENANT, claimed.receipt_id, consumer="nobody"),
    ]
    assert await acks.acknowledge(calls) == [None] * 5
    assert (await world.delivery(claimed.id))["acked_at"] is None


async def test_what_was_declared_void_cannot_be_acked(world: World, acks: Acks) -> None:
    claimed = await received(world)
    await world.sql("update deliveries set status = 'void'")
    assert await ack(acks, claimed.receipt_id, claimed.id) is None


async def test_the_outcome_of_an_attempt_that_was_acked_meanwhile_is_neither_moved_nor_lost(
    world: World, acks: Acks
) -> None:
    claimed = await held(world)
    await ack(acks, claimed.receipt_id, claimed.id)
    recorded = await world.record(attempt(claimed, DeliveryMove.RECEIVE))
    assert recorded == Recorded(frozenset(), {}, acked_meanwhile=frozenset({(claimed.id, claimed.lease_token)}))
    assert await world.value("select acked from receipts") == 1
    assert await world.sql("select late from delivery_attempts") == [(False,)]


@pytest.mark.parametrize("move", [DeliveryMove.ACK, DeliveryMove.RETRY, DeliveryMove.BURY])
async def test_no_outcome_takes_an_ack_back(world: World, acks: Acks, move: DeliveryMove) -> None:
    claimed = await held(world)
    await ack(acks, claimed.receipt_id, claimed.id)
    dead = DeadReason.EXHAUSTED if move is DeliveryMove.BURY else None
    recorded = await world.record(attempt(claimed, move, dead=dead))
    assert recorded.acked_meanwhile == {(claimed.id, claimed.lease_token)}
    assert (await world.delivery(claimed.id))["status"] == DeliveryStatus.DELIVERED
    assert await world.value("select acked from receipts") == 1


async def test_a_probe_whose_delivery_was_acked_meanwhile_opens_its_lane(world: World, acks: Acks) -> None:
    """A lane learns from the answer, whoever has moved the delivery."""
    await world.owe(1, await world.add_endpoint())
    await world.sql("update endpoint_state set breaker = 'open', trips = 1, cooldown_until = now()")
    probe = await world.claim_one()
    await ack(acks, probe.receipt_id, probe.id)
    recorded = await world.record(attempt(probe, DeliveryMove.RECEIVE, lane=LaneNotice(answered=True)))
    assert [move.state for move in recorded.breakers] == [BreakerState.CLOSED]


async def test_an_attempt_acked_meanwhile_is_recorded_once_however_often_its_batch_is(world: World, acks: Acks) -> None:
    claimed = await held(world)
    await ack(acks, claimed.receipt_id, claimed.id)
    first = await world.record(attempt(claimed, DeliveryMove.RECEIVE))
    assert await world.record(attempt(claimed, DeliveryMove.RECEIVE)) == first
    assert await world.rows_in("delivery_attempts") == 1


async def test_an_ack_of_what_was_given_up_makes_the_receipt_whole(world: World, acks: Acks) -> None:
    claimed = await buried(world)
    await world.sql("update deliveries set discarded_at = now()")
    await world.sql("update receipts set discarded = 1, outcome = 'closed_incomplete', closed_at = now()")
    taken = await ack(acks, claimed.receipt_id, claimed.id)
    assert taken is not None
    assert (taken.outcome, taken.closed) == (ReceiptOutcome.DELIVERED, True)
    assert await world.sql("select acked, discarded from receipts") == [(1, 0)]


BURIALS = [reason for reason in DeadReason if reason is not DeadReason.NO_ROUTE]
"""Whatever a delivery can be dead for; what matched no rule has none."""


@pytest.mark.parametrize("reason", BURIALS)
@pytest.mark.parametrize("given_up", [False, True], ids=["kept", "given up"])
@pytest.mark.parametrize("again", [False, True], ids=["acked", "sent again"])
async def test_a_dead_letter_that_was_acked_is_accounted_for(
    world: World, acks: Acks, reason: DeadReason, given_up: bool, again: bool
) -> None:
    """Whatever it was dead for, given up or not, and also where it is sent again afterwards."""
    claimed = await held(world)
    await world.record(attempt(claimed, DeliveryMove.BURY, dead=reason))
    if given_up:
        await discard(world)
    taken = await ack(acks, claimed.receipt_id, claimed.id)
    assert taken is not None
    assert taken.outcome == ReceiptOutcome.DELIVERED
    if again:
        await perform(world, lambda change: change.delivery(claimed.id))
    found = await verified(world)
    assert (found.faults, found.tally.dead, found.tally.discarded) == ((), 0, 0)


async def test_a_dead_letter_of_a_removed_endpoint_that_was_acked_is_accounted_for(world: World, acks: Acks) -> None:
    claimed = await received(world)
    await world.endpoints.remove(TENANT, claimed.endpoint_id)
    assert sum((await world.queue.bury_removed(batch=10)).values()) == 1
    await ack(acks, claimed.receipt_id, claimed.id)
    assert (await verified(world)).faults == ()


async def test_a_receipt_tells_of_the_burial_of_what_was_acked_later(world: World, acks: Acks) -> None:
    claimed = await buried(world)
    await ack(acks, claimed.receipt_id, claimed.id)
    view = await world.receipts.get(TENANT, claimed.receipt_id)
    assert view is not None
    (shown,) = view.deliveries
    assert shown.dead_at is not None
    assert shown.acked_at is not None
    assert (shown.dead_at <= shown.acked_at, shown.dead_reason) == (True, None)


async def test_a_receipt_with_something_given_up_closes_incomplete_by_an_ack(world: World, acks: Acks) -> None:
    await world.owe(1, *await world.add_endpoints(2))
    dead, late = (await world.claim()).deliveries
    await world.record(attempt(dead, DeliveryMove.BURY, dead=DeadReason.EXHAUSTED), attempt(late, DeliveryMove.RECEIVE))
    await world.sql("update deliveries set discarded_at = now() where status = 'dead'")
    await world.sql("update receipts set discarded = 1")
    taken = await ack(acks, late.receipt_id, late.id)
    assert taken is not None
    assert (taken.outcome, taken.closed) == (ReceiptOutcome.CLOSED_INCOMPLETE, True)


async def test_a_thousand_acks_at_once_close_a_receipt_once_and_at_the_last(world: World, acks: Acks) -> None:
    lanes = await world.add_endpoints(1000)
    (receipt,) = await world.owe(1, *lanes)
    deliveries = [row["id"] for row in await world.sql("select id from deliveries order by md5(id::text)")]
    groups = [deliveries[start : start + 50] for start in range(0, 1000, 50)]

    async def acknowledge(group: list[UUID]) -> list[Ack | None]:
        return await acks.acknowledge([AckWanted(TENANT, receipt, delivery) for delivery in group])

    answers = [each for taken in await asyncio.gather(*map(acknowledge, groups)) for each in taken]
    assert sum(1 for each in answers if each and each.is_new) == 1000
    assert sum(1 for each in answers if each and each.closed) == 1
    (row,) = await world.sql(
        "select acked, outcome::text, closed_at >= (select max(acked_at) from deliveries) as last from receipts"
    )
    assert tuple(row) == (1000, "delivered", True)


async def test_acks_and_answers_of_one_receipt_at_once_close_it_once_and_at_the_last(world: World, acks: Acks) -> None:
    """Half of the endpoints ack by their answer, recorded in batches, and half by a call."""
    (receipt,) = await world.owe(1, *await world.add_endpoints(200))
    claimed: list[ClaimedDelivery] = []
    while found := (await world.claim()).deliveries:
        claimed += found
    answered, called = claimed[::2], claimed[1::2]
    recording = (world.record(*map(attempt, answered[start::4])) for start in range(4))
    calling = (
        acks.acknowledge([AckWanted(TENANT, receipt, each.id) for each in called[start::4]]) for start in range(4)
    )
    recorded, taken = await asyncio.gather(asyncio.gather(*recording), asyncio.gather(*calling))
    closings = sum(len(each.closed) > 0 for each in recorded) + sum(
        bool(a and a.closed) for each in taken for a in each
    )
    assert closings == 1
    assert await world.sql("select acked, closed_at >= (select max(acked_at) from deliveries) from receipts") == [
        (200, True)
    ]


async def test_what_is_overdue_is_sent_again_in_its_next_generation_under_its_id(world: World, acks: Acks) -> None:
    claimed = await received(world)
    await world.sql("update deliveries set received_at = now() - interval '301 seconds'")
    done = await acks.reconcile(batch=10, deadline_seconds=300.0, most_generations=GENERATIONS)
    assert (done.receipts, done.redriven, done.dead) == (1, 1, {})
    again = await world.claim_one()
    assert (again.id, again.generation, again.generation_attempt, again.attempt) == (claimed.id, 1, 1, 2)
    await world.record(attempt(again, DeliveryMove.RECEIVE))
    taken = await ack(acks, claimed.receipt_id, claimed.id)
    assert taken is not None
    assert taken.outcome is ReceiptOutcome.DELIVERED_AFTER_REDRIVE


async def test_what_is_inside_its_deadline_is_left_alone(world: World, acks: Acks) -> None:
    await received(world)
    await world.sql("update deliveries set received_at = now() - interval '290 seconds'")
    assert (await acks.reconcile(batch=10, deadline_seconds=300.0, most_generations=GENERATIONS)).redriven == 0


async def test_only_what_was_received_and_not_acked_is_sent_again(world: World, acks: Acks) -> None:
    """Of one event: acked, dead, void, retried, under a lease, and one that is overdue."""
    (receipt,) = await world.owe(1, *await world.add_endpoints(6))
    acked, dead, void, later, _held, late = (await world.claim()).deliveries
    await world.record(
        attempt(acked),
        attempt(dead, DeliveryMove.BURY, dead=DeadReason.EXHAUSTED),
        attempt(void, DeliveryMove.RECEIVE),
        attempt(later, DeliveryMove.RETRY, delay=3600.0),
        attempt(late, DeliveryMove.RECEIVE),
    )
    await world.sql("update deliveries set status = 'void' where id = $1", void.id)
    await world.sql(
        "update deliveries set received_at = received_at - interval '1 day', "
        "lease_until = lease_until - interval '1 day'"
    )
    done = await acks.reconcile(batch=10, deadline_seconds=300.0, most_generations=GENERATIONS)
    assert (done.receipts, done.redriven) == (1, 1)
    assert await world.sql("select id from deliveries where generation > 0") == [(late.id,)]
    assert await world.sql("select id, redriven from receipts") == [(receipt, True)]


async def test_an_event_without_a_route_is_nothing_to_reconcile(world: World, acks: Acks) -> None:
    await world.owe(1)
    await world.sql("update receipts set unrouted_at = now() - interval '1 day'")
    assert (await acks.reconcile(batch=10, deadline_seconds=1.0, most_generations=GENERATIONS)).redriven == 0


async def test_after_twelve_generations_without_an_ack_it_is_a_dead_letter(world: World, acks: Acks) -> None:
    claimed = await received(world)
    for generation in range(1, GENERATIONS):
        await world.sql("update deliveries set received_at = now() - interval '1 hour'")
        assert (await acks.reconcile(batch=10, deadline_seconds=300.0, most_generations=GENERATIONS)).redriven == 1
        again = await world.claim_one()
        assert again.generation == generation
        await world.record(attempt(again, DeliveryMove.RECEIVE))
    await world.sql("update deliveries set received_at = now() - interval '1 hour'")
    done = await acks.reconcile(batch=10, deadline_seconds=300.0, most_generations=GENERATIONS)
    assert (done.redriven, sum(map(len, done.dead.values()))) == (0, 1)
    row = await world.delivery(claimed.id)
    assert (row["status"], row["dead_reason"], row["attempts"]) == ("dead", "exhausted", GENERATIONS)
    assert row["last_error"] == "no ack came within 300 s of the 2xx"


async def test_a_re_drive_by_a_person_begins_the_twelve_generations_anew(world: World, acks: Acks) -> None:
    """However many there were, of which kind, and in which state it was: received, acked or dead."""
    claimed = await received(world)
    for state in (None, DeliveryMove.ACK, DeliveryMove.BURY, None):
        for _ in range(GENERATIONS - 1):
            assert (await overdue(world, acks)).redriven == 1
            await receive_again(world)
        await perform(world, lambda change: change.delivery(claimed.id))
        if state is None:
            await receive_again(world)
            continue
        again = await world.claim_one()
        await world.record(attempt(again, state, dead=DeadReason.EXHAUSTED if state is DeliveryMove.BURY else None))
        await perform(world, lambda change: change.delivery(claimed.id))
        await receive_again(world)
    for _ in range(GENERATIONS - 1):
        assert (await overdue(world, acks)).redriven == 1
        await receive_again(world)
    done = await overdue(world, acks)
    assert (done.redriven, sum(map(len, done.dead.values()))) == (0, 1)
    assert (await world.delivery(claimed.id))["dead_reason"] == DeadReason.EXHAUSTED


async def test_re_drives_by_persons_alone_exhaust_nothing(world: World, acks: Acks) -> None:
    """Fourteen by hand, and then the first missing ack."""
    claimed = await received(world)
    for _ in range(GENERATIONS + 2):
        await perform(world, lambda change: change.delivery(claimed.id))
    await receive_again(world)
    assert ((await overdue(world, acks)).redriven, await world.value("select generation from deliveries")) == (1, 15)


async def receive_again(world: World) -> None:
    """Its endpoint receives once more what is due."""
    await world.record(attempt(await world.claim_one(), DeliveryMove.RECEIVE))


async def overdue(world: World, acks: Acks) -> Reconciled:
    """A round of the reconciler an hour later."""
    await world.sql("update deliveries set received_at = now() - interval '1 hour' where received_at is not null")
    return await acks.reconcile(batch=10, deadline_seconds=300.0, most_generations=GENERATIONS)


async def test_a_round_takes_no_more_than_its_batch_the_longest_overdue_first(world: World, acks: Acks) -> None:
    await world.owe(5, await world.add_endpoint())
    claimed = (await world.claim()).deliveries
    await world.record(*(attempt(each, DeliveryMove.RECEIVE) for each in claimed))
    for place, each in enumerate(claimed):
        await world.sql(
            "update deliveries set received_at = now() - $2 * interval '1 hour' where id = $1", each.id, place + 1.0
        )
    assert (await acks.reconcile(batch=3, deadline_seconds=300.0, most_generations=GENERATIONS)).redriven == 3
    left = await world.sql("select id from deliveries where status = 'in_flight' order by received_at desc")
    assert [row["id"] for row in left] == [each.id for each in claimed[:2]]


async def test_reconcilers_beside_each_other_send_each_delivery_again_once(world: World, acks: Acks) -> None:
    await world.owe(40, *await world.add_endpoints(5))
    claimed = (await world.claim(batch=200)).deliveries
    await world.record(*(attempt(each, DeliveryMove.RECEIVE) for each in claimed))
    await world.sql("update deliveries set received_at = now() - interval '1 hour'")
    rounds = (acks.reconcile(batch=60, deadline_seconds=300.0, most_generations=GENERATIONS) for _ in range(8))
    assert sum(each.redriven for each in await asyncio.gather(*rounds)) <= 200
    await acks.reconcile(batch=200, deadline_seconds=300.0, most_generations=GENERATIONS)
    assert await world.sql("select distinct generation, count(*) from deliveries group by generation") == [(1, 200)]


async def test_an_ack_while_the_reconciler_looks_is_not_sent_again(world: World, acks: Acks) -> None:
    claimed = await received(world)
    await world.sql("update deliveries set received_at = now() - interval '1 hour'")
    async with world.database.transaction() as acking:
        await acking.fetch(
            "select * from ack_deliveries($1, $2, $3, $4)", [TENANT], [claimed.receipt_id], [claimed.id], [None]
        )
        assert (await acks.reconcile(batch=10, deadline_seconds=300.0, most_generations=GENERATIONS)).redriven == 0
    assert (await acks.reconcile(batch=10, deadline_seconds=300.0, most_generations=GENERATIONS)).redriven == 0
    assert (await world.delivery(claimed.id))["generation"] == 0


async def test_what_awaits_the_ack_of_a_removed_endpoint_is_dead_at_once(world: World) -> None:
    claimed = await received(world)
    await world.endpoints.remove(TENANT, claimed.endpoint_id)
    assert sum((await world.queue.bury_removed(batch=10)).values()) == 1
    row = await world.delivery(claimed.id)
    assert (row["status"], row["dead_reason"]) == ("dead", "endpoint_removed")


async def test_each_generation_that_ended_is_kept_with_what_had_become_of_it(world: World) -> None:
    claimed = await buried(world)
    async with world.database.transaction() as connection:
        await Redrive(connection, TENANT, bytes).receipt(claimed.receipt_id)
    await world.record(attempt(await world.claim_one()))
    view = await world.receipts.get(TENANT, claimed.receipt_id)
    assert view is not None
    (past,) = view.past
    (delivery,) = view.deliveries
    assert past.delivery_id == claimed.id
    assert past.dead_at is not None
    assert past.dead_at < past.redriven_at == delivery.redriven_at


async def test_the_ack_of_a_generation_that_was_sent_again_all_the_same_is_kept(world: World) -> None:
    claimed = await held(world)
    await world.record(attempt(claimed))
    acked_at = (await world.delivery(claimed.id))["acked_at"]
    async with world.database.transaction() as connection:
        await Redrive(connection, TENANT, bytes).delivery(claimed.id)
    view = await world.receipts.get(TENANT, claimed.receipt_id)
    assert view is not None
    (past,) = view.past
    assert (past.acked_at, past.dead_at) == (acked_at, None)
    assert acked_at is not None
    assert view.deliveries[0].acked_at is None
