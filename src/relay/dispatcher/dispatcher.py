"""The dispatcher: one process's part of B3 and B4, put together and brought to its end.

Owns the order of starting and stopping. Invariant: after `run` returns, this process holds no lease that it could
still give back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from relay.broker import Broker
from relay.dispatcher.alarm import Alarm
from relay.dispatcher.boarding import Boarding
from relay.dispatcher.claimer import Claimer, ClaimTuning
from relay.dispatcher.consumer import Consumer
from relay.dispatcher.directory import Directory
from relay.dispatcher.flights import Flight, Flights
from relay.dispatcher.heartbeat import Heartbeat
from relay.dispatcher.launcher import Landing, Launcher
from relay.dispatcher.maintainer import Maintainer
from relay.dispatcher.mode import Mode
from relay.dispatcher.proof import Proofs
from relay.dispatcher.pruner import Pruner
from relay.dispatcher.publisher import Publisher, Publishing
from relay.dispatcher.reaper import Reaper
from relay.dispatcher.reconciler import Reconciler
from relay.dispatcher.recorder import Recorder
from relay.dispatcher.reporter import Reporter
from relay.dispatcher.supervisor import Body, supervise
from relay.domain.ambient import Ambient
from relay.domain.outcome import HandBackReason
from relay.domain.telemetry import (
    Listener,
    Loop,
    LoopSucceeded,
    Process,
    ProcessDraining,
    ProcessStarted,
    ProcessStopped,
)
from relay.sender import HttpSender
from relay.store.acks import Acks
from relay.store.announcing import Announcing
from relay.store.health import DEFAULT_PROMISES, Health, Promises
from relay.store.queue import Queue
from relay.store.retention import DEFAULT_WINDOWS, Retention, Windows
from relay.store.wakeups import WakeupListener

RECORD_GRACE_SECONDS = 5.0
"""How long a stop waits for the last outcomes to be written."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The dispatcher's numbers: `concurrency` sends at once, `drain_seconds` for sends under way when it stops. Nothing
    is sent before `quorum` machines have its event, for which a batch waits `quorum_seconds`. What is owed
    may take as long as `promises` says, and what is over is kept for `windows`. What was announced to a broker
    `sweep_seconds` ago is announced again.
    """

    claim: ClaimTuning
    concurrency: int
    max_payload_bytes: int
    heartbeat_seconds: float
    drain_seconds: float
    promises: Promises = DEFAULT_PROMISES
    windows: Windows = DEFAULT_WINDOWS
    quorum: int = 1
    quorum_seconds: float = 0.25
    sweep_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """What a dispatcher needs to have its deliveries through a broker: that, and the right to announce."""

    broker: Broker
    announcing: Announcing


@dataclass(frozen=True, slots=True)
class Stores:
    """What of the database a dispatcher uses; with a `fleet`, its deliveries come through a broker."""

    queue: Queue
    acks: Acks
    health: Health
    retention: Retention
    wakeups: WakeupListener
    fleet: Fleet | None = None


@dataclass(frozen=True, slots=True)
class _Brokered:
    """The two loops of a dispatcher with a broker."""

    consumer: Consumer
    publisher: Publisher


Deliver = Callable[[Sequence[Landing]], None]
MakeSender = Callable[[Deliver], HttpSender[Flight]]


class Dispatcher:
    """Claims, sends and records until it is told to stop. `address` is where its numbers are served, for the log.

    In a fleet it claims what a broker names and takes its turn at announcing; without, it claims what is due.
    """

    def __init__(
        self,
        *,
        process: UUID,
        stores: Stores,
        directory: Directory,
        make_sender: MakeSender,
        tuning: Tuning,
        ambient: Ambient,
        emit: Listener,
        address: str = "",
    ) -> None:
        fleet = stores.fleet
        self._tuning = tuning
        self._address = address
        self._stores = stores
        self._ambient = ambient
        self._emit = emit
        announces = None if fleet is None else Alarm(ambient.monotonic)
        self._alarm = Alarm(ambient.monotonic, also=announces)
        self._flights = Flights(limit=tuning.concurrency, ahead=tuning.claim.batch)
        self._recorder = Recorder(
            queue=stores.queue, flights=self._flights, alarm=self._alarm, ambient=ambient, emit=emit
        )
        self._launcher = Launcher(
            flights=self._flights,
            recorder=self._recorder,
            alarm=self._alarm,
            room_wanted=max(1, tuning.claim.batch // 2),
            max_payload_bytes=tuning.max_payload_bytes,
            ambient=ambient,
            emit=emit,
        )
        self._sender = make_sender(self._landed)
        self._launcher.sender = self._sender
        boarding = self._boarding(directory)
        self._claimer = Claimer(
            queue=stores.queue,
            boarding=boarding,
            flights=self._flights,
            recorder=self._recorder,
            alarm=self._alarm,
            tuning=tuning.claim,
            ambient=ambient,
            emit=emit,
        )
        self._mode = Mode(alarm=self._alarm, clock=ambient.monotonic, emit=emit)
        self._brokered = None if fleet is None or announces is None else self._of_fleet(fleet, announces)
        self._background = self._loops(process)
        self._idle = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then finish what is under way, hand the rest back, and return.

        Raises what ended the supervision of the loops, should a bug do that: a process without loops must not live on.
        So does, in the end, a bug in taking leave of the broker.
        """
        await self._sender.start()
        background = asyncio.create_task(self._supervised(self._background))
        claiming = asyncio.create_task(self._supervised(self._claiming()))
        stopping = asyncio.create_task(stop.wait())
        self._emit(ProcessStarted(Process.DISPATCHER, self._address))
        try:
            await asyncio.wait({stopping, background, claiming}, return_when=asyncio.FIRST_COMPLETED)
            self._emit(ProcessDraining(Process.DISPATCHER))
        finally:
            await _ended(stopping)
            await _ended(claiming)
            # beside the drain: a broker that hangs holds up no outcome, and a bug there skips nothing of it
            leaving = asyncio.create_task(self._leave())
            try:
                abandoned = await self._drain()
            finally:
                await asyncio.wait([leaving])
                await _ended(background)
            self._emit(ProcessStopped(Process.DISPATCHER, abandoned))
        for task in (claiming, background, leaving):
            if not task.cancelled():
                task.result()

    def _boarding(self, directory: Directory) -> Boarding:
        proofs = Proofs(
            queue=self._stores.queue,
            quorum=self._tuning.quorum,
            seconds=self._tuning.quorum_seconds,
            ambient=self._ambient,
            emit=self._emit,
        )
        return Boarding(
            proofs=proofs,
            directory=directory,
            launcher=self._launcher,
            recorder=self._recorder,
            lease_seconds=self._tuning.claim.lease_seconds,
            ambient=self._ambient,
        )

    def trouble(self) -> str | None:
        """Why deliveries do not come through the broker; None where they do, or nobody wants that."""
        if self._brokered is None or self._mode.is_active:
            return None
        return self._mode.trouble or "the broker has not answered yet"

    def _landed(self, landings: Sequence[Landing]) -> None:
        self._launcher.landed(landings)
        if not self._flights.launched:
            self._idle.set()

    async def _listen(self) -> None:
        await self._stores.wakeups.listen(self._woken, self._heard)

    def _woken(self) -> None:
        """A wake-up came, or the connection that listens for them was made."""
        self._alarm.ring()
        self._heard()

    def _heard(self) -> None:
        """The database has spoken to the connection that listens."""
        self._emit(LoopSucceeded(Loop.WAKEUPS))

    def _claiming(self) -> dict[Loop, Body]:
        """What ends first in a stop."""
        if self._brokered is None:
            return {Loop.CLAIMER: self._claimer.run, Loop.WAKEUPS: self._listen}
        return {
            Loop.CLAIMER: self._brokered.consumer.run,
            Loop.PUBLISHER: self._brokered.publisher.run,
            Loop.WAKEUPS: self._listen,
        }

    async def _supervised(self, loops: dict[Loop, Body]) -> None:
        await supervise(loops, ambient=self._ambient, emit=self._emit)

    async def _leave(self) -> None:
        if self._brokered is not None:
            await self._brokered.consumer.let_go()

    async def _drain(self) -> int:
        """Finish or hand back every flight; answers how many outcomes could not be written in time."""
        self._hand_back_unlaunched()
        await _within(self._tuning.drain_seconds, self._landings())
        # whatever the sender still has comes back as undone, and is handed back
        await self._sender.close(within=1.0)
        self._hand_back_unlaunched()
        await _within(RECORD_GRACE_SECONDS, self._recorder.drain())
        return self._recorder.unwritten + self._flights.held

    def _hand_back_unlaunched(self) -> None:
        leases = [flight.lease for flight in self._flights.ground()]
        if leases:
            self._recorder.hand_back(leases, HandBackReason.DRAINING, 0.0)

    async def _landings(self) -> None:
        while self._flights.launched:
            self._idle.clear()
            await self._idle.wait()

    def _of_fleet(self, fleet: Fleet, announces: Alarm) -> _Brokered:
        consumer = Consumer(
            broker=fleet.broker,
            claimer=self._claimer,
            flights=self._flights,
            mode=self._mode,
            alarm=self._alarm,
            silence_seconds=self._tuning.sweep_seconds,
            ambient=self._ambient,
            emit=self._emit,
        )
        publisher = Publisher(
            store=fleet.announcing,
            broker=fleet.broker,
            mark_closed=self._claimer.mark_closed,
            mode=self._mode,
            alarm=announces,
            tuning=Publishing(self._tuning.claim.poll_seconds, self._tuning.sweep_seconds),
            ambient=self._ambient,
            emit=self._emit,
        )
        return _Brokered(consumer, publisher)

    def _loops(self, process: UUID) -> dict[Loop, Body]:
        health, ambient, emit = self._stores.health, self._ambient, self._emit
        heartbeat = Heartbeat(
            store=health,
            process=process,
            every_seconds=self._tuning.heartbeat_seconds,
            ambient=ambient,
            emit=emit,
            meet=None if self._brokered is None else self._brokered.consumer.meet,
        )
        reconciler = Reconciler(
            acks=self._stores.acks,
            deadline_seconds=self._tuning.promises.ack_seconds,
            alarm=self._alarm,
            ambient=ambient,
            emit=emit,
        )
        windows, retention = self._tuning.windows, self._stores.retention
        maintainer = Maintainer(
            store=health, retention=retention, attempts_days=windows.attempts_days, ambient=ambient, emit=emit
        )
        pruner = Pruner(store=retention, windows=windows, ambient=ambient, emit=emit)
        reaper = Reaper(queue=self._stores.queue, alarm=self._alarm, ambient=ambient, emit=emit)
        return {
            Loop.RECORDER: self._recorder.run,
            Loop.REAPER: reaper.run,
            Loop.RECONCILER: reconciler.run,
            Loop.HEARTBEAT: heartbeat.run,
            Loop.MAINTAINER: maintainer.run,
            Loop.PRUNER: pruner.run,
            Loop.REPORTER: Reporter(store=health, promises=self._tuning.promises, ambient=ambient, emit=emit).run,
        }


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _within(seconds: float, waiting: Coroutine[None, None, None]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        return
