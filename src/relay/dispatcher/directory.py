"""The directory: what this process knows of endpoints, by id and revision.

Owns the cache. A claim names the revision that each of its deliveries needs, so an entry is good until a claim names a
newer one, and a change of an endpoint holds from the next claim on. Invariant: no flight leaves with an address older
than its claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from relay.domain.backoff import RetryPolicy
from relay.domain.delivery import ClaimedDelivery
from relay.domain.endpoint import AckMode, Destination
from relay.store.endpoints import Destinations
from relay.transports.prepared import Prepared

ADDRESSES_KEPT = 20_000
"""How many endpoints' addresses are kept; past it all are read anew."""


@dataclass(frozen=True, slots=True)
class Address:
    """An endpoint made ready to be sent to."""

    endpoint_id: UUID
    tenant: str
    revision: int
    consumer: str
    ack: AckMode
    retry: RetryPolicy
    ready: Prepared


@dataclass(frozen=True, slots=True)
class Unusable:
    """An endpoint that cannot be sent to now, and why, for people (a secret without its key, say)."""

    endpoint_id: UUID
    why: str


Prepare = Callable[[Destination], Prepared]


class Directory:
    """The addresses that this process has read."""

    def __init__(self, destinations: Destinations, prepare: Prepare) -> None:
        self._destinations = destinations
        self._prepare = prepare
        self._known: dict[UUID, Address] = {}

    async def addresses(self, claimed: Iterable[ClaimedDelivery]) -> Mapping[UUID, Address | Unusable]:
        """The address of each endpoint named, at least as new as the claims say. Raises `StoreUnavailable`."""
        wanted: dict[UUID, int] = {}
        for delivery in claimed:
            wanted[delivery.endpoint_id] = delivery.endpoint_revision
        if len(self._known) + len(wanted) > ADDRESSES_KEPT:
            self._known.clear()
        stale = [endpoint for endpoint, revision in wanted.items() if not self._knows(endpoint, revision)]
        unusable = await self._read(stale) if stale else {}
        return {endpoint: unusable.get(endpoint) or self._known[endpoint] for endpoint in wanted}

    def forget(self) -> None:
        """Read every address anew: after a failover a revision may be another one than before."""
        self._known.clear()

    def _knows(self, endpoint: UUID, revision: int) -> bool:
        known = self._known.get(endpoint)
        return known is not None and known.revision >= revision

    async def _read(self, endpoints: list[UUID]) -> dict[UUID, Unusable]:
        found = await self._destinations.read(endpoints)
        unusable = {}
        for endpoint in endpoints:
            entry = self._address(endpoint, found.get(endpoint))
            if isinstance(entry, Unusable):
                unusable[endpoint] = entry
            else:
                self._known[endpoint] = entry
        return unusable

    def _address(self, endpoint: UUID, found: Destination | Exception | None) -> Address | Unusable:
        if found is None:
            return Unusable(endpoint, "the endpoint is not in the database")
        if isinstance(found, Exception):
            return Unusable(endpoint, str(found))
        try:
            ready = self._prepare(found)
        except ValueError as fault:
            return Unusable(endpoint, str(fault))
        return Address(endpoint, found.tenant, found.revision, found.name, found.ack, found.retry, ready)
