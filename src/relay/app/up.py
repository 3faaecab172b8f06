"""Everything on one machine: the database, the receiver if it is wanted, the dispatcher, the gateway.

Owns the order of starting and of stopping, which is the reverse: the gateway first, so that nothing new comes in, the
database last, so that everything under way is written. What the receiver is taught stays in the data folder, as the
endpoints do whose secrets it is. Invariant: ports are bound before anything is started, and a start that fails or is
interrupted leaves nothing running.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from relay.app.brokerage import broker_address
from relay.app.connections import check_all_connections
from relay.app.crew import Crew
from relay.app.faults import CannotRun
from relay.app.installation import Installation, away, find
from relay.app.listening import address_of, url_of
from relay.app.local_database import Say, local_database
from relay.app.migration import migrate_database
from relay.app.roles import Role
from relay.app.service import crew_of, scheme_of, sockets_of
from relay.app.taught_secrets import FILE
from relay.settings import Settings
from relay.store.faults import StoreUnavailable
from relay.store.issuer import Issuer


@dataclass(frozen=True, slots=True)
class Site:
    """What runs, by the urls at which this machine reaches it. `receiver` is None without one, `data_dir` with an
    outside database. `asks_for_keys` says that somebody had a credential when it started, so that calls need one."""

    gateway: str
    dispatcher: str
    receiver: str | None
    data_dir: Path | None
    asks_for_keys: bool
    crews: tuple[Crew, ...]
    keeper: asyncio.Task[None] | None

    async def watch(self) -> None:
        """Return only by an exception: crews restart their workers and the keeper the database, so an end of their care
        is a bug.
        """
        watched = [crew.watch() for crew in self.crews]
        if self.keeper is not None:
            # whoever stops watching lets it go on, until the database is stopped
            watched.append(_shielded(self.keeper))
        await asyncio.gather(*watched)


async def _shielded(task: asyncio.Task[None]) -> None:
    await asyncio.shield(task)


@asynccontextmanager
async def everything(
    settings: Settings,
    environment: Mapping[str, str],
    *,
    receiver: bool,
    replicas: int,
    say: Say,
    notice: Say,
    hurry: asyncio.Event,
) -> AsyncIterator[Site]:
    """Run everything inside the block. Raises `CannotRun`, `SettingsError`.

    `replicas` is how many servers a database of its own has. `say` is told what is being done, `notice` what went wrong
    and is being mended.
    """
    broker_address(settings)
    _check_replicas(settings, replicas)
    roles = [Role.DISPATCHER, Role.GATEWAY]
    if receiver:
        roles.insert(0, Role.RECEIVER)
    async with AsyncExitStack() as stack:
        listeners = sockets_of(roles, settings)
        for listener in listeners.values():
            stack.enter_context(listener)
        urls = {role: url_of(address_of(listeners[role]), scheme_of(role, settings)) for role in roles}
        keeper = None
        if settings.database_url is None:
            keeper = await stack.enter_async_context(local_database(settings, replicas, say=say, notice=notice))
        installation = find(settings)
        await check_all_connections(installation, settings)
        await migrate_database(installation, say)
        asks_for_keys = await _asks_for_keys(installation)
        crews = []
        ours = {"RELAY_URL": urls[Role.GATEWAY], **_receivers_file(settings)}
        for role in roles:
            say(f"starting the {role}")
            crew = crew_of(
                role,
                settings,
                {**environment, **ours},
                listener=listeners[role],
                notice=notice,
                hurry=hurry,
            )
            crews.append(await stack.enter_async_context(crew))
            stack.callback(say, f"stopping the {role}")
        yield Site(
            gateway=urls[Role.GATEWAY],
            dispatcher=urls[Role.DISPATCHER],
            receiver=urls.get(Role.RECEIVER),
            data_dir=settings.data_dir.expanduser().absolute() if settings.database_url is None else None,
            asks_for_keys=asks_for_keys,
            crews=tuple(crews),
            keeper=keeper,
        )


def _check_replicas(settings: Settings, replicas: int) -> None:
    """Raises `CannotRun` for what three servers, or one, cannot give."""
    if settings.database_url is not None:
        if replicas > 1:
            raise CannotRun(
                "--replicas is for a database of Relay's own, and DATABASE_URL names another: leave out one"
            )
    elif settings.journal_quorum > replicas:
        there = "1 server: lower it, or start three with --replicas 3" if replicas == 1 else "3 servers: lower it"
        raise CannotRun(f"RELAY_JOURNAL_QUORUM is {settings.journal_quorum}, and the database has {there}")


async def _asks_for_keys(installation: Installation) -> bool:
    async with installation.database("relay up", 1) as database:
        try:
            return not await Issuer(database, installation.vault()).is_open()
        except StoreUnavailable as fault:
            raise away(fault) from fault


def _receivers_file(settings: Settings) -> dict[str, str]:
    file = settings.testkit_secrets_file or settings.data_dir.expanduser().absolute() / FILE
    return {"RELAY_TESTKIT_SECRETS_FILE": str(file)}
