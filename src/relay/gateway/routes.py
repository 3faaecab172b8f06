"""Routing by the newest rules: the snapshot that a gateway works from, and what it says for each type.

Owns the snapshot of this process, the catalogue of schemas with it. The append compares its versions and refuses an old
one; then what changed since is read. Invariant: a snapshot never changes, so whatever was worked out from it is
good as long as it is.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from uuid import UUID

from relay.domain.routing import RuleSet
from relay.gateway import answers
from relay.store.endpoints import Endpoints
from relay.store.journal import Versions
from relay.store.rules import Snapshot
from relay.store.schemas import Catalogue, Schemas

_ROUTES_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Route:
    """Where the events of one type go: the endpoints, and what the answer says of each."""

    endpoints: tuple[UUID, ...]
    targets: tuple[str, ...]


class Routes:
    """One snapshot, with the routes that were asked for."""

    def __init__(self, snapshot: Snapshot, catalogue: Catalogue) -> None:
        self.versions: Versions = snapshot.versions
        self.catalogue = catalogue
        self._rules: RuleSet = snapshot.rules
        self._partitions = snapshot.partitions
        self._known: dict[tuple[str, str], Route] = {}

    def partition(self, tenant: str) -> int:
        """The journal partition of the tenant's events."""
        return self._partitions[tenant]

    def route(self, tenant: str, event_type: str) -> Route:
        """Where an event goes."""
        asked = (tenant, event_type)
        known = self._known.get(asked)
        if known is None:
            if len(self._known) >= _ROUTES_KEPT:
                # types are the senders' to make up
                self._known.clear()
            rules = self._rules.route(tenant, event_type)
            known = self._known[asked] = Route(
                tuple(rule.endpoint_id for rule in rules), tuple(answers.target(rule) for rule in rules)
            )
        return known

    def only(self, tenant: str, endpoint: UUID) -> Route:
        """Where an event goes that is for one endpoint alone: there, or nowhere if there is none of that id."""
        rules = [rule for rule in self._rules.of(tenant) if rule.endpoint_id == endpoint]
        return Route(tuple(rule.endpoint_id for rule in rules), tuple(answers.target(rule) for rule in rules))


class Snapshots:
    """The newest snapshot that this process knows of."""

    def __init__(self, endpoints: Endpoints, schemas: Schemas) -> None:
        self._endpoints = endpoints
        self._schemas = schemas
        self._catalogue: Catalogue | None = None
        self._loading = asyncio.Lock()
        self._snapshot: Snapshot | None = None
        self._routes: Routes | None = None

    async def current(self) -> Routes:
        """The snapshot, loaded once however many ask. Raises `StoreUnavailable`."""
        if self._routes is not None:
            return self._routes
        async with self._loading:
            if self._routes is None:
                snapshot = self._snapshot = await self._endpoints.snapshot(self._snapshot)
                # read apart, since rules change more often; one that is newer than the rest makes the append ask anew
                if self._catalogue is None or self._catalogue.version != snapshot.versions.schemas:
                    self._catalogue = await self._schemas.catalogue()
                self._routes = Routes(snapshot, self._catalogue)
            return self._routes

    def forget(self, stale: Routes) -> None:
        """Bring it up to date when next asked, unless that has happened since."""
        if self._routes is stale:
            self._routes = None
