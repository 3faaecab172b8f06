"""A sender of events as Relay wants them to be: it repeats what was not answered, under the same key, until it is.

Owns the connections and the record of what was accepted. Whatever happens to gateways, an event counts as accepted only
by a 202 that came in whole.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tests.support.wire import Reply, Wire, request

PAUSE_SECONDS = 0.05
"""Between a refusal, or a connection that is not to be had, and the next try."""


@dataclass(frozen=True, slots=True)
class Event:
    """What is posted. The key is the event's id as well; without a type here, the body has one."""

    key: str
    body: bytes
    type: str | None = "load.posted"
    content_type: str = "application/json"

    @property
    def bytes(self) -> bytes:
        """The whole request."""
        headers = {"content-type": self.content_type, "idempotency-key": f'"{self.key}"'}
        if self.type is not None:
            headers["relay-event-type"] = self.type
        return request("POST", "/v1/events", headers=headers, body=self.body)


def numbered(count: int, *, prefix: str = "event", event_type: str = "load.posted") -> list[Event]:
    """So many events, each with a body of its own."""
    return [
        Event(f"{prefix}-{number}", b'{"number": %d, "text": "%b"}' % (number, b"x" * (number % 200)), event_type)
        for number in range(count)
    ]


@dataclass(slots=True)
class Producer:
    """Posts to some gateways over several connections each, to the next gateway after each trouble."""

    urls: Sequence[str]
    connections: int = 8
    accepted: dict[str, Reply] = field(default_factory=dict)
    refusals: Counter[int] = field(default_factory=Counter)
    unanswered: int = 0
    _progress: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def post(self, events: Iterable[Event], within: float) -> None:
        """Post each event until it is accepted. Raises `AssertionError` for an answer but 202 or 503."""
        waiting = iter(events)
        async with asyncio.timeout(within), asyncio.TaskGroup() as group:
            for number in range(self.connections):
                group.create_task(self._work(waiting, number))

    async def has_accepted(self, count: int, within: float) -> None:
        """Return when so many events have been accepted. Raises `TimeoutError`."""
        async with asyncio.timeout(within), self._progress:
            await self._progress.wait_for(lambda: len(self.accepted) >= count)

    async def _work(self, waiting: Iterator[Event], number: int) -> None:
        event = next(waiting, None)
        while event is not None:
            url = self.urls[number % len(self.urls)]
            number += 1
            with suppress(OSError, TimeoutError):
                async with await Wire.connect(url) as wire:
                    event = await self._over(wire, event, waiting)
                    continue
            await asyncio.sleep(PAUSE_SECONDS)

    async def _over(self, wire: Wire, event: Event, waiting: Iterator[Event]) -> Event | None:
        """Post over one connection until it ends; answers the event that is still to be posted, None after the last."""
        current: Event | None = event
        while current is not None:
            try:
                reply = await wire.ask(current.bytes)
            except (OSError, TimeoutError):
                self.unanswered += 1
                return current
            if reply.status == 202:
                await self._accept(current, reply)
                current = next(waiting, None)
                continue
            assert reply.status == 503, f"{current.key} was answered {reply.status}: {reply.body!r}"
            self.refusals[reply.status] += 1
            await asyncio.sleep(PAUSE_SECONDS)
            return current
        return None

    async def _accept(self, event: Event, reply: Reply) -> None:
        async with self._progress:
            self.accepted[event.key] = reply
            self._progress.notify_all()


async def ask(url: str, event: Event, within: float) -> Reply:
    """Post once. Raises `Cut` where the answer does not come, `OSError` and `TimeoutError`."""
    async with await Wire.connect(url) as wire:
        return await wire.ask(event.bytes, within)


async def until_accepted(url: str, event: Event, within: float) -> Reply:
    """Post one event until it is accepted, as a patient sender does; answers the 202. Raises as `Producer.post`."""
    producer = Producer([url], connections=1)
    await producer.post([event], within)
    return producer.accepted[event.key]
