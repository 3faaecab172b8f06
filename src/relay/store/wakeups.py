"""Wake-ups: "something is due", sent from gateways to dispatchers.

Owns the channel. A wake-up is a hint and may get lost: the poll is the truth. It is sent from a transaction of its
own, since NOTIFY takes a lock of the whole server at commit, and names nothing: whoever is woken looks at every open
lane. Invariant: losing every wake-up delays deliveries and loses none; a listener whose link has died finds out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay.store import faults
from relay.store.address import connect
from relay.store.database import CONNECT_TIMEOUT, Database

CHANNEL = "relay_wakeups"

QUIET_SECONDS = 30.0
"""After how long without news the listener asks whether its connection lives: a link may die without a word."""

ANSWER_SECONDS = 5.0
"""How long the answer may take."""


class WakeupSender:
    """Sends wake-ups over a pool with lazy commits."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def send(self) -> None:
        """Tell every dispatcher that something is due. Raises `StoreUnavailable`."""
        async with self._database.connection() as connection:
            await connection.execute("select pg_notify($1, '')", CHANNEL)


def _nobody() -> None:
    """Nobody wants to know that the connection lives."""


class WakeupListener:
    """Listens on a connection of its own and says so when that connection is lost."""

    def __init__(self, dsn: str, *, name: str) -> None:
        self._dsn = dsn
        self._name = name

    async def listen(self, on_wakeup: Callable[[], None], on_answer: Callable[[], None] = _nobody) -> None:
        """Call `on_wakeup` for each wake-up until the connection is lost (raises `StoreUnavailable`) or cancelled.

        `on_answer` is called whenever the server has answered that it is still there.
        """
        with faults.translated():
            connection = await connect(
                self._dsn,
                timeout=CONNECT_TIMEOUT,
                command_timeout=ANSWER_SECONDS,
                server_settings={"application_name": self._name},
            )
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        try:
            with faults.translated():
                await connection.add_listener(CHANNEL, lambda *_: on_wakeup())
                # what came due while nobody listened
                on_wakeup()
                while not await _is_set(lost, within=QUIET_SECONDS):
                    await connection.execute("select 1")
                    on_answer()
            raise faults.StoreUnavailable("the connection that listens for wake-ups was lost")
        finally:
            connection.terminate()


async def _is_set(event: asyncio.Event, *, within: float) -> bool:
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return False
    return True
