"""A database in which every state occurs, and a walk over it: what the tests of the verification share."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from relay.app.verification import Pace, Tell, Walk
from relay.domain.delivery import DeadReason, DeliveryMove
from relay.domain.endpoint import EndpointConfig
from relay.domain.verification import FaultKind, Verification
from relay.store.acks import Acks, AckWanted
from relay.store.filters import DeadLetterFilter
from relay.store.journal import Addition, Voided
from relay.store.redrive import Redrive, Redrives
from relay.store.request_keys import KeptAnswer
from relay.store.verify import Verifying
from tests.store.world import TENANT, World, attempt, event, named, new_id, of_type

OTHER = "acct_other"
OTHER_PARTITION = 9
DAY_MS = 86_400_000
DONE = KeptAnswer(202, b"{}")


def nobody(_: int, __: int) -> None:
    """Watches no progress."""


async def verified(world: World, *, window: int = 256, tell: Tell = nobody) -> Verification:
    """What a walk finds, in windows of so many rows."""
    return await walk(Verifying(world.database), window=window, tell=tell)


async def walk(store: Verifying, *, window: int = 256, tell: Tell = nobody) -> Verification:
    """The same, by somebody who asks in a way of its own."""
    return await Walk(store, clock=time.monotonic, tell=tell, pace=Pace(window=window, most=window)).run()


def kinds(found: Verification) -> set[FaultKind]:
    """The kinds of faults that were found."""
    return {each.kind for each in found.faults}


@dataclass(frozen=True, slots=True)
class Fates:
    """One receipt of each fate. All but the unrouted ones have two deliveries."""

    delivered: UUID
    redelivered: UUID
    given_up: UUID
    dead: UUID
    awaiting_ack: UUID
    in_flight: UUID
    waiting: UUID
    unrouted: UUID
    void: UUID
    void_unrouted: UUID


EVENTS, VOID, MATCHED, NO_ROUTE = 14, 2, 21, 2
"""How much `in_every_state` makes: ten fates, three of another tenant, one given up, one routed anew, one revived."""


async def in_every_state(world: World) -> Fates:
    """Events of two tenants and three days, with and without keys, and deliveries in every state that there is."""
    lanes = (await add_lane(world, "first"), await add_lane(world, "second"))
    await _of_another_tenant(world)
    await _of_no_route(world)
    await _revived(world, lanes)
    both_acked = await _with_fate(world, lanes, DeliveryMove.ACK, DeliveryMove.BURY)
    # a dead letter's ack is proof as well
    assert await Acks(world.database).acknowledge([AckWanted(TENANT, both_acked, consumer="second")]) != [None]
    redelivered = await _with_fate(world, lanes, DeliveryMove.ACK, DeliveryMove.BURY)
    await redrive(world, redelivered)
    await _deliver(world)
    given_up = await _with_fate(world, lanes, DeliveryMove.ACK, DeliveryMove.BURY)
    await discard(world)
    return Fates(
        delivered=both_acked,
        redelivered=redelivered,
        given_up=given_up,
        dead=await _with_fate(world, lanes, DeliveryMove.ACK, DeliveryMove.BURY),
        awaiting_ack=await _with_fate(world, lanes, DeliveryMove.RECEIVE, DeliveryMove.ACK),
        in_flight=await _with_fate(world, lanes),
        waiting=await _append(world, lanes),
        unrouted=await _append(world, ()),
        void=await _void(world, lanes),
        void_unrouted=await _void(world, ()),
    )


async def add_lane(world: World, name: str, *, tenant: str = TENANT) -> UUID:
    """An endpoint that wants invoices."""
    config = EndpointConfig(name=name, url="http://127.0.0.1:9099/ok", event_types=("invoice.*",))
    return await world.add_endpoint(config, tenant=tenant)


async def _of_another_tenant(world: World) -> None:
    """Events of three days, all delivered."""
    await world.add_tenant(OTHER, OTHER_PARTITION)
    lane = await add_lane(world, "theirs", tenant=OTHER)
    now = time.time_ns() // 1_000_000
    for days in (3, 1, 0):
        receipt = new_id(unix_ms=now - days * DAY_MS)
        await world.append(event(to=(lane,), tenant=OTHER, partition=OTHER_PARTITION, receipt=receipt))
    await _deliver(world)


async def _of_no_route(world: World) -> None:
    """An event that nobody wanted and somebody gave up, and one that was routed anew and delivered."""
    await world.append(of_type(event(), "user.gone"))
    await discard(world)
    routed = event()
    await world.append(routed)
    await redrive(world, routed.envelope.receipt_id)
    await _deliver(world)


async def _deliver(world: World) -> None:
    await world.record(*(attempt(each) for each in (await world.claim()).deliveries))


async def _append(world: World, to: tuple[UUID, ...]) -> UUID:
    receipt = new_id()
    await world.append(event(to=to, key=named(receipt.hex), payload=receipt.bytes, receipt=receipt))
    return receipt


async def _void(world: World, lanes: tuple[UUID, ...]) -> UUID:
    """An event that no quorum confirmed in time, so that it was not acknowledged to its sender."""
    receipt = new_id()
    await _append_void(world, event(to=lanes, key=named(receipt.hex), receipt=receipt))
    return receipt


async def _append_void(world: World, addition: Addition) -> None:
    (appended,) = await world.append(addition)
    receipt = addition.envelope.receipt_id
    answer = await world.journal.void(
        [receipt],
        log_from=appended.log_from,
        timeline=appended.timeline,
        standbys=1,
        names=["r2"],
        promise=None,
    )
    assert answer == {receipt: Voided.VOID}


async def _revived(world: World, lanes: tuple[UUID, ...]) -> None:
    """An event that was void until its sender repeated it; delivered since."""
    addition = event(to=lanes, key=named("again"))
    await _append_void(world, addition)
    await world.append(addition)
    await _deliver(world)


async def _with_fate(world: World, lanes: tuple[UUID, ...], *moves: DeliveryMove) -> UUID:
    """An event whose deliveries were claimed and then went these ways, in the order of the lanes, if any."""
    receipt = await _append(world, lanes)
    claimed = sorted((await world.claim()).deliveries, key=lambda each: lanes.index(each.endpoint_id))
    dead = {DeliveryMove.BURY: DeadReason.EXHAUSTED}
    await world.record(*(attempt(each, move, dead=dead.get(move)) for each, move in zip(claimed, moves, strict=False)))
    return receipt


async def redrive(world: World, receipt: UUID) -> None:
    """Send again what of a receipt is not acknowledged."""
    await perform(world, lambda change: change.receipt(receipt))


async def discard(world: World) -> None:
    """Give every dead letter up."""
    await perform(world, lambda change: change.discard_dead_letters(DeadLetterFilter()))


async def perform(world: World, change: Callable[[Redrive], Awaitable[object]]) -> None:
    """Make a person's change in a transaction of its own."""

    async def work(redrive: Redrive) -> KeptAnswer:
        await change(redrive)
        return DONE

    await Redrives(world.database, entropy=os.urandom, key_retention_seconds=3600.0).perform(TENANT, None, work)
