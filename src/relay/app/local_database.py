"""The embedded servers of a data folder, as long as `relay up` runs.

Owns when they are started, looked after and stopped; how is the embedded room's. Meanwhile the services wait as for any
database that is away. Invariant: an interrupted start has ended, and what it started with it, before the interruption
goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from relay.app.connections import of_server
from relay.app.faults import CannotRun
from relay.app.installation import KEY_FILE, Installation, away, keys_of_folder, one_line, read_keys
from relay.domain.secret import Secret
from relay.embedded import EmbeddedFault, EmbeddedReplicas, running_dsn
from relay.settings import Settings
from relay.store.faults import StoreUnavailable
from relay.store.keys import is_sealed

LOOK_SECONDS = 1.0
"""How often the servers are looked at: a question to the kernel; standbys are asked about less often."""

RETRY_SECONDS = 5.0
"""How long to wait after a start that failed."""

Say = Callable[[str], None]
T = TypeVar("T")


@asynccontextmanager
async def local_database(
    settings: Settings, replicas: int, *, say: Say, notice: Say
) -> AsyncIterator[asyncio.Task[None]]:
    """Have so many servers running inside the block, and a secret key beside them; answers the task that keeps them
    running.

    That task ends by a bug only. Raises `CannotRun`.

    `say` is told what is being done, `notice` what went wrong.
    """
    folder = settings.data_dir.expanduser().absolute()
    database = EmbeddedReplicas(folder, replicas, quorum=settings.journal_quorum, connections=of_server(settings))
    servers = "" if replicas == 1 else f", {replicas} servers of which {settings.journal_quorum} hold every event,"
    say(f"starting the database{servers} in {folder}")
    try:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(_stop, database)
            await _in_thread(database.start, say)
            stack.callback(say, "stopping the database")
            await _keys(settings, folder)
            keeper = asyncio.create_task(_keep(database, notice), name="database")
            stack.push_async_callback(_cancelled, keeper)
            yield keeper
    except EmbeddedFault as fault:
        raise CannotRun(one_line(fault)) from fault


async def _keys(settings: Settings, folder: Path) -> None:
    """Have a key beside the server: a new one only where nothing was sealed under a key that is gone."""
    if settings.secret_keys is not None or read_keys(folder) is not None:
        return
    dsn = running_dsn(folder)
    if dsn is None:
        raise CannotRun(f"the database in {folder} has died; see its log there, and start again")
    async with Installation(Secret(dsn), ()).database("relay up", 1) as database:
        try:
            sealed = await is_sealed(database)
        except StoreUnavailable as fault:
            raise away(fault) from fault
    if sealed:
        raise CannotRun(
            f"{folder / KEY_FILE} is missing, and the database there holds what was sealed with its key: put the file"
            " back from a backup, or give the key as RELAY_SECRET_KEYS; to begin anew, name another folder"
        )
    keys_of_folder(folder)


async def _in_thread(work: Callable[..., T], say: Say) -> T:
    """Have a thread do it, and tell what it tells; whoever interrupts this waits until it has been given up."""
    loop = asyncio.get_running_loop()
    give_up = threading.Event()

    def say_from_thread(line: str) -> None:
        loop.call_soon_threadsafe(say, line)

    doing = asyncio.ensure_future(asyncio.to_thread(work, say_from_thread, give_up=give_up))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        give_up.set()
        await asyncio.wait([doing])
        if not doing.cancelled():
            doing.exception()  # it was given up: what it says about that is no news
        raise


async def _stop(database: EmbeddedReplicas) -> None:
    """Stop it for certain: whoever interrupts this has to wait, or servers would be left running."""
    stop = asyncio.ensure_future(asyncio.to_thread(database.stop))
    try:
        await asyncio.shield(stop)
    except asyncio.CancelledError:
        await asyncio.wait([stop])
        raise


async def _keep(database: EmbeddedReplicas, notice: Say) -> None:
    """Set right whatever has died or was lost."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            well = await _in_thread(database.mend, notice)
        except EmbeddedFault as fault:
            notice(f"the database does not start: {one_line(fault)}")
            well = False
        if not well:
            await asyncio.sleep(RETRY_SECONDS)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
