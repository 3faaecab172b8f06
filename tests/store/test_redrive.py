"""Re-drives: what is sent again, what is not, and what that does to receipts."""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

import pytest

from relay.domain.delivery import DeadReason, DeliveryMove, DeliveryStatus
from relay.domain.endpoint import EndpointConfig
from relay.domain.receipt import ReceiptOutcome
from relay.domain.telemetry import ReceiptsClosed, ReceiptsRedriven
from relay.store import dead_letters
from relay.store import redrive as module
from relay.store.dead_letters import DeadPlace
from relay.store.filters import DeadLetterFilter, ReceiptFilter, UnknownConsumer
from relay.store.history import History
from relay.store.receipts import DeliveryView, ReceiptView
from relay.store.redrive import Counted, Effect, NotRedrivable, Performed, Redrive, Redriven, Redrives
from relay.store.request_keys import KeptAnswer
from tests.store.verifying import verified
from tests.store.world import TENANT, World, attempt, event, new_id, of_type

OTHER = "acct_other"
DONE = KeptAnswer(202, b"{}")


@pytest.fixture
def redrives(world: World) -> Redrives:
    return Redrives(world.database, entropy=os.urandom, key_retention_seconds=3600.0)


async def redrive_receipt(
    redrives: Redrives, receipt: UUID, *, consumer: str | None = None, tenant: str = TENANT
) -> tuple[tuple[Redriven, ...] | None, Effect]:
    answers: list[tuple[Redriven, ...] | None] = []

    async def work(redrive: Redrive) -> KeptAnswer:
        answers.append(await redrive.receipt(receipt, consumer=consumer))
        return DONE

    performed = await redrives.perform(tenant, None, work)
    return answers[0], performed.effect


async def redrive_delivery(redrives: Redrives, delivery: UUID, *, tenant: str = TENANT) -> DeliveryView | None:
    answers: list[DeliveryView | None] = []

    async def work(redrive: Redrive) -> KeptAnswer:
        answers.append(await redrive.delivery(delivery))
        return DONE

    await redrives.perform(tenant, None, work)
    return answers[0]


async def bulk(
    redrives: Redrives,
    wanted: DeadLetterFilter | None = None,
    *,
    discard: bool = False,
    limit: int = 1000,
    dry_run: bool = False,
    after: DeadPlace | None = None,
    tenant: str = TENANT,
) -> tuple[Counted, Effect]:
    answers: list[Counted] = []
    wanted = wanted or DeadLetterFilter()

    async def work(redrive: Redrive) -> KeptAnswer:
        call = redrive.discard_dead_letters if discard else redrive.redrive_dead_letters
        answers.append(await call(wanted, limit=limit, after=after, dry_run=dry_run))
        return DONE

    performed: Performed = await redrives.perform(tenant, None, work)
    return answers[0], performed.effect


async def dead(world: World, *to: UUID, number: int = 1, reason: DeadReason = DeadReason.EXHAUSTED) -> list[UUID]:
    """So many events whose deliveries have died; answers their receipts."""
    receipts = await world.owe(number, *to)
    claimed = (await world.claim(batch=number * len(to))).deliveries
    assert {each.receipt_id for each in claimed} == set(receipts)
    await world.record(*(attempt(each, DeliveryMove.BURY, dead=reason, reason="server_error") for each in claimed))
    return receipts


async def view(world: World, receipt: UUID) -> ReceiptView:
    shown = await world.receipts.get(TENANT, receipt)
    assert shown is not None
    return shown


# One receipt.


async def test_a_dead_letter_is_sent_again_in_a_new_generation_under_the_same_id(
    world: World, redrives: Redrives
) -> None:
    lane = await world.add_endpoint(EndpointConfig(name="ledger", url="http://h/"))
    (receipt,) = await dead(world, lane)
    (before,) = (await view(world, receipt)).deliveries
    redriven, effect = await redrive_receipt(redrives, receipt)
    assert redriven == (Redriven(before.id, lane, "ledger", 1),)
    assert effect == Effect(owes_anew=True, happenings=(ReceiptsRedriven(1),))
    row = await world.delivery(before.id)
    assert (row["status"], row["generation"], row["generation_attempts"]) == ("pending", 1, 0)
    assert (row["generation_started_at"], row["dead_reason"]) == (None, None)
    assert row["redriven_at"] is not None
    claimed = await world.claim_one()
    assert (claimed.id, claimed.generation, claimed.attempt, claimed.generation_attempt) == (before.id, 1, 2, 1)


async def test_a_receipt_closes_right_after_its_redrive_and_says_so(world: World, redrives: Redrives) -> None:
    (receipt,) = await dead(world, await world.add_endpoint())
    await redrive_receipt(redrives, receipt)
    recorded = await world.record(attempt(await world.claim_one()))
    assert recorded.closed == {receipt: ReceiptOutcome.DELIVERED_AFTER_REDRIVE}
    shown = await view(world, receipt)
    assert (shown.acked, shown.redriven, shown.outcome) == (1, True, ReceiptOutcome.DELIVERED_AFTER_REDRIVE)


async def test_only_what_is_not_acknowledged_is_sent_again(world: World, redrives: Redrives) -> None:
    """Of four deliveries one is delivered, one is dead, one waits for its retry, one was never tried."""
    lanes = await world.add_endpoints(4)
    (receipt,) = await world.owe(1, *lanes)
    first, second, third = (await world.claim(batch=3)).deliveries
    await world.record(
        attempt(first),
        attempt(second, DeliveryMove.BURY, dead=DeadReason.REFUSED),
        attempt(third, DeliveryMove.RETRY, delay=3600.0),
    )
    redriven, _ = await redrive_receipt(redrives, receipt)
    assert redriven is not None
    assert {each.id for each in redriven} == {second.id, third.id}
    assert {each.generation for each in redriven} == {1}
    assert len((await world.claim()).deliveries) == 3
    assert (await view(world, receipt)).acked == 1


async def test_what_is_being_sent_is_left_to_its_holder(world: World, redrives: Redrives) -> None:
    (receipt,) = await world.owe(1, await world.add_endpoint())
    claimed = await world.claim_one()
    assert (await redrive_receipt(redrives, receipt))[0] == ()
    assert not (await view(world, receipt)).redriven
    assert (await world.record(attempt(claimed))).closed == {receipt: ReceiptOutcome.DELIVERED}


async def test_what_waits_for_an_explicit_ack_is_sent_again(world: World, redrives: Redrives) -> None:
    (receipt,) = await world.owe(1, await world.add_endpoint())
    await world.record(attempt(await world.claim_one(), DeliveryMove.RECEIVE))
    await redrive_receipt(redrives, receipt)
    (delivery,) = (await view(world, receipt)).deliveries
    assert (delivery.status, delivery.generation, delivery.awaits_ack) == (DeliveryStatus.PENDING, 1, False)


async def test_a_named_consumer_alone_is_sent_to_again(world: World, redrives: Redrives) -> None:
    lanes = [await world.add_endpoint(EndpointConfig(name=name, url="http://h/")) for name in ("a", "b")]
    (receipt,) = await dead(world, *lanes)
    redriven, effect = await redrive_receipt(redrives, receipt, consumer="b")
    assert redriven is not None
    assert [each.consumer for each in redriven] == ["b"]
    assert effect.owes_anew


async def test_a_closed_receipt_has_nothing_to_send_again_and_stays_closed(world: World, redrives: Redrives) -> None:
    (receipt,) = await world.owe(1, await world.add_endpoint())
    await world.record(attempt(await world.claim_one()))
    assert await redrive_receipt(redrives, receipt) == ((), Effect())
    assert (await view(world, receipt)).outcome is ReceiptOutcome.DELIVERED


async def test_what_was_given_up_comes_back_with_its_receipt(world: World, redrives: Redrives) -> None:
    (receipt,) = await dead(world, await world.add_endpoint())
    await bulk(redrives, discard=True)
    assert (await view(world, receipt)).outcome is ReceiptOutcome.CLOSED_INCOMPLETE
    redriven, _ = await redrive_receipt(redrives, receipt)
    assert redriven is not None
    assert len(redriven) == 1
    shown = await view(world, receipt)
    assert (shown.discarded, shown.outcome, shown.closed_at) == (0, None, None)
    recorded = await world.record(attempt(await world.claim_one()))
    assert recorded.closed == {receipt: ReceiptOutcome.DELIVERED_AFTER_REDRIVE}


async def test_a_removed_endpoint_is_not_sent_to_again(world: World, redrives: Redrives) -> None:
    lane, gone = await world.add_endpoints(2)
    (receipt,) = await dead(world, lane, gone)
    await world.endpoints.remove(TENANT, gone)
    redriven, _ = await redrive_receipt(redrives, receipt)
    assert redriven is not None
    assert [each.endpoint_id for each in redriven] == [lane]


async def test_a_redrive_names_what_there_is_not(world: World, redrives: Redrives) -> None:
    await world.add_tenant(OTHER, 1)
    (receipt,) = await dead(world, await world.add_endpoint())
    delivery = await world.value("select id from deliveries")
    for tenant, each in ((TENANT, new_id()), (OTHER, receipt)):
        assert await redrive_receipt(redrives, each, tenant=tenant) == (None, Effect())
    for tenant, each in ((TENANT, new_id()), (OTHER, delivery)):
        assert await redrive_delivery(redrives, each, tenant=tenant) is None
    with pytest.raises(UnknownConsumer):
        await redrive_receipt(redrives, receipt, consumer="nobody")
    assert await world.statuses() == {"dead": 1}


# One delivery.


async def test_a_delivered_one_is_sent_once_more_and_its_receipt_is_open_until_its_ack(
    world: World, redrives: Redrives
) -> None:
    (receipt,) = await world.owe(1, *(await world.add_endpoints(2)))
    for each in (await world.claim()).deliveries:
        await world.record(attempt(each))
    replayed = (await view(world, receipt)).deliveries[0]
    shown = await redrive_delivery(redrives, replayed.id)
    assert shown is not None
    assert (shown.status, shown.generation, shown.acked_at) == (DeliveryStatus.PENDING, 1, None)
    reopened = await view(world, receipt)
    assert (reopened.acked, reopened.outcome, reopened.closed_at, reopened.redriven) == (1, None, None, True)
    recorded = await world.record(attempt(await world.claim_one()))
    assert recorded.closed == {receipt: ReceiptOutcome.DELIVERED_AFTER_REDRIVE}


async def test_one_that_is_being_sent_cannot_be_sent_again(world: World, redrives: Redrives) -> None:
    await world.owe(1, await world.add_endpoint())
    claimed = await world.claim_one()
    with pytest.raises(NotRedrivable, match="being sent right now"):
        await redrive_delivery(redrives, claimed.id)
    assert (await world.delivery(claimed.id))["lease_token"] == claimed.lease_token


async def test_one_to_a_removed_endpoint_cannot_be_sent_again(world: World, redrives: Redrives) -> None:
    lane = await world.add_endpoint()
    await dead(world, lane)
    await world.endpoints.remove(TENANT, lane)
    with pytest.raises(NotRedrivable, match="endpoint was removed"):
        await redrive_delivery(redrives, await world.value("select id from deliveries"))


async def test_one_that_was_given_up_comes_back(world: World, redrives: Redrives) -> None:
    (receipt,) = await dead(world, await world.add_endpoint())
    await bulk(redrives, discard=True)
    shown = await redrive_delivery(redrives, await world.value("select id from deliveries"))
    assert shown is not None
    assert (shown.status, shown.discarded_at) == (DeliveryStatus.PENDING, None)
    assert (await view(world, receipt)).outcome is None


async def test_one_of_an_event_that_was_not_acknowledged_is_not_there(world: World, redrives: Redrives) -> None:
    await world.owe(1, await world.add_endpoint())
    await world.sql("update deliveries set status = 'void'")
    assert await redrive_delivery(redrives, await world.value("select id from deliveries")) is None


# An event that had matched no rule.


async def test_an_event_without_a_route_is_routed_anew_by_the_rules_now_in_force(
    world: World, redrives: Redrives
) -> None:
    added = event()
    await world.append(added)
    receipt = added.envelope.receipt_id
    lane = await world.add_endpoint(EndpointConfig(name="a", url="http://h/", event_types=("invoice.*",)))
    await world.add_endpoint(EndpointConfig(name="b", url="http://h/", event_types=("user.*",)))
    redriven, effect = await redrive_receipt(redrives, receipt)
    assert redriven is not None
    assert [(each.endpoint_id, each.consumer, each.generation) for each in redriven] == [(lane, "a", 0)]
    assert effect == Effect(owes_anew=True, happenings=(ReceiptsRedriven(1),))
    shown = await view(world, receipt)
    assert (shown.expected, shown.reason, shown.unrouted_at) == (1, None, None)
    assert shown.rules_version == (await world.versions()).rules
    claimed = await world.claim_one()
    assert claimed.id == redriven[0].id
    assert (await world.record(attempt(claimed))).closed == {receipt: ReceiptOutcome.DELIVERED_AFTER_REDRIVE}


async def test_an_event_that_still_has_no_route_stays_a_dead_letter(world: World, redrives: Redrives) -> None:
    added = event()
    await world.append(added)
    assert await redrive_receipt(redrives, added.envelope.receipt_id) == ((), Effect())
    shown = await view(world, added.envelope.receipt_id)
    assert (shown.reason, shown.redriven) == (DeadReason.NO_ROUTE, False)
    assert shown.unrouted_at is not None


async def test_an_event_without_a_route_that_was_given_up_is_routed_anew_too(world: World, redrives: Redrives) -> None:
    added = event()
    await world.append(added)
    assert (await bulk(redrives, discard=True))[0] == Counted(1, more=False)
    await world.add_endpoint()
    redriven, _ = await redrive_receipt(redrives, added.envelope.receipt_id)
    assert redriven is not None
    assert len(redriven) == 1
    shown = await view(world, added.envelope.receipt_id)
    assert (shown.discarded, shown.outcome, shown.expected) == (0, None, 1)


@pytest.mark.parametrize("given_up", [False, True], ids=["waiting", "given up"])
async def test_an_event_without_a_route_is_routed_to_a_named_consumer_alone(
    world: World, redrives: Redrives, given_up: bool
) -> None:
    added = event()
    await world.append(added)
    if given_up:
        await bulk(redrives, discard=True)
    lane = await world.add_endpoint(EndpointConfig(name="a", url="http://h/"))
    await world.add_endpoint(EndpointConfig(name="b", url="http://h/"))
    redriven, effect = await redrive_receipt(redrives, added.envelope.receipt_id, consumer="a")
    assert redriven is not None
    assert [(each.endpoint_id, each.consumer) for each in redriven] == [(lane, "a")]
    assert effect == Effect(owes_anew=True, happenings=(ReceiptsRedriven(1),))
    shown = await view(world, added.envelope.receipt_id)
    assert (shown.expected, shown.reason, shown.unrouted_at, shown.discarded) == (1, None, None, 0)
    assert (await verified(world)).faults == ()


async def test_an_event_without_a_route_stays_one_where_the_named_consumer_does_not_want_it(
    world: World, redrives: Redrives
) -> None:
    """One of other types, and one that was removed; that others want it helps nothing."""
    added = event()
    await world.append(added)
    await world.add_endpoint(EndpointConfig(name="a", url="http://h/", event_types=("user.*",)))
    gone = await world.add_endpoint(EndpointConfig(name="gone", url="http://h/"))
    await world.endpoints.remove(TENANT, gone)
    await world.add_endpoint(EndpointConfig(name="b", url="http://h/"))
    for consumer in ("a", "gone"):
        with pytest.raises(NotRedrivable, match=r"does not subscribe to invoice\.paid"):
            await redrive_receipt(redrives, added.envelope.receipt_id, consumer=consumer)
    assert (await view(world, added.envelope.receipt_id)).unrouted_at is not None
    assert await world.rows_in("deliveries") == 0


# Many dead letters.


async def test_a_bulk_redrive_sends_all_dead_letters_of_the_tenant_and_no_other(
    world: World, redrives: Redrives
) -> None:
    """Case C153: an empty filter, and another tenant's names, reach nothing of anybody else."""
    await world.add_tenant(OTHER, 1)
    mine = await world.add_endpoint(EndpointConfig(name="mine", url="http://h/"))
    theirs = await world.add_endpoint(EndpointConfig(name="theirs", url="http://h/"), tenant=OTHER)
    await dead(world, mine, number=3)
    await world.append(*(event(to=(theirs,), tenant=OTHER, partition=1) for _ in range(2)))
    await world.append(event(tenant=OTHER, partition=1))
    for each in (await world.claim()).deliveries:
        await world.record(attempt(each, DeliveryMove.BURY, dead=DeadReason.EXHAUSTED))
    for call in (False, True):
        with pytest.raises(UnknownConsumer):
            await bulk(redrives, DeadLetterFilter(consumer="theirs"), discard=call)
    counted, effect = await bulk(redrives)
    assert counted == Counted(3, more=False)
    assert effect == Effect(owes_anew=True, happenings=(ReceiptsRedriven(3),))
    await bulk(redrives, discard=True)
    assert await world.value("select count(*) from deliveries where tenant = $1 and status = 'dead'", OTHER) == 2
    assert await world.value("select count(*) from receipts where unrouted_at is not null and tenant = $1", OTHER) == 1
    assert await world.value("select count(*) from deliveries where discarded_at is not null") == 0


async def test_a_dry_run_counts_what_the_call_would_change_and_changes_nothing(
    world: World, redrives: Redrives
) -> None:
    lane, gone = await world.add_endpoints(2)
    await dead(world, lane, gone, number=4)
    await world.endpoints.remove(TENANT, gone)
    await world.append(event())
    for discard in (False, True):
        told, effect = await bulk(redrives, discard=discard, dry_run=True, limit=3)
        assert (told, effect) == (Counted(3, more=True), Effect())
    assert (await bulk(redrives, dry_run=True))[0] == Counted(5, more=False)
    assert (await bulk(redrives, discard=True, dry_run=True))[0] == Counted(9, more=False)
    assert await world.statuses() == {"dead": 8}
    assert (await bulk(redrives))[0] == Counted(5, more=False)


@pytest.mark.parametrize("wanted", [{}, {"consumer": "ledger"}, {"reason": DeadReason.EXHAUSTED}], ids=str)
async def test_a_call_looks_at_so_many_and_the_next_one_goes_on_there(
    world: World, redrives: Redrives, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any]
) -> None:
    monkeypatch.setattr(dead_letters, "PICK_WINDOWS", (2, 3))
    await dead(world, await world.add_endpoint(EndpointConfig(name="ledger", url="http://h/")), number=12)
    await world.sql("update receipts set type = 'rare' where id = (select id from receipts order by id desc limit 1)")
    await world.sql(
        "update deliveries set dead_at = now() - interval '1 hour'"
        " where receipt_id <> (select id from receipts where type = 'rare')"
    )
    answers: list[Counted] = [Counted(0, more=True)]
    while answers[-1].more:
        answers.append((await bulk(redrives, DeadLetterFilter(type="rare", **wanted), after=answers[-1].next))[0])
    assert [each.count for each in answers[1:]] == [0, 0, 1]


async def test_call_after_call_takes_the_oldest_until_there_is_no_more(world: World, redrives: Redrives) -> None:
    lane = await world.add_endpoint()
    await dead(world, lane, number=5)
    await world.sql("update deliveries set dead_at = now() - interval '1 hour' + (random() * 60) * interval '1 minute'")
    oldest = [row[0] for row in await world.sql("select id from deliveries order by dead_at limit 2")]
    assert (await bulk(redrives, limit=2))[0] == Counted(2, more=True)
    rows = await world.sql("select id from deliveries where status = 'pending'")
    assert {row[0] for row in rows} == set(oldest)
    assert (await bulk(redrives, limit=2))[0] == Counted(2, more=True)
    assert (await bulk(redrives, limit=2))[0] == Counted(1, more=False)


async def test_events_that_match_no_rule_and_removed_endpoints_do_not_stand_in_the_way_of_others(
    world: World, redrives: Redrives
) -> None:
    """They are the oldest, and more than one call takes."""
    gone = await world.add_endpoint()
    await dead(world, gone, number=3)
    await world.endpoints.remove(TENANT, gone)
    await world.append(*(event() for _ in range(3)))
    lane = await world.add_endpoint(EndpointConfig(name="users", url="http://h/", event_types=("user.*",)))
    await world.append(of_type(event(), "user.added"))
    await dead(world, lane)
    assert (await bulk(redrives, limit=2))[0] == Counted(2, more=False)
    assert await world.statuses() == {"dead": 3, "pending": 2}


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (DeadLetterFilter(consumer="a"), 3),
        (DeadLetterFilter(consumer="a", reason=DeadReason.REFUSED), 2),
        (DeadLetterFilter(reason=DeadReason.REFUSED), 4),
        (DeadLetterFilter(type="user.*"), 3),
        (DeadLetterFilter(type="user.added", consumer="b"), 1),
        (DeadLetterFilter(type="user.added", reason=DeadReason.NO_ROUTE), 1),
        (DeadLetterFilter(reason=DeadReason.NO_ROUTE), 1),
    ],
    ids=lambda each: str(each).removeprefix("DeadLetterFilter"),
)
@pytest.mark.parametrize("discard", [False, True])
async def test_a_bulk_call_is_about_what_its_filter_says(
    world: World, redrives: Redrives, wanted: DeadLetterFilter, count: int, discard: bool
) -> None:
    lanes = [await world.add_endpoint(EndpointConfig(name=name, url="http://h/")) for name in ("a", "b")]
    await dead(world, *lanes, number=2, reason=DeadReason.REFUSED)
    await world.append(of_type(event(to=lanes), "user.added"))
    for each in (await world.claim()).deliveries:
        await world.record(attempt(each, DeliveryMove.BURY, dead=DeadReason.EXHAUSTED))
    await world.append(of_type(event(), "user.added"))
    assert (await bulk(redrives, wanted, discard=discard, dry_run=True))[0] == Counted(count, more=False)
    assert (await bulk(redrives, wanted, discard=discard))[0] == Counted(count, more=False)
    assert (await bulk(redrives, wanted, discard=discard))[0] == Counted(0, more=False)


async def test_a_bulk_redrive_makes_only_so_many_deliveries_at_once(
    world: World, redrives: Redrives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_FAN_OUT", 4)
    await world.append(*(event() for _ in range(3)))
    await world.add_endpoints(3)
    for more in (True, True, False):
        assert (await bulk(redrives))[0] == Counted(1, more=more)
    assert await world.rows_in("deliveries") == 9


# Giving up.


async def test_a_receipt_closes_incomplete_when_the_last_that_it_is_owed_is_given_up(
    world: World, redrives: Redrives
) -> None:
    lanes = [await world.add_endpoint(EndpointConfig(name=name, url="http://h/")) for name in ("a", "b")]
    (receipt,) = await dead(world, *lanes)
    _, effect = await bulk(redrives, DeadLetterFilter(consumer="a"), discard=True)
    assert effect == Effect()
    shown = await view(world, receipt)
    assert (shown.discarded, shown.outcome) == (1, None)
    _, effect = await bulk(redrives, discard=True)
    assert effect == Effect(happenings=(ReceiptsClosed(ReceiptOutcome.CLOSED_INCOMPLETE, 1),))
    shown = await view(world, receipt)
    assert (shown.discarded, shown.outcome) == (2, ReceiptOutcome.CLOSED_INCOMPLETE)
    assert shown.closed_at is not None
    assert {each.status for each in shown.deliveries} == {DeliveryStatus.DEAD}
    assert None not in {each.discarded_at for each in shown.deliveries}


async def test_an_ack_after_a_part_was_given_up_closes_the_receipt_incomplete(world: World, redrives: Redrives) -> None:
    (receipt,) = await world.owe(1, *(await world.add_endpoints(2)))
    first, second = (await world.claim()).deliveries
    await world.record(attempt(first, DeliveryMove.BURY, dead=DeadReason.EXHAUSTED))
    await bulk(redrives, discard=True)
    assert (await world.record(attempt(second))).closed == {receipt: ReceiptOutcome.CLOSED_INCOMPLETE}


async def test_what_was_given_up_is_no_dead_letter_and_keeps_no_receipt_open(world: World, redrives: Redrives) -> None:
    receipts = await dead(world, await world.add_endpoint(), number=2)
    added = event()
    await world.append(added)
    assert (await bulk(redrives, discard=True))[0] == Counted(3, more=False)
    assert (await bulk(redrives, dry_run=True))[0] == Counted(0, more=False)
    history = History(world.database)
    assert (await history.receipts(TENANT, ReceiptFilter(open=True), limit=9)).items == ()
    closed = await history.receipts(TENANT, ReceiptFilter(open=False), limit=9)
    assert {each.id for each in closed.items} == {*receipts, added.envelope.receipt_id}
    assert {each.outcome for each in closed.items} == {ReceiptOutcome.CLOSED_INCOMPLETE}


async def test_what_a_removed_endpoint_is_owed_can_be_given_up(world: World, redrives: Redrives) -> None:
    lane = await world.add_endpoint(EndpointConfig(name="gone", url="http://h/"))
    (receipt,) = await world.owe(1, lane)
    await world.endpoints.remove(TENANT, lane)
    await world.queue.bury_removed(batch=10)
    assert (await bulk(redrives, DeadLetterFilter(consumer="gone")))[0] == Counted(0, more=False)
    assert (await bulk(redrives, DeadLetterFilter(consumer="gone"), discard=True))[0] == Counted(1, more=False)
    assert (await view(world, receipt)).outcome is ReceiptOutcome.CLOSED_INCOMPLETE
