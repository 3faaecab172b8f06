"""One service of an installation in the foreground: a gateway, or a dispatcher, with its workers.

Owns what a parent process does before its crew starts: the rules about addresses and settings, the socket, the folder
of the shared numbers. Invariant: a start that is refused has bound and spawned nothing that is left.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir

from relay.app.brokerage import broker_address
from relay.app.crew import Burial, Crew, Duty, Notice
from relay.app.faults import CannotRun
from relay.app.installation import find
from relay.app.listening import address_of, listen, url_of
from relay.app.number_folders import number_folder
from relay.app.roles import Role, bounds
from relay.app.tls import tls_of
from relay.domain.telemetry import Process
from relay.metrics import Slot, bury, prepare
from relay.settings import Settings


def socket_of(role: Role, settings: Settings) -> socket.socket:
    """Bind what workers of this role listen on, if they could do so with their certificates. Raises `CannotRun`."""
    match role:
        case Role.GATEWAY:
            tls_of(settings)
            return listen(settings.bind, "RELAY_BIND")
        case Role.DISPATCHER:
            return listen(settings.metrics_bind, "RELAY_METRICS_BIND")
        case Role.RECEIVER:
            return listen(settings.testkit_bind, "RELAY_TESTKIT_BIND")


def sockets_of(roles: Iterable[Role], settings: Settings) -> dict[Role, socket.socket]:
    """Bind what workers of these roles listen on. Raises `CannotRun` with everything that is in the way, then none."""
    bound: dict[Role, socket.socket] = {}
    faults: list[str] = []
    for role in roles:
        try:
            bound[role] = socket_of(role, settings)
        except CannotRun as fault:
            faults.append(str(fault))
    if faults:
        for listener in bound.values():
            listener.close()
        raise CannotRun("\n".join(faults))
    return bound


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
        if numbers is not None:
            duty = replace(duty, bury=_burial(Process(role), numbers, settings.metric_consumers))
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
    broker_address(settings)
    find(settings)
    listener = socket_of(role, settings)
    url = url_of(address_of(listener), scheme_of(role, settings))
    async with crew_of(role, settings, environment, listener=listener, notice=notice, hurry=hurry) as crew:
        started(url)
        await crew.watch()


def scheme_of(role: Role, settings: Settings) -> str:
    """How workers of this role are spoken to."""
    return "https" if role is Role.GATEWAY and settings.tls_cert is not None else "http"


def _burial(process: Process, numbers: Path, consumers: int) -> Burial:
    """What a dead worker seemed to have in hand is nobody's from the moment at which its parent knows."""

    def bury_slot(slot: int) -> None:
        with suppress(OSError):  # then its successor does it, which says so if it cannot either
            bury(process, Slot(numbers, slot), consumers=consumers)

    return bury_slot


@contextmanager
def _shared_numbers(role: Role) -> Iterator[Path | None]:
    """The folder in which the workers of one crew keep their numbers; the testkit has none."""
    if role is Role.RECEIVER:
        yield None
        return
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(number_folder(f"relay-{role}-"))
            prepare(folder)
        except OSError as fault:
            raise CannotRun(
                f"there is no folder for the numbers of the {role}: {fault.filename or gettempdir()}: {fault.strerror};"
                " make room there, or set TMPDIR to another folder"
            ) from fault
        yield folder
