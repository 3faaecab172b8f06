"""The barrier: waiting until everything committed so far is on the quorum, once for all who wait.

Standbys get what was committed on the server's own disk at once, so it is looked at them first, for a moment. What they
do not come to have by then is waited for with a barrier: a commit of its own that the server holds until they have it.

Owns the connection on which it is waited, its pace, and what is known meanwhile: whether the quorum is missing, and how
far it was proven. Invariant: `confirmed` answers yes only if a look at the standbys, after the caller's commit and on
the server where that was made, has proved it; a commit that the server merely released proves nothing, nor does another
server that was promoted meanwhile.

A barrier that does not come back is the probe: while one is out, the quorum is missing. It holds no lock. It is called
back after `LONGEST_SECONDS`, since the server may be gone without a word, and another one is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from relay.domain.ambient import Ambient
from relay.domain.telemetry import DurabilityKnown, Listener, QuorumLost, QuorumRegained
from relay.store import statements
from relay.store.database import Connection, Database
from relay.store.faults import CannotWrite, StoreUnavailable
from relay.store.quorum import LogPlace, Sight, examine, look

logger = logging.getLogger(__name__)

NAME = "relay gateway barrier"
"""What the connection calls itself."""

LONGEST_SECONDS = 5.0
"""How long one barrier may be out."""

FORGOTTEN_SECONDS = 2 * LONGEST_SECONDS
"""Nobody waits any more for a barrier that is older: its process was killed."""

WATCH_SECONDS = 0.1
"""For how long standbys are looked at that are about to have it, before a barrier is sent."""

FIRST_LOOK_SECONDS = 0.001
"""Between the first looks; later a quarter of the time that was watched, so little is lost however far they are."""

CANCEL_AGAIN_SECONDS = 1.0

PAUSE_SECONDS = 0.01
"""Between two looks while the server promises the quorum and standbys lag behind."""

MISSING_PAUSE_SECONDS = 0.25
"""Between two barriers that came back and proved nothing."""


async def cross(connection: Connection) -> LogPlace:
    """Wait until everything that was committed before this call has been waited for as this session's commits are.

    Answers a place in the log behind all of it. The caller bounds it: the server ends this wait by none of its own
    timeouts. Raises `CannotWrite` for a standby.
    """
    place: LogPlace | None = await connection.fetchval(statements.text("emit_barrier"), timeout=2 * LONGEST_SECONDS)
    if place is None:
        raise CannotWrite("the database cannot write: it is a standby")
    return place


class Durability(NamedTuple):
    """So many copies are waited for, of so many that there are."""

    confirmed: int
    of: int


class _Waiter(NamedTuple):
    """Somebody who waits for a proof, of this timeline alone if one is given, and of standbys that answer now."""

    told: asyncio.Future[bool]
    timeline: int | None
    now: bool


class Barrier:
    """The barriers of one process; use it as `async with barrier.running():`.

    `quorum` counts machines, the primary included; with one there is nothing to wait for. `seconds` is how long a
    caller waits at most.
    """

    def __init__(self, database: Database, *, quorum: int, seconds: float, ambient: Ambient, emit: Listener) -> None:
        self._database = database
        self._quorum = quorum
        self._seconds = seconds
        self._ambient = ambient
        self._emit = emit
        self._waiting: list[_Waiter] = []
        self._called = asyncio.Event()
        self._missing_since: float | None = None
        self._out: int | None = None  # the server's process that waits
        self.missing: str | None = None
        self.timeline = 0
        self.names: tuple[str, ...] = ()
        self.promise: str | None = None
        self.durability = Durability(quorum, quorum)

    @property
    def standbys_needed(self) -> int:
        """How many standbys must have it."""
        return self._quorum - 1

    async def confirmed(self, timeline: int | None = None, *, now: bool = False) -> bool:
        """Whether everything that was committed before this call is on the quorum now; waits for that, for a while.

        `timeline` is the server's when it was committed: what a failover has taken away, no later proof confirms.
        `self.timeline` is the newest that is known, and will do if it was asked for before the commit. `now`: something
        is committed to find out whether standbys answer at all; else what they have long had is confirmed whatever
        became of them since.
        """
        if self._quorum == 1:
            return True
        waiter = _Waiter(asyncio.get_running_loop().create_future(), timeline, now)
        self._waiting.append(waiter)
        self._called.set()
        try:
            async with asyncio.timeout(self._seconds):
                return bool(await waiter.told)
        except TimeoutError:
            self._lose(f"no standby has confirmed the journal within {self._seconds * 1000:.0f} ms")
            return False

    async def check(self) -> None:
        """Raises `QuorumNotPromised` if the server is not set to confirm such a quorum, and `StoreUnavailable`.

        That no standby is there at present is not against it.
        """
        self._know(await examine(self._database, self._quorum, awaits=True))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send barriers inside the block, whenever somebody waits and for as long as the quorum is missing."""
        if self._quorum == 1:
            self._emit(DurabilityKnown(*self.durability))
            yield
            return
        task = asyncio.create_task(self._run(), name="barriers")
        try:
            yield
        finally:
            await ended(task)
            await self._end_waiting()

    async def _run(self) -> None:
        while True:
            await self._rest()
            # whoever comes while this one is out may have committed after it
            waiters, self._waiting = self._waiting, []
            self._called.clear()
            try:
                async with asyncio.timeout(LONGEST_SECONDS):
                    sight = await self._ask(probing=self.missing is not None or any(each.now for each in waiters))
                await self._learn(sight, waiters)
            except TimeoutError:
                self._wait_again(waiters)
                await self._end_waiting()
            except StoreUnavailable as fault:
                self._lose(str(fault))
                self._settle(waiters, confirmed=False)
            except Exception:
                logger.exception("barrier_met_bug")
                self._lose("the barrier met a bug, see the log")
                self._settle(waiters, confirmed=False)

    async def _rest(self) -> None:
        """Wait for somebody who waits; while the quorum is missing, for a moment only."""
        if self.missing is None:
            await self._called.wait()
        elif not self._waiting:
            await self._ambient.sleep(MISSING_PAUSE_SECONDS)

    async def _ask(self, *, probing: bool) -> Sight:
        async with self._database.kept_connection() as connection:
            seen = None if probing else await self._watch(connection)
            if seen is not None:
                return seen
            log_to = await self._cross(connection)
            return await look(connection, log_to, awaits=True)

    async def _watch(self, connection: Connection) -> Sight | None:
        """Look until the standbys have what is on the server's disk now; None if that takes a barrier to find out."""
        began = self._ambient.monotonic()
        sight = await look(connection, awaits=True)
        while not sight.replaces_barrier(self._quorum):
            watched = self._ambient.monotonic() - began
            if watched > WATCH_SECONDS or sight.streaming < self.standbys_needed or sight.shortcoming(self._quorum):
                return None
            await self._ambient.sleep(max(FIRST_LOOK_SECONDS, watched / 4))
            sight = await look(connection, sight.log_to, awaits=True)
        return sight

    async def _cross(self, connection: Connection) -> LogPlace:
        self._out = connection.get_server_pid()
        place = await cross(connection)
        self._out = None
        return place

    async def _learn(self, sight: Sight, waiters: list[_Waiter]) -> None:
        self._know(sight)
        if sight.proves(self._quorum):
            self._regain()
            self._settle([each for each in waiters if each.timeline in (None, self.timeline)], confirmed=True)
            self._settle(waiters, confirmed=False)
        elif sight.shortcoming(self._quorum) is not None:
            self._lose(sight.missing(self._quorum))
            self._settle(waiters, confirmed=False)
        else:  # a standby has confirmed it and gone; each who waits has a bound of its own
            await self._ambient.sleep(PAUSE_SECONDS)
            self._wait_again(waiters)

    def _wait_again(self, waiters: list[_Waiter]) -> None:
        self._waiting = [each for each in waiters if not each.told.done()] + self._waiting
        self._called.set()

    def _know(self, sight: Sight) -> None:
        self.timeline = sight.horizon.numbering.timeline
        if sight.shortcoming(self._quorum) is None:
            self.promise, self.names = sight.said.standby_names, sight.listed.names
        else:
            self.promise = None
        known = Durability(self._quorum, 1 + len(sight.listed.names))
        if known != self.durability:
            self.durability = known
            self._emit(DurabilityKnown(*known))

    def _lose(self, why: str) -> None:
        if self._missing_since is None:
            self._missing_since = self._ambient.monotonic()
            self._emit(QuorumLost(why))
        self.missing = why
        self._called.set()  # whoever is refused from now on asks for no barrier, which is the probe

    def _regain(self) -> None:
        if self._missing_since is not None:
            self._emit(QuorumRegained(self._ambient.monotonic() - self._missing_since))
        self._missing_since = self.missing = None

    async def _end_waiting(self) -> None:
        """Have the server end the barrier that nobody waits for any more, and those of processes that were killed."""
        process, self._out = self._out, None
        if process is None:
            return
        try:
            async with self._database.connection() as connection:
                await connection.execute(statements.text("end_barriers"), NAME, process, FORGOTTEN_SECONDS)
        except StoreUnavailable as fault:
            logger.warning("barrier_may_wait", extra={"fields": {"detail": str(fault)}})

    @staticmethod
    def _settle(waiters: list[_Waiter], *, confirmed: bool) -> None:
        for waiter in waiters:
            if not waiter.told.done():
                waiter.told.set_result(confirmed)


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancel it until it has ended: a cancellation that meets the end of a bounded wait may be swallowed by that."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_AGAIN_SECONDS)
