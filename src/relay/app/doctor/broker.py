"""The examination of the broker, where the settings name one.

Owns this check. Invariant: nothing is written there, and no consumer is made.
"""

from __future__ import annotations

from relay import broker as transport
from relay.app.brokerage import broker_address
from relay.app.doctor.findings import Findings, bounded, fault, ok, warning
from relay.broker import Address, BrokerUnavailable
from relay.settings import Settings, SettingsError
from relay.store.database import Database
from relay.store.faults import StoreUnavailable
from relay.store.queue import Queue

MOST_COMPARED = 200
"""Messages that are looked into for deliveries of others."""

_LATE = "look at the server, or at the Sentinels, and at the network between; deliveries are polled for meanwhile"


async def examine_broker(settings: Settings) -> Findings:
    """Whether the broker answers, is new enough, takes writes, and keeps what it is given. A url that cannot be used is
    told of as a setting."""
    try:
        address = broker_address(settings)
    except SettingsError:
        return ()
    return () if address is None else await bounded("broker", _examine(address), _LATE)


async def examine_strangers(settings: Settings, database: Database) -> Findings:
    """Whether what the broker holds at this moment is of this installation; nothing is said where it is, or where the
    broker is away, which is told already."""
    try:
        address = broker_address(settings)
    except SettingsError:
        return ()
    return () if address is None else await bounded("broker", _compare(address, database), _LATE)


async def _compare(address: Address, database: Database) -> Findings:
    broker = transport.RedisStreams(address, consumer="doctor", emit=lambda _: None)
    try:
        held = {delivery for message in await broker.held(MOST_COMPARED) for delivery in message.deliveries}
        strangers = await Queue(database, database).strangers(list(held)) if held else []
    except (BrokerUnavailable, StoreUnavailable):
        return ()
    finally:
        await broker.close()
    if not strangers:
        return ()
    what = f"{len(strangers)} of {len(held)} deliveries that {address.shown} names are not in this database"
    why = "another installation uses the same stream, and deliveries of both are late"
    return (warning("broker", f"{what}: {why}; give each a database (/1) or a stream (?stream=NAME) of its own"),)


async def _examine(address: Address) -> Findings:
    broker = transport.RedisStreams(address, consumer="doctor", emit=lambda _: None)
    try:
        facts = await broker.facts()
        standing = await broker.standing()
    except BrokerUnavailable as trouble:
        return (fault("broker", f"{trouble}; deliveries are polled for meanwhile"),)
    finally:
        await broker.close()
    if facts.is_replica:
        where = f"{facts.server} at {address.shown}"
        return (
            fault("broker", f"{where} is a replica, which takes no writes: RELAY_BROKER_URL must name the primary"),
        )
    if facts.memory_bound and facts.eviction != "noeviction":
        lost = f"{facts.server} at {address.shown} evicts what it likes ({facts.eviction})"
        return (warning("broker", f"{lost}: set maxmemory-policy noeviction, or what is announced is lost at times"),)
    held = f"{standing.unread} unread and {standing.pending} pending messages"
    return (ok("broker", f"{facts.server} at {address.shown}: {held}"),)
