"""A broker in memory, for tests of whoever uses one: it passes the suite that Redis passes (`tests/broker`).

`MemoryStream` is the server, with switches for its faults; `MemoryBroker` is one consumer's view of it, as
`RedisStreams` is. Both belong to the loop they are made in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from relay.broker import LONGEST_WAIT_SECONDS, MESSAGE_DELIVERIES, BrokerUnavailable, Message, Standing
from relay.domain.telemetry import BrokerEmptied, BrokerEntriesDropped, Listener


@dataclass(slots=True)
class _Held:
    consumer: str
    since: float
    message: Message | None


class MemoryStream:
    """What a server holds. Switches: from `go_away` to `come_back` (or with `is_away`) every call raises; from `freeze`
    to `thaw` calls hang for their bound and raise; from `demote` to `promote` every call raises that writes, which is
    all but `standing`; `flush` loses everything; `put_back` is for its clock; `insert_alien` adds an entry that is not
    Relay's. `calls` counts what was asked."""

    def __init__(self, *, bound_seconds: float = 0.2) -> None:
        self.is_away = False
        self.is_replica = False
        self.bound_seconds = bound_seconds
        """For how long a call hangs while the stream is frozen."""
        self.calls: dict[str, int] = {}
        self.consumers: set[str] = set()
        self.lives = 0
        """How often it came up empty."""
        self._numbers = 0
        self._unread: list[tuple[str, Message | None]] = []
        self._added: dict[str, float] = {}
        self._pending: dict[str, _Held] = {}
        self._changed = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()

    def go_away(self) -> None:
        """From now on refuse everything, and end the reads that wait."""
        self.is_away = True
        self._wake()

    def come_back(self) -> None:
        """Answer again, with what there was."""
        self.is_away = False

    def demote(self) -> None:
        """From now on refuse what writes, and end the reads that wait."""
        self.is_replica = True
        self._wake()

    def promote(self) -> None:
        """Take writes again."""
        self.is_replica = False

    def freeze(self) -> None:
        """From now on answer nothing."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Answer again."""
        self._flowing.set()

    def flush(self) -> None:
        """Lose everything."""
        self._unread.clear()
        self._pending.clear()
        self.consumers.clear()
        self.lives += 1
        self._wake()

    def put_back(self, seconds: float) -> None:
        """Put its clock back: what it holds was added in the time to come."""
        self._added = {name: added + seconds for name, added in self._added.items()}

    def insert_alien(self) -> None:
        """Add an entry that Relay cannot read."""
        self._add(None)

    @property
    def announced(self) -> list[tuple[UUID, ...]]:
        """What is unread, in order."""
        return [message.deliveries for _, message in self._unread if message is not None]

    def _add(self, deliveries: tuple[UUID, ...] | None) -> None:
        self._numbers += 1
        name = f"{self._numbers}-0"
        self._added[name] = asyncio.get_running_loop().time()
        self._unread.append((name, None if deliveries is None else Message(name, deliveries)))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _take(self, consumer: str, count: int, now: float) -> list[tuple[str, Message | None]]:
        self.consumers.add(consumer)
        taken, self._unread = self._unread[:count], self._unread[count:]
        for name, message in taken:
            self._pending[name] = _Held(consumer, now, message)
        return taken

    def _take_over(
        self, consumer: str, idle: float, count: int, now: float, after: str
    ) -> tuple[list[tuple[str, Message | None]], str]:
        """What was taken over behind an entry, and behind which to go on: "" from the first on."""
        names = [name for name in sorted(self._pending, key=_number) if _number(name) > _number(after)]
        stale = [name for name in names if now - self._pending[name].since >= idle][:count]
        for name in stale:
            self._pending[name] = _Held(consumer, now, self._pending[name].message)
        on = stale[-1] if len(stale) == count else ""
        return [(name, self._pending[name].message) for name in stale], on

    def _finish(self, names: Sequence[str]) -> None:
        for name in names:
            self._pending.pop(name, None)
            self._added.pop(name, None)

    def _forget(self, consumer: str) -> None:
        if all(held.consumer != consumer for held in self._pending.values()):
            self.consumers.discard(consumer)


def _number(name: str) -> int:
    """The number in an entry's id; 0 for none."""
    return int(name.partition("-")[0] or 0)


class MemoryBroker:
    """The stream as one consumer sees it; implements `Broker`."""

    def __init__(self, stream: MemoryStream, *, consumer: str, emit: Listener) -> None:
        self._stream, self._consumer, self._emit = stream, consumer, emit
        self._life: int | None = None
        self._claims_after = ""

    async def announce(self, batches: Sequence[Sequence[UUID]]) -> None:
        """See `Broker`."""
        for batch in batches:
            if not 0 < len(batch) <= MESSAGE_DELIVERIES:
                raise ValueError(f"a message carries 1 to {MESSAGE_DELIVERIES} ids, not {len(batch)}")
        if batches:
            await self._reach("announce")
            for batch in batches:
                self._stream._add(tuple(batch))

    async def receive(self, *, count: int, wait_seconds: float) -> Sequence[Message]:
        """See `Broker`."""
        if count < 1:
            return ()
        loop = asyncio.get_running_loop()
        ends = loop.time() + max(0.0, min(wait_seconds, LONGEST_WAIT_SECONDS))
        while True:
            await self._reach("receive")
            changed = self._stream._changed
            self._notice()
            taken = self._stream._take(self._consumer, count, loop.time())
            left = ends - loop.time()
            if taken or left <= 0:
                return self._ours(taken)
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                return ()

    async def reclaim(self, *, idle_seconds: float, count: int) -> Sequence[Message]:
        """See `Broker`."""
        if count < 1:
            return ()
        await self._reach("reclaim")
        self._notice()
        now = asyncio.get_running_loop().time()
        taken, self._claims_after = self._stream._take_over(
            self._consumer, idle_seconds, count, now, self._claims_after
        )
        return self._ours(taken)

    async def acknowledge(self, messages: Sequence[str]) -> None:
        """See `Broker`."""
        if messages:
            await self._reach("acknowledge")
            self._stream._finish(messages)

    async def standing(self) -> Standing:
        """See `Broker`."""
        await self._reach("standing")
        stream, now = self._stream, asyncio.get_running_loop().time()
        age = now - stream._added[stream._unread[0][0]] if stream._unread else 0.0
        return Standing(len(stream._unread), len(stream._pending), age)

    async def close(self) -> None:
        """See `Broker`."""
        if not self._stream.is_away:
            self._stream._forget(self._consumer)

    async def _reach(self, call: str) -> None:
        stream = self._stream
        stream.calls[call] = stream.calls.get(call, 0) + 1
        await asyncio.sleep(0)
        if not stream._flowing.is_set():
            try:
                async with asyncio.timeout(stream.bound_seconds):
                    await stream._flowing.wait()
            except TimeoutError:
                raise BrokerUnavailable("the broker in memory did not answer") from None
        if stream.is_away:
            raise BrokerUnavailable("the broker in memory is away")
        if stream.is_replica and call != "standing":
            raise BrokerUnavailable("the broker in memory takes no writes")

    def _notice(self) -> None:
        if self._life not in (None, self._stream.lives):
            self._emit(BrokerEmptied())
        self._life = self._stream.lives

    def _ours(self, taken: Sequence[tuple[str, Message | None]]) -> Sequence[Message]:
        alien = [name for name, message in taken if message is None]
        if alien:
            self._stream._finish(alien)
            self._emit(BrokerEntriesDropped(len(alien)))
        return tuple(message for _, message in taken if message is not None)
