"""What the suite stands on: a transport whose consumers can be had, and whose server can be made to lose everything."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

from relay.broker import Broker, Message, RedisStreams, read_address
from relay.domain.telemetry import Happening
from tests.support.memory_broker import MemoryBroker, MemoryStream
from tests.support.stream_server import StreamServer


def ids(count: int, first: int = 1) -> list[UUID]:
    """So many delivery ids, each from its number."""
    return [UUID(int=number) for number in range(first, first + count)]


def deliveries(messages: list[Message] | tuple[Message, ...]) -> list[UUID]:
    """What messages carry, in order."""
    return list(itertools.chain.from_iterable(message.deliveries for message in messages))


def writes(broker: Broker) -> list[Coroutine[Any, Any, object]]:
    """Every call that changes something at the server, not awaited yet."""
    return [
        broker.announce([ids(1)]),
        broker.receive(count=1, wait_seconds=0),
        broker.reclaim(idle_seconds=0, count=1),
        broker.acknowledge(["1-0"]),
    ]


class Ground(ABC):
    """A transport under test; `told` is what its consumers have emitted."""

    def __init__(self) -> None:
        self.told: list[Happening] = []
        self._made: list[Broker] = []

    def consumer(self, name: str = "a") -> Broker:
        """A consumer of this name, closed with the test."""
        made = self._make(name)
        self._made.append(made)
        return made

    async def close(self) -> None:
        """Close every consumer."""
        for made in self._made:
            await made.close()

    @abstractmethod
    def _make(self, name: str) -> Broker: ...

    @abstractmethod
    def flush(self) -> None:
        """Have the server lose everything."""

    @abstractmethod
    def insert_alien(self) -> None:
        """Add an entry that is not Relay's."""

    @abstractmethod
    def consumers(self) -> set[str]:
        """The consumers that the server knows."""


class MemoryGround(Ground):
    """The transport in memory."""

    def __init__(self, stream: MemoryStream) -> None:
        super().__init__()
        self.stream = stream

    def _make(self, name: str) -> Broker:
        return MemoryBroker(self.stream, consumer=name, emit=self.told.append)

    def flush(self) -> None:
        self.stream.flush()

    def insert_alien(self) -> None:
        self.stream.insert_alien()

    def consumers(self) -> set[str]:
        return self.stream.consumers


class RedisGround(Ground):
    """Redis Streams on a real server."""

    def __init__(self, server: StreamServer, url: str | None = None) -> None:
        super().__init__()
        self.server = server
        self.url = server.url if url is None else url
        self.stream = read_address(self.url).stream

    def _make(self, name: str) -> RedisStreams:
        return RedisStreams(read_address(self.url), consumer=name, emit=self.told.append)

    def flush(self) -> None:
        self.server.client.flushall()

    def insert_alien(self) -> None:
        self.server.client.xadd(self.stream, {"payload": "hello"})

    def consumers(self) -> set[str]:
        found = self.server.client.xinfo_consumers(self.stream, "dispatchers")
        return {each["name"].decode() for each in found}
