"""Whatever fails on this side: nothing is lost, and nobody's work is overwritten."""

from __future__ import annotations

import errno
import socket
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from relay.dispatcher import ClaimTuning, Directory, launcher
from relay.dispatcher.launcher import Launcher
from relay.domain.delivery import DeadReason, DeliveryStatus
from relay.domain.outcome import HandBackReason, OutcomeClass, OutcomeReason, Retry
from relay.domain.receipt import ReceiptOutcome
from relay.domain.sending import ErrorClass
from relay.domain.telemetry import (
    AttemptsRecorded,
    DeadLettered,
    DeliveriesHandedBack,
    DeliveryMetBug,
    Happening,
    InFlightChanged,
    LeasesLost,
    LeasesReaped,
    Loop,
    LoopCrashed,
    LoopSucceeded,
    ProcessStopped,
    ReceiptsClosed,
    SendsFailedHere,
)
from relay.sender import transfer
from relay.store.database import Database
from relay.store.faults import StoreUnavailable
from relay.store.queue import FIRST_LANE
from relay.store.vault import Vault, new_key
from relay.store.wakeups import WakeupSender
from relay.transports.http import HttpDestination
from tests.store.world import only
from tests.support.deliveries import new_id
from tests.support.dispatching import RETRY, TENANT, TUNING, House
from tests.support.link import Link
from tests.support.receiver import Receiver
from tests.support.refusing import refuse_records
from tests.support.scripted_server import never_accepting


async def test_a_stop_finishes_what_is_sent_and_hands_the_rest_back(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/slow?ms=300"), max_in_flight=50)
    async with house.dispatching(replace(TUNING, concurrency=2)) as running:
        receipts = await house.events(20, endpoint)
        await house.until(lambda: any(each.count for each in house.heard(InFlightChanged)))
        running.stop.set()
        await running.task
    assert house.heard(ProcessStopped)[0].abandoned == 0
    assert {each.reason for each in house.heard(DeliveriesHandedBack)} == {HandBackReason.DRAINING}
    views = [await house.delivery(receipt) for receipt in receipts]
    assert {view.status for view in views} == {DeliveryStatus.PENDING, DeliveryStatus.DELIVERED}
    for view in views:
        assert view.attempts == (1 if view.status is DeliveryStatus.DELIVERED else 0)
        assert len(await house.receipts.attempts(view)) == view.attempts


async def test_a_stop_counts_what_a_silent_endpoint_may_have_as_an_attempt(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/hang"))
    async with house.dispatching(replace(TUNING, drain_seconds=0.2)) as running:
        receipt = await house.event(endpoint)
        await house.until(lambda: any(each.count for each in house.heard(InFlightChanged)))
        running.stop.set()
        await running.task
    delivery = await house.delivery(receipt)
    (attempt,) = await house.receipts.attempts(delivery)
    assert (delivery.status, delivery.attempts) == (DeliveryStatus.PENDING, 1)
    assert (attempt.outcome_class, attempt.error_class) == (OutcomeClass.RETRYABLE, ErrorClass.CUT_SHORT)
    ((told,),) = [each.attempts for each in house.heard(AttemptsRecorded)]
    assert told.verdict == Retry(RETRY.base_seconds, OutcomeReason.CUT_SHORT)


async def test_a_stop_hands_back_what_never_got_a_connection(house: House) -> None:
    with never_accepting() as url:
        endpoint = await house.endpoint(url)
        async with house.dispatching(replace(TUNING, drain_seconds=0.2)) as running:
            receipt = await house.event(endpoint)
            await house.until(lambda: any(each.count for each in house.heard(InFlightChanged)))
            running.stop.set()
            await running.task
    delivery = await house.delivery(receipt)
    assert (delivery.status, delivery.attempts) == (DeliveryStatus.PENDING, 0)
    assert await house.receipts.attempts(delivery) == []


async def test_a_reaped_lease_cannot_record_its_outcome(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/slow?ms=500"))
    async with house.dispatching():
        receipt = await house.event(endpoint)
        await house.until(lambda: any(each.count for each in house.heard(InFlightChanged)))
        # somebody else takes the delivery over while the answer is still under way; in a closed lane it then stays
        await house.execute("update endpoints set status = 'paused'")
        await house.execute("update deliveries set lease_until = now() - interval '1 second'")
        assert await house.queue.reap(batch=10) == 1
        await house.until(lambda: bool(house.heard(LeasesLost)))
    delivery = await house.delivery(receipt)
    assert (delivery.status, delivery.acked_at) == (DeliveryStatus.PENDING, None)
    told = [(attempt.error_class, attempt.status_code) for attempt in await house.receipts.attempts(delivery)]
    assert told == [(ErrorClass.LEASE_EXPIRED, None), (None, 200)]


async def test_the_leases_of_a_dead_process_come_back_without_any_traffic(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    receipt = await house.event(endpoint)
    claim = await house.queue.claim_due(after=FIRST_LANE, batch=10, token=endpoint, lease_seconds=0.2)
    assert len(claim.deliveries) == 1
    async with house.dispatching():
        await house.until(lambda: bool(house.heard(LeasesReaped)))
        await house.until(lambda: bool(house.heard(ReceiptsClosed)))
    delivery = await house.delivery(receipt)
    assert (delivery.status, delivery.attempts) == (DeliveryStatus.DELIVERED, 2)
    told = [(each.attempt, each.error_class, each.status_code) for each in await house.receipts.attempts(delivery)]
    assert told == [(1, ErrorClass.LEASE_EXPIRED, None), (2, None, 200)]


async def errors_of(house: House, delivery_id: UUID) -> list[tuple[int, str | None]]:
    delivery = await house.receipts.delivery(TENANT, delivery_id)
    assert delivery is not None
    return [(each.attempt, each.error_class) for each in await house.receipts.attempts(delivery)]


async def test_a_record_that_the_database_refuses_keeps_no_lease_from_coming_back(
    house: House, receiver: Receiver
) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    await house.events(2, endpoint)
    claim = await house.queue.claim_due(after=FIRST_LANE, batch=10, token=endpoint, lease_seconds=0.2)
    doomed, other = claim.deliveries
    await refuse_records(house.database, where=f"new.delivery_id = '{doomed.id}' and new.error_class is not null")
    async with house.dispatching():
        await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)) == 2)
    assert [each.loop for each in house.heard(LoopCrashed)] == [Loop.REAPER]
    assert [each.count for each in house.heard(LeasesReaped)] == [2]
    assert await errors_of(house, doomed.id) == [(2, None)]
    assert await errors_of(house, other.id) == [(1, "lease_expired"), (2, None)]


async def test_a_delivery_that_kills_its_workers_does_not_go_round_for_ever(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"), retry={"max_attempts": 3})
    receipt = await house.event(endpoint)
    for _ in range(3):
        claim = await house.queue.claim_due(after=FIRST_LANE, batch=1, token=new_id(), lease_seconds=-1.0)
        assert (len(claim.deliveries), await house.queue.reap(batch=1)) == (1, 1)
    async with house.dispatching():
        await house.until(lambda: bool(house.heard(AttemptsRecorded)))
    delivery = await house.delivery(receipt)
    assert (delivery.status, delivery.dead_reason) == (DeliveryStatus.DEAD, "exhausted")
    assert delivery.last_error == (
        "not sent: 3 attempts were made and 3 are allowed:"
        " the last one ended without an answer on record, or the retry rule was changed"
    )
    told = [(each.attempt, each.error_class) for each in await house.receipts.attempts(delivery)]
    assert told == [(1, "lease_expired"), (2, "lease_expired"), (3, "lease_expired"), (4, None)]
    assert receiver.received() == []


async def test_a_lease_too_short_for_the_total_timeout_is_not_sent(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"), timeout_seconds=30.0)
    async with house.dispatching(replace(TUNING, claim=ClaimTuning(100, 20.0, 0.5))):
        receipt = await house.event(endpoint)
        await house.until(lambda: bool(house.heard(DeliveriesHandedBack)))
        await house.execute("update endpoints set status = 'paused'")
    assert house.heard(DeliveriesHandedBack)[0].reason is HandBackReason.LEASE
    assert receiver.received() == []
    assert (await house.delivery(receipt)).attempts == 0


async def test_trouble_of_this_machine_spends_no_attempt_and_is_told_once_while_it_lasts(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: int) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(transfer, "_Opened", none_left)
    monkeypatch.setattr(launcher, "LOCAL_DELAY_SECONDS", 0.05)
    endpoint = await house.endpoint(receiver.url("/ok"), name="billing")
    async with house.dispatching():
        receipt = await house.event(endpoint)
        await house.until(lambda: len(house.heard(DeliveriesHandedBack)) >= 3)
        monkeypatch.undo()
        await house.until(lambda: bool(house.heard(ReceiptsClosed)))
    assert {each.reason for each in house.heard(DeliveriesHandedBack)} == {HandBackReason.LOCAL}
    told = [replace(each, delivery_id=None) for each in house.heard(SendsFailedHere)]
    assert told == [SendsFailedHere(1, "billing", "Too many open files")]
    assert (await house.delivery(receipt)).attempts == 1


async def test_outcomes_are_written_after_the_database_was_away(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/slow?ms=300"), max_in_flight=32)
    async with house.dispatching():
        receipts = await house.events(20, endpoint)
        await house.until(lambda: any(each.count for each in house.heard(InFlightChanged)))
        for name in ("claims", "records", "wake-ups"):
            await house.cut_connections(name)
        await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)) == 20)
    assert len(receiver.received()) == 20
    for receipt in receipts:
        assert (await house.receipt(receipt)).outcome is ReceiptOutcome.DELIVERED


async def test_one_outcome_that_the_database_refuses_does_not_hold_up_the_others(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a status that no column holds stands for any value that the database will not take
    monkeypatch.setattr("relay.dispatcher.recorder.snippet_text", lambda body: "\x00" if b"slow" in body else "ok")
    good = await house.endpoint(receiver.url("/ok"))
    odd = await house.endpoint(receiver.url("/slow?ms=1"))
    async with house.dispatching():
        receipts = await house.events(5, good, odd)
        await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)) == 5)
    for receipt in receipts:
        assert (await house.receipt(receipt)).outcome is ReceiptOutcome.DELIVERED


async def test_a_bug_while_judging_one_answer_returns_its_permits_and_spares_the_others(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Launcher._judge
    broken: list[object] = []

    def buggy(self: Launcher, flight: object, *rest: object) -> None:
        if not broken:
            broken.append(flight)
            raise RuntimeError("a bug")
        judge(self, flight, *rest)  # type: ignore[arg-type] # passed through as it came

    monkeypatch.setattr(Launcher, "_judge", buggy)
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching():
        await house.events(10, endpoint)
        await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)) == 9)
        await house.until(lambda: house.heard(InFlightChanged)[-1].count == 0)
    assert [str(bug.error) for bug in house.heard(DeliveryMetBug)] == ["a bug"]


async def test_an_endpoint_whose_secret_has_no_key_waits_and_holds_up_nobody(house: House, receiver: Receiver) -> None:
    locked = await house.endpoint(receiver.url("/ok/locked"))
    house.vault = Vault([new_key()])
    house.endpoints = type(house.endpoints)(house.database, house.vault)
    good = await house.endpoint(receiver.url("/ok/good"))
    async with house.dispatching():
        receipt = await house.event(locked)
        await house.event(good)
        await house.until(lambda: bool(house.heard(ReceiptsClosed)))
        await house.until(lambda: bool(house.heard(DeliveriesHandedBack)))
    assert [arrival.path for arrival in receiver.received()] == ["/ok/good"]
    delivery = await house.delivery(receipt)
    assert (delivery.status, delivery.attempts) == (DeliveryStatus.PENDING, 0)


async def test_a_fresh_event_wakes_an_idle_dispatcher_long_before_its_poll(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(replace(TUNING, claim=ClaimTuning(100, 60.0, 300.0))):
        await house.event(endpoint)
        await house.until(lambda: len(house.heard(ReceiptsClosed)) == 1)
        await house.event(endpoint)
        await house.until(lambda: len(house.heard(ReceiptsClosed)) == 2)


async def test_a_wake_up_that_comes_before_what_it_tells_of_is_committed_costs_a_poll_and_no_more(
    house: House, receiver: Receiver
) -> None:
    """Case C113: whoever is woken finds nothing, and there is no other wake-up and no later traffic."""
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching():
        async with house.database.transaction() as connection:
            (receipt,) = await house.append(only(connection), 1, endpoint)
            await WakeupSender(house.database).send()
            asked = claims(house)
            await house.until(lambda: claims(house) > asked)
        await house.until(lambda: bool(house.heard(ReceiptsClosed)))
    assert (await house.delivery(receipt)).attempts == 1


def claims(house: House) -> int:
    """How often it was asked what is due."""
    return sum(each.loop is Loop.CLAIMER for each in house.heard(LoopSucceeded))


async def test_a_request_that_cannot_be_made_goes_back_and_the_others_leave(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = HttpDestination.request
    broken: list[UUID] = []

    def buggy(ready: HttpDestination, claimed: Any, **named: Any) -> Any:
        if not broken:
            broken.append(claimed.id)
            raise RuntimeError("a bug")
        return request(ready, claimed, **named)

    monkeypatch.setattr(HttpDestination, "request", buggy)
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching():
        await house.events(10, endpoint)
        await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)) == 9)
        await house.until(lambda: bool(house.heard(DeliveriesHandedBack)))
    assert [str(bug.error) for bug in house.heard(DeliveryMetBug)] == ["a bug"]
    assert house.heard(ProcessStopped)[0].abandoned == 0
    waiting = await house.receipts.delivery(TENANT, broken[0])
    assert waiting is not None
    assert (waiting.status, waiting.attempts) == (DeliveryStatus.PENDING, 0)


async def test_leases_of_a_claim_whose_addresses_could_not_be_read_are_handed_back(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = Directory.addresses
    failed: list[int] = []

    async def once(self: Directory, claimed: Any) -> Any:
        if not failed:
            failed.append(len(claimed))
            raise StoreUnavailable("away for a moment")
        return await addresses(self, claimed)

    monkeypatch.setattr(Directory, "addresses", once)
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching():
        receipts = await house.events(5, endpoint)
        await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)) == 5)
    assert [each.count for each in house.heard(DeliveriesHandedBack)] == failed
    assert {(await house.delivery(receipt)).attempts for receipt in receipts} == {1}


async def test_a_listener_that_fails_does_not_make_the_recorder_write_again(house: House, receiver: Receiver) -> None:
    hear = house.ear.__call__
    failing = [True]

    def deaf(happening: Happening) -> None:
        if isinstance(happening, AttemptsRecorded) and failing:
            failing.clear()
            raise RuntimeError("a listener's bug")
        hear(happening)

    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(emit=deaf):
        first = await house.event(endpoint)
        await house.until(lambda: bool(house.heard(LoopCrashed)))
        await house.event(endpoint)
        await house.until(lambda: bool(house.heard(ReceiptsClosed)))
    assert house.heard(LeasesLost) == []
    assert (await house.receipt(first)).outcome is ReceiptOutcome.DELIVERED


async def test_an_outcome_whose_answer_was_lost_is_told_once_and_as_what_it_was(
    database_dsn: str, database: Database, receiver: Receiver
) -> None:
    async with Link(database_dsn) as link:
        house = House(link.dsn, database)
        endpoint = await house.endpoint(receiver.url("/ok/lost"))
        async with house.dispatching():
            link.lose_next_answer(b"/ok/lost")
            receipt = await house.event(endpoint)
            await house.until(lambda: bool(house.heard(AttemptsRecorded)))
    assert link.losses == 1
    assert len(await house.receipts.attempts(await house.delivery(receipt))) == 1
    assert [len(each.attempts) for each in house.heard(AttemptsRecorded)] == [1]
    assert house.heard(ReceiptsClosed) == [ReceiptsClosed(ReceiptOutcome.DELIVERED, 1)]
    assert house.heard(LeasesLost) == []


async def test_what_a_removed_endpoint_was_owed_is_told_as_dead_letters(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"), name="ledger")
    await house.events(3, endpoint)
    await house.endpoints.remove(TENANT, endpoint)
    async with house.dispatching():
        await house.until(lambda: bool(house.heard(DeadLettered)))
    assert house.heard(DeadLettered) == [DeadLettered("ledger", DeadReason.ENDPOINT_REMOVED, 3)]
    assert receiver.received() == []
