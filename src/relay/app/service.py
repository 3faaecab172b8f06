"""One service of an installation in the foreground: a gateway, or a dispatcher, with its workers.

Owns what a parent process does before its crew starts: the rules about addresses and settings, the socket, the folder
of the shared numbers. Invariant: a start that is refused has bound and spawned nothing that is left.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from relay.app.crew import Crew, Duty, Notice
from relay.app.faults import CannotRun
from relay.app.installation import find
from relay.app.listening import address_of, listen, refuse_open_address, url_of
from relay.app.roles import Role, bounds
from relay.metrics import prepare
from relay.settings import Settings

_UNBUILT: tuple[tuple[str, Callable[[Settings], bool]], ...] = (
    ("RELAY_JOURNAL_QUORUM above 1", lambda settings: settings.journal_quorum > 1),
    ("RELAY_BROKER_URL", lambda settings: settings.broker_url is not None),
    ("RELAY_TLS_CLIENT_CA", lambda settings: settings.tls_client_ca is not None),
    ("RELAY_TRUSTED_PROXIES", lambda settings: bool(settings.trusted_proxies)),
    ("RELAY_OTLP_ENDPOINT", lambda settings: settings.otlp_endpoint is not None),
)
"""Settings whose promise this version does not keep. Each leaves the table with the change that keeps it."""


def refuse_unbuilt(settings: Settings) -> None:
    """A promise that is silently not kept is worse than none. Raises `CannotRun`."""
    asked = [name for name, is_asked in _UNBUILT if is_asked(settings)]
    if asked:
        raise CannotRun(f"this version of Relay does not have {', '.join(asked)}: unset what is named")


def socket_of(role: Role, settings: Settings) -> socket.socket:
    """Bind what workers of this role listen on. Raises `CannotRun`."""
    match role:
        case Role.GATEWAY:
            refuse_open_address(settings.bind)
            return listen(settings.bind, "RELAY_BIND")
        case Role.DISPATCHER:
            return listen(settings.metrics_bind, "RELAY_METRICS_BIND")
        case Role.RECEIVER:
            return listen(settings.testkit_bind, "RELAY_TESTKIT_BIND")


@asynccontextmanager
async def crew_of(
    role: Role,
    settings: Settings,
    environment: Mapping[str, str],
    *,
    listener: socket.socket,
    notice: Notice,
    hurry: asyncio.Event,
) -> AsyncIterator[Crew]:
    """A crew that runs inside the block. Raises `CannotRun` on entering."""
    with _shared_numbers(role) as numbers:
        duty = Duty(
            role=role,
            workers=1 if role is Role.RECEIVER else settings.workers,
            listener=listener,
            environment=environment,
            bounds=bounds(role, settings),
            numbers=numbers,
        )
        async with Crew(duty, notice=notice, hurry=hurry) as crew:
            yield crew


async def run_service(
    role: Role,
    settings: Settings,
    environment: Mapping[str, str],
    *,
    started: Callable[[str], None],
    notice: Notice,
    hurry: asyncio.Event,
) -> None:
    """Run a gateway or a dispatcher until cancelled. `started` is told its url. Raises `CannotRun`, `SettingsError`."""
    refuse_unbuilt(settings)
    find(settings)
    listener = socket_of(role, settings)
    url = url_of(address_of(listener), scheme_of(role, settings))
    async with crew_of(role, settings, environment, listener=listener, notice=notice, hurry=hurry) as crew:
        started(url)
        await crew.watch()


def scheme_of(role: Role, settings: Settings) -> str:
    """How workers of this role are spoken to."""
    return "https" if role is Role.GATEWAY and settings.tls_cert is not None else "http"


@contextmanager
def _shared_numbers(role: Role) -> Iterator[Path | None]:
    """The folder in which the workers of one crew keep their numbers; the testkit has none."""
    if role is Role.RECEIVER:
        yield None
        return
    with TemporaryDirectory(prefix=f"relay-{role}-") as folder:
        prepare(Path(folder))
        yield Path(folder)
