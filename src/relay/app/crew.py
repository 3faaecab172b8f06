"""A crew: the worker processes that are one gateway, or one dispatcher, and the parent's care for them.

Owns spawning, restarting and ending workers. A worker has a slot number that its successor inherits, and the listening
socket, bound once by the parent. Invariant: while the crew runs, each slot has a live worker or a restart that is due
within `LONGEST_PAUSE_SECONDS`; when `stop` returns, none of its workers is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from relay.app.faults import CannotRun
from relay.app.roles import START_SECONDS, Bounds, Role
from relay.app.tether import Ready, Refused, decode

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
STEADY_SECONDS = 30.0
"""A worker that lived so long has recovered: after its next end the pause is the first again."""

STDERR = 2

UNSTARTED_SECONDS = 1.0
"""How long the workers of a crew that cannot start may delay their stop: nobody was sent to them."""

KILLED_SECONDS = 10.0
"""How long a killed worker may take to be gone."""

Notice = Callable[[str], None]
"""Is told in a line what a person should know of."""

Burial = Callable[[int], None]
"""Is told the slot of a worker that has ended by itself, before the next one starts in it. It must neither wait nor
raise."""


def _nothing_left(_: int) -> None:
    """The burial of workers that leave nothing behind."""


@dataclass(frozen=True, slots=True)
class Duty:
    """What a crew is for: `workers` processes of a role behind one socket. `environment` is theirs, whole; `numbers` is
    the folder that their metrics share, None for a role without. `bury` is for what a worker has left there.
    """

    role: Role
    workers: int
    listener: socket.socket
    environment: Mapping[str, str]
    bounds: Bounds
    numbers: Path | None = None
    bury: Burial = _nothing_left

    def command(self, slot: int, tether: int) -> list[str]:
        """The argument list of a worker. `-P` keeps modules of the working directory out of it."""
        words = [sys.executable, "-P", "-m", f"relay.app.{self.role}"]
        words += [f"--slot={slot}", f"--listen={self.listener.fileno()}", f"--tether={tether}"]
        return words if self.numbers is None else [*words, f"--numbers={self.numbers}"]


@dataclass(frozen=True, slots=True)
class _End:
    """How a worker ended: its exit status, negative for a signal, and what it said against starting."""

    status: int
    refusal: str | None

    def __str__(self) -> str:
        if self.refusal is not None:
            return f"cannot start: {self.refusal}"
        if self.status < 0:
            return f"was ended by signal {signal.Signals(-self.status).name}"
        return f"ended with status {self.status}"


class Crew:
    """A crew; as an async context manager it is running inside the block.

    Entering raises `CannotRun` if a worker cannot start, with none left behind. `hurry` cuts every stop short.
    """

    def __init__(self, duty: Duty, *, notice: Notice, hurry: asyncio.Event) -> None:
        self._duty = duty
        self._notice = notice
        self._hurry = hurry
        self._stopping = asyncio.Event()
        self._has_started = False
        self._alive: dict[int, asyncio.subprocess.Process] = {}
        self._keepers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        try:
            await self._start()
            self._has_started = True
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def pids(self) -> Mapping[int, int]:
        """The process number of each slot's worker, of those alive now."""
        return {slot: process.pid for slot, process in self._alive.items()}

    async def watch(self) -> None:
        """Return when the crew has stopped; raises what its care for a slot died of, which is a bug.

        Whoever is cancelled in here only stops watching.
        """
        ended, _ = await asyncio.wait(self._keepers, return_when=asyncio.FIRST_EXCEPTION)
        for keeper in ended:
            keeper.result()

    async def stop(self) -> None:
        """Let every worker finish within the bounds, then kill what is left. May be called again."""
        bounds = self._duty.bounds
        self._stopping.set()
        # once the workers have closed theirs, who connects is refused, instead of waiting for one that will not come
        self._duty.listener.close()
        self._tell_to_stop()
        if bounds.delay:
            await self._delayed(bounds.delay if self._has_started else UNSTARTED_SECONDS)
        if not await self._all_ended(bounds.stop - bounds.delay):
            for slot, process in self._alive.items():
                self._notice(f"{self._name(slot)} did not stop in time and is killed")
                _signal(process, signal.SIGKILL)
            await self._all_ended(KILLED_SECONDS, hurry=False)

    def _tell_to_stop(self) -> None:
        for process in self._alive.values():
            _signal(process, signal.SIGTERM)

    async def _delayed(self, seconds: float) -> None:
        """Let workers that leave go on for so long. Somebody's hurry ends that, and no more than that: only the next
        one cuts the stop short."""
        if self._alive:
            self._notice(f"the {self._duty.role} goes on accepting for {seconds:g} s; another signal ends that")
        if not await self._all_ended(seconds):
            self._hurry.clear()
            self._tell_to_stop()

    async def _all_ended(self, within: float, *, hurry: bool = True) -> bool:
        """Wait for the keepers, or with `hurry` until somebody is in one; answers whether all have ended."""
        if not self._keepers:
            return True
        everyone: asyncio.Future[Any] = asyncio.gather(*self._keepers, return_exceptions=True)
        waiting = {everyone}
        if hurry:
            waiting.add(asyncio.ensure_future(self._hurry.wait()))
        try:
            await asyncio.wait(waiting, timeout=within, return_when=asyncio.FIRST_COMPLETED)
            return everyone.done()
        finally:
            for hurried in waiting - {everyone}:
                hurried.cancel()

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        ready: list[asyncio.Future[None]] = [loop.create_future() for _ in range(self._duty.workers)]
        self._keepers = [
            asyncio.create_task(self._guard(slot, future), name=self._name(slot)) for slot, future in enumerate(ready)
        ]
        done, pending = await asyncio.wait(ready, timeout=START_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
        for future in pending:
            future.cancel()
        faults = [fault for future in done if (fault := future.exception()) is not None]
        if faults:
            raise faults[0]
        if pending:
            raise CannotRun(f"the {self._duty.role} was not ready within {START_SECONDS:.0f} s; see its log above")

    async def _guard(self, slot: int, ready: asyncio.Future[None]) -> None:
        """Keep a slot, and do not let the start wait for a keeper that has crashed."""
        try:
            await self._keep(slot, ready)
        except BaseException as fault:
            if not ready.done():
                ready.set_exception(fault)
            raise

    async def _keep(self, slot: int, ready: asyncio.Future[None]) -> None:
        """Have a worker in this slot until the crew stops. `ready` learns how the first one started."""
        pause = FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            began = time.monotonic()
            end = await self._live(slot, ready)
            if self._stopping.is_set():
                return
            self._duty.bury(slot)
            if not ready.done():
                ready.set_exception(CannotRun(end.refusal or f"{self._name(slot)} {end}; see its log above"))
                return
            if time.monotonic() - began >= STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            self._notice(f"{self._name(slot)} {end}; the next one starts in {pause:g} s")
            await self._rest(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _live(self, slot: int, ready: asyncio.Future[None]) -> _End:
        """One worker's life, from its start to its end."""
        ours, its = socket.socketpair()
        try:
            with its:
                process = await self._spawn(slot, its)
        except OSError as fault:
            ours.close()
            return _End(1, f"the system starts no process for it: {fault.strerror}")
        self._alive[slot] = process
        if self._stopping.is_set():
            _signal(process, signal.SIGTERM)
        try:
            refusal = await self._listen(ours, ready)
            return _End(await process.wait(), refusal)
        finally:
            del self._alive[slot]

    async def _spawn(self, slot: int, its: socket.socket) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._duty.command(slot, its.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            # what a worker says is said on stderr: stdout belongs to the command
            stdout=STDERR,
            env=self._duty.environment,
            pass_fds=(its.fileno(), self._duty.listener.fileno()),
            # Ctrl-C on the terminal is for the parent, which stops its workers in order
            start_new_session=True,
        )

    async def _listen(self, ours: socket.socket, ready: asyncio.Future[None]) -> str | None:
        """Hear a worker out until it ends; answers why it refused, if it did."""
        reader, writer = await asyncio.open_connection(sock=ours)
        refusal = None
        try:
            while line := await reader.readline():
                match decode(line):
                    case Ready() if not ready.done():
                        ready.set_result(None)
                    case Refused(reason):
                        refusal = reason
                    case _:
                        pass
        except ConnectionResetError:
            pass  # the worker is gone, with something of ours unread
        finally:
            writer.close()
        return refusal

    def _name(self, slot: int) -> str:
        return self._duty.role.value if self._duty.workers == 1 else f"{self._duty.role} {slot}"


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal a process that has not been collected.

    The methods of its object would look first whether it has ended, and take its exit status away from the loop that
    waits for it.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
