"""What may be sent while the quorum is there, is missing, and comes back: three real servers and a real receiver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest

from relay.dispatcher import Directory
from relay.domain.delivery import DeliveryStatus
from relay.domain.outcome import HandBackReason
from relay.domain.telemetry import (
    DeliveriesClaimed,
    DeliveriesHandedBack,
    Loop,
    LoopSucceeded,
    QuorumLost,
    QuorumRegained,
    ReceiptsClosed,
)
from relay.store.database import Database
from relay.store.endpoints import Destinations
from relay.store.journal import Journal, Voided
from relay.store.queue import FIRST_LANE
from relay.store.quorum import VOID_AFTER_SECONDS
from relay.transports import http
from tests.support.cluster import Cluster
from tests.support.deliveries import new_id
from tests.support.dispatching import RETRY, TUNING, House
from tests.support.installation import eventually
from tests.support.receiver import Receiver

QUORUM = replace(TUNING, quorum=2, quorum_seconds=0.25)
AGE = "select extract(epoch from clock_timestamp() - committed_at) from journal"
PATIENT = replace(QUORUM, quorum_seconds=60.0)


@pytest.fixture
async def house(cluster: Cluster, cluster_database: str) -> AsyncIterator[House]:
    dsn = cluster.dsn(cluster_database)
    database = await Database.connect(dsn, name="tests", size=3)
    yield House(dsn, database)
    cluster.thaw()
    await database.close()


async def closed(house: House, number: int) -> None:
    await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)) == number)


async def handed_back(house: House) -> None:
    def is_told() -> bool:
        return any(each.reason is HandBackReason.QUORUM for each in house.heard(DeliveriesHandedBack))

    await house.until(is_told)


async def void(house: House, receipt: UUID, log_from: int, *, timeline: int | None = None) -> Voided:
    journal = Journal(house.database, key_retention_seconds=60)
    timeline = (await house.queue.look()).horizon.numbering.timeline if timeline is None else timeline
    fates = await journal.void(
        [receipt],
        log_from=log_from,
        timeline=timeline,
        standbys=1,
        names=["r2", "r3"],
        promise="ANY 1 (r2, r3)",
    )
    return fates[receipt]


async def confirmed(house: House, receipt: UUID, log_from: int) -> None:
    """Return once a void of what standbys have finds that out.

    It looks whether they have all that the server has written by then, which is a little more now and then whoever is
    there (vacuum, the list of running transactions each fifteen seconds): it is `UNKNOWN` until they have that, too.
    """

    async def is_found() -> bool:
        fate = await void(house, receipt, log_from)
        assert fate is not Voided.VOID
        return fate is Voided.CONFIRMED

    await eventually(is_found, 10.0, "the void finds that the standbys have everything")


async def write_without_end(house: House) -> None:
    async with house.database.connection() as connection:
        while True:
            await connection.execute("select pg_logical_emit_message(true, 'tests', repeat('x', 1000))")


async def old_enough(house: House) -> bool:
    async with house.database.connection() as connection:
        age: float = await connection.fetchval(
            "select extract(epoch from clock_timestamp() - committed_at) from journal"
        )
    return age > VOID_AFTER_SECONDS


async def log_end(house: House) -> int:
    async with house.database.connection() as connection:
        place: int = await connection.fetchval("select pg_current_wal_insert_lsn()")
    return place


async def test_what_the_quorum_has_is_sent(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(QUORUM):
        await house.events(20, endpoint)
        await closed(house, 20)
    assert len(receiver.received()) == 20
    assert house.heard(QuorumLost) == []


async def test_what_one_machine_alone_has_is_not_sent_until_another_has_it(
    house: House, receiver: Receiver, cluster: Cluster
) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(QUORUM):
        cluster.freeze()
        receipt = await house.event(endpoint)
        await handed_back(house)
        assert receiver.received() == []
        assert (await house.delivery(receipt)).attempts == 0
        cluster.thaw()
        await closed(house, 1)
    assert len(receiver.received()) == 1
    assert house.heard(QuorumRegained) != []


async def test_what_was_confirmed_before_is_sent_while_the_quorum_is_missing(
    house: House, receiver: Receiver, cluster: Cluster
) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    waiting = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(QUORUM):
        await house.execute("update endpoint_state set held_until = 'infinity' where endpoint_id = $1", waiting)
        await house.events(30, waiting)
        await house.event(endpoint)
        await closed(house, 1)
        cluster.freeze()
        fresh = await house.event(endpoint)
        await handed_back(house)
        await house.execute("update endpoint_state set held_until = null where endpoint_id = $1", waiting)
        await closed(house, 31)
        assert (await house.delivery(fresh)).acked_at is None
        cluster.thaw()
        await closed(house, 32)


async def test_what_was_accepted_for_a_closed_lane_was_seen_confirmed_before_it_opens(
    house: House, receiver: Receiver, cluster: Cluster
) -> None:
    def rounds() -> int:
        return sum(each.loop is Loop.CLAIMER for each in house.heard(LoopSucceeded))

    endpoint = await house.endpoint(receiver.url("/ok"))
    await house.execute("update endpoint_state set held_until = 'infinity' where endpoint_id = $1", endpoint)
    async with house.dispatching(QUORUM):
        await house.events(10, endpoint)
        seen = rounds()
        # the first round that begins from now on looks ahead, and has done so when the one after it is told
        await house.until(lambda: rounds() >= seen + 3)
        cluster.freeze()
        await house.execute("update endpoint_state set held_until = null where endpoint_id = $1", endpoint)
        await closed(house, 10)
        cluster.thaw()


async def test_what_is_declared_void_while_its_proof_is_waited_for_is_never_sent(
    house: House, receiver: Receiver, cluster: Cluster
) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(PATIENT):
        cluster.freeze()
        log_from = await log_end(house)
        receipt = await house.event(endpoint)
        await house.until(lambda: house.heard(DeliveriesClaimed) != [])
        await eventually(partial(old_enough, house), 10.0, "the event is as old as what is declared void")
        assert await void(house, receipt, log_from) is Voided.VOID
        cluster.thaw()
        await house.event(endpoint)
        await closed(house, 1)
    assert len(receiver.received()) == 1
    rows = await _statuses(house)
    assert sorted(rows) == [DeliveryStatus.DELIVERED, DeliveryStatus.VOID]


async def test_what_a_quorum_has_by_the_time_of_its_void_stays_and_is_sent(
    house: House, receiver: Receiver, cluster: Cluster
) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    log_from = await log_end(house)
    receipt = await house.event(endpoint)
    await cluster.streams(*cluster.standbys)
    await confirmed(house, receipt, log_from)
    async with house.dispatching(QUORUM):
        await closed(house, 1)


async def test_what_a_quorum_has_is_never_void_whatever_is_written_beside_it(
    house: House, receiver: Receiver, cluster: Cluster
) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    log_from = await log_end(house)
    receipt = await house.event(endpoint)
    await cluster.streams(*cluster.standbys)
    writing = asyncio.create_task(write_without_end(house))
    fates = {await void(house, receipt, log_from) for _ in range(20)}
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):  # it wrote to the end, and died of nothing else
        await writing
    assert fates <= {Voided.CONFIRMED, Voided.UNKNOWN}
    await confirmed(house, receipt, log_from)


async def test_what_is_not_there_any_more_is_confirmed_by_nobody(house: House) -> None:
    assert await void(house, new_id(), await log_end(house)) is Voided.VOID


async def test_what_may_have_been_sent_is_not_declared_void(house: House, receiver: Receiver, cluster: Cluster) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    log_from = await log_end(house)
    async with house.dispatching(QUORUM):
        receipt = await house.event(endpoint)
        await closed(house, 1)
        cluster.freeze()
        await house.event(endpoint)
        assert await void(house, receipt, log_from) is Voided.UNKNOWN
        assert (await house.delivery(receipt)).status is DeliveryStatus.DELIVERED
        cluster.thaw()


async def test_a_revived_event_needs_a_proof_of_its_revival(house: House, receiver: Receiver, cluster: Cluster) -> None:
    endpoint, other = await house.endpoint(receiver.url("/ok/revived")), await house.endpoint(receiver.url("/ok/other"))
    cluster.freeze()
    receipt = await house.event(endpoint)
    await house.execute(
        "select void_events($1, pg_current_wal_insert_lsn(), 1, 1, '{r2,r3}', 'ANY 1 (r2, r3)')", [receipt]
    )
    cluster.thaw()
    async with house.dispatching(QUORUM):
        await house.event(other)
        await closed(house, 1)
        cluster.freeze()
        await house.execute("select revive_events($1)", [receipt])
        await handed_back(house)
        assert receiver.received("/ok/revived") == []
        cluster.thaw()
        await closed(house, 2)


async def test_after_a_failover_every_address_is_read_anew(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/ok/lost"))
    directory = Directory(
        Destinations(house.database, house.vault, default_retry=RETRY),
        partial(http.prepare, user_agent="Relay/test", timeout_seconds=10.0),
    )
    await house.event(endpoint)
    claim = await house.queue.claim_due(after=FIRST_LANE, batch=1, token=new_id(), lease_seconds=60.0)
    first = (await directory.addresses(claim.deliveries))[endpoint]
    await house.execute("update endpoints set url = $1 where id = $2", receiver.url("/ok/kept"), endpoint)
    assert (await directory.addresses(claim.deliveries))[endpoint] is first
    directory.forget()
    assert (await directory.addresses(claim.deliveries))[endpoint] is not first


async def test_a_long_wait_for_the_proof_ends_in_sending_what_still_counts(
    house: House, receiver: Receiver, cluster: Cluster
) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(PATIENT):
        cluster.freeze()
        await house.event(endpoint)
        await house.until(lambda: house.heard(DeliveriesClaimed) != [])
        cluster.thaw()
        await closed(house, 1)
    assert house.heard(DeliveriesHandedBack) == []


async def _statuses(house: House) -> list[str]:
    async with house.database.connection() as connection:
        return [row[0] for row in await connection.fetch("select status::text from deliveries")]
