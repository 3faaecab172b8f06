"""Wake-ups: "something is due for these lanes", sent from gateways to dispatchers.

Owns the channel. A wake-up is a hint and may get lost: the poll is the truth. It is sent from a transaction of its
own, since NOTIFY takes a lock of the whole server at commit. Invariant: losing every wake-up delays deliveries and
loses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from uuid import UUID

import asyncpg

from relay.store import faults
from relay.store.database import CONNECT_TIMEOUT, Database

CHANNEL = "relay_wakeups"
EVERY_LANE = "*"

_LANES_NAMED = 100
"""More lanes than this are not named one by one: a payload holds less than 8,000 bytes."""


class WakeupSender:
    """Sends wake-ups over a pool with lazy commits."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def send(self, lanes: Iterable[UUID]) -> None:
        """Tell every dispatcher that these endpoints have something due."""
        named = set(lanes)
        payload = EVERY_LANE if len(named) > _LANES_NAMED else ",".join(lane.hex for lane in named)
        async with self._database.connection() as connection:
            await connection.execute("select pg_notify($1, $2)", CHANNEL, payload)


class WakeupListener:
    """Listens on a connection of its own and says so when that connection is lost."""

    def __init__(self, dsn: str, *, name: str) -> None:
        self._dsn = dsn
        self._name = name

    async def listen(self, on_wakeup: Callable[[], None]) -> None:
        """Call `on_wakeup` for each wake-up until the connection is lost (raises `StoreUnavailable`) or cancelled."""
        lost = asyncio.Event()
        with faults.translated():
            connection = await asyncpg.connect(
                self._dsn, timeout=CONNECT_TIMEOUT, server_settings={"application_name": self._name}
            )
        try:
            connection.add_termination_listener(lambda _: lost.set())
            with faults.translated():
                await connection.add_listener(CHANNEL, lambda *_: on_wakeup())
            # what came due while nobody listened
            on_wakeup()
            await lost.wait()
            raise faults.StoreUnavailable("the connection that listens for wake-ups was lost")
        finally:
            connection.terminate()
