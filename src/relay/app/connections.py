"""How many database connections the processes may open together, and whether the server lets them.

Owns the arithmetic: each worker opens `RELAY_DATABASE_POOL` connections at the most, so the numbers of workers decide.
Invariant: what `relay up` starts never asks its own server for more than that one gives, and nothing is started on a
server that gives less than may be asked of it.
"""

from __future__ import annotations

from relay.app.faults import CannotRun
from relay.app.installation import Installation, away
from relay.settings import Settings
from relay.store.database import Database
from relay.store.faults import StoreUnavailable
from relay.store.health import Health

GATEWAY_OWN = 5
"""Connections of a gateway that need sessions of their own, or must wait for no call to the API; what is left of
`RELAY_DATABASE_POOL` is the API's, and goes through the pooler where there is one."""

LEAST = 100
"""What an embedded server allows in any case: a service may be added beside it."""

MOST = 2_000
"""What an embedded server allows at the most. A connection is a process, and room for its locks is set aside."""

SPARE = 25
"""For commands, for a look with psql, and for what PostgreSQL reserves."""


def of_dispatchers(settings: Settings) -> int:
    """How many connections to the server the dispatchers of one machine may have open."""
    return settings.workers * settings.database_pool


def of_gateways(settings: Settings) -> int:
    """How many connections to the server, and not to a pooler, the gateways of one machine may have open."""
    return settings.workers * (settings.database_pool if settings.api_pooler_url is None else GATEWAY_OWN)


def of_everything(settings: Settings) -> int:
    """How many connections to the server the workers of `relay up` may have open."""
    return of_gateways(settings) + of_dispatchers(settings)


def of_server(settings: Settings) -> int:
    """How many connections the embedded server allows. Raises `CannotRun` where that would be too many.

    A quarter more than the workers may open: those of a worker that was killed in the middle of a statement stay for a
    moment beside its successor's.
    """
    asked = of_everything(settings)
    allowed = max(LEAST, asked + asked // 4 + SPARE)
    if allowed > MOST:
        raise CannotRun(
            f"{_asked(asked, settings)}; that is more than the embedded server can give:"
            " lower one of them, or set DATABASE_URL to a server of your own"
        )
    return allowed


async def check_connections(database: Database, asked: int, settings: Settings) -> None:
    """Raises `CannotRun` unless the server lets so many connections be open at once."""
    try:
        allowed = await Health(database).connections_allowed()
    except StoreUnavailable as fault:
        raise away(fault) from fault
    if asked > allowed.connections:
        raise CannotRun(
            f"{_asked(asked, settings)}, and the database allows {allowed.connections} by its {allowed.limit}:"
            " raise that, or lower one of them"
        )


async def check_all_connections(installation: Installation, settings: Settings) -> None:
    """Raises `CannotRun` unless the server lets all workers of `relay up` be connected."""
    async with installation.database("relay up", 1) as database:
        await check_connections(database, of_everything(settings), settings)


def _asked(connections: int, settings: Settings) -> str:
    return (
        f"with RELAY_WORKERS at {settings.workers} and RELAY_DATABASE_POOL at {settings.database_pool},"
        f" {connections} database connections may be open at once"
    )
