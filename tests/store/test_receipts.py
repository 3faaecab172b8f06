"""Receipts, deliveries and attempts as their tenant sees them, and nobody else."""

from __future__ import annotations

import hashlib

from relay.domain import ids
from relay.domain.delivery import DeadReason, DeliveryMove, DeliveryStatus
from relay.domain.endpoint import EndpointState
from tests.store.world import TENANT, World, attempt, event, new_id

OTHER = "acct_other"


async def test_a_receipt_shows_its_envelope_and_its_progress(world: World) -> None:
    lanes = await world.add_endpoints(2)
    added = event(to=lanes, payload=b"abc\x00")
    await world.append(added)
    await world.record(attempt((await world.claim()).deliveries[0]))
    view = await world.receipts.get(TENANT, added.envelope.receipt_id)
    assert view is not None
    assert (view.payload_bytes, view.payload_sha256) == (4, hashlib.sha256(b"abc\x00").digest())
    assert (view.expected, view.acked, view.redriven, view.outcome, view.closed_at) == (2, 1, False, None, None)
    assert (view.tenant, view.rules_version) == (TENANT, (await world.versions()).rules)
    assert abs(await world.value("select extract(epoch from now() - $1)::float", view.committed_at)) < 30


async def test_a_receipts_deliveries_are_its_own(world: World) -> None:
    """Receipts of one millisecond are neighbours in the key by which deliveries are found."""
    (lane,) = await world.add_endpoints(1)
    twins = [new_id(unix_ms=new_id().int >> 80) for _ in range(20)]
    await world.append(*(event(to=(lane,), receipt=receipt) for receipt in twins))
    for receipt in twins:
        view = await world.receipts.get(TENANT, receipt)
        assert view is not None
        assert [each.receipt_id for each in view.deliveries] == [receipt]


async def test_two_receipts_that_share_the_key_range_still_keep_apart(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    first = new_id()
    second = ids.delivery_id(first, b"\xff\xff\xff\xfe")
    added = event(to=(lane,), receipt=second)
    await world.append(event(receipt=first), added)
    view = await world.receipts.get(TENANT, first)
    assert view is not None
    assert view.deliveries == ()


async def test_a_delivery_shows_what_is_known_of_it(world: World) -> None:
    lane = await world.add_endpoint()
    await world.owe(1, lane)
    claimed = await world.claim_one()
    await world.record(attempt(claimed, DeliveryMove.RETRY, delay=60.0, reason="server_error"))
    view = await world.receipts.delivery(TENANT, claimed.id)
    assert view is not None
    assert (view.id, view.receipt_id, view.endpoint_id) == (claimed.id, claimed.receipt_id, lane)
    assert (view.status, view.attempts, view.generation) == (DeliveryStatus.PENDING, 1, 0)
    assert (view.last_error, view.awaits_ack, view.dead_reason) == ("server_error", False, None)
    assert (view.acked_at, view.dead_at, view.held_reason, view.held_until) == (None, None, None, None)
    assert view.consumer == lane.hex
    assert view.endpoint_state is EndpointState.ACTIVE


async def test_a_delivery_tells_that_its_endpoint_is_paused(world: World) -> None:
    lane = await world.add_endpoint()
    await world.owe(1, lane)
    await world.endpoints.set_state(TENANT, lane, EndpointState.PAUSED)
    claimed = await world.value("select id from deliveries")
    view = await world.receipts.delivery(TENANT, claimed)
    assert view is not None
    assert view.endpoint_state is EndpointState.PAUSED


async def test_a_hold_that_is_over_is_not_shown(world: World) -> None:
    lane = await world.add_endpoint()
    await world.owe(1, lane)
    await world.sql("update endpoint_state set held_until = now() - interval '1 second', held_reason = 'retry_after'")
    view = await world.receipts.delivery(TENANT, await world.value("select id from deliveries"))
    assert view is not None
    assert (view.held_reason, view.held_until) == (None, None)


async def test_a_receipt_goes_on_naming_a_removed_endpoint(world: World) -> None:
    lane = await world.add_endpoint()
    (receipt,) = await world.owe(1, lane)
    await world.endpoints.remove(TENANT, lane)
    await world.queue.bury_removed(batch=10)
    view = await world.receipts.get(TENANT, receipt)
    assert view is not None
    (delivery,) = view.deliveries
    assert (delivery.consumer, delivery.dead_reason) == (lane.hex, DeadReason.ENDPOINT_REMOVED)


async def test_attempts_are_told_in_their_order(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    for _ in range(4):
        await world.record(attempt(await world.claim_one(), DeliveryMove.RETRY))
    view = await world.receipts.delivery(TENANT, await world.value("select id from deliveries"))
    assert view is not None
    assert [each.attempt for each in await world.receipts.attempts(view)] == [1, 2, 3, 4]


async def test_a_delivery_that_was_not_tried_has_no_attempts(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    view = await world.receipts.delivery(TENANT, await world.value("select id from deliveries"))
    assert view is not None
    assert await world.receipts.attempts(view) == []


async def test_attempts_are_found_though_the_gateways_clock_is_hours_ahead(world: World) -> None:
    lane = await world.add_endpoint()
    ahead = new_id(unix_ms=(new_id().int >> 80) + 20 * 3_600_000)
    await world.append(event(to=(lane,), receipt=ahead))
    claimed = await world.claim_one()
    await world.record(attempt(claimed))
    view = await world.receipts.delivery(TENANT, claimed.id)
    assert view is not None
    assert len(await world.receipts.attempts(view)) == 1


async def test_what_another_tenant_owns_is_not_there(world: World) -> None:
    await world.add_tenant(OTHER, 1)
    (receipt,) = await world.owe(1, await world.add_endpoint())
    delivery = await world.value("select id from deliveries")
    assert await world.receipts.get(OTHER, receipt) is None
    assert await world.receipts.payload(OTHER, receipt) is None
    assert await world.receipts.delivery(OTHER, delivery) is None


async def test_what_does_not_exist_is_not_there(world: World) -> None:
    for unknown in (new_id(), new_id(unix_ms=0), new_id(unix_ms=(1 << 47))):
        assert await world.receipts.get(TENANT, unknown) is None
        assert await world.receipts.payload(TENANT, unknown) is None
        assert await world.receipts.delivery(TENANT, unknown) is None
