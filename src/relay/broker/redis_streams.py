"""Redis Streams as the broker: one stream, one consumer group for the fleet, one consumer per process.

Owns the commands and what follows from each answer. Leaves connections to `client`, words to `faults`, entries to
`entries`. Never trims: that would delete what nobody has read yet; what is acknowledged is deleted, and the publisher
bounds the rest.

Invariants: every call ends within its bound; a group is made from the first entry on, so that what was announced
while there was none is read; a consumer goes only while it holds nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

from redis.exceptions import RedisError, ResponseError

from relay.broker.address import Address
from relay.broker.broker import LONGEST_WAIT_SECONDS, BrokerUnavailable, Message, Standing
from relay.broker.client import MOST_CONNECTIONS, Client, ServerFacts, answer_seconds
from relay.broker.entries import FIELD, Entries, read_all, read_claimed, read_new, written
from relay.broker.faults import code_of, is_emptied, unavailable
from relay.broker.scripts import AMEND, FINISH, FORGET, STANDING
from relay.domain.telemetry import BrokerEmptied, BrokerEntriesDropped, Listener

GROUP = "dispatchers"
MOST_COUNTED = 1_000
"""How far unread messages are counted: what they are asked for is whether there are any."""

GONE_SECONDS = 3_600.0
"""After how long without a read a consumer that holds nothing is forgotten. One that was only away is made anew by its
next read."""

MOST_REMADE, REMADE_SECONDS = 5, 10.0
"""How often the group is made anew within so many seconds before that is a fault: a server that evicts the stream as
fast as it is made would have whoever reads go round and round."""

CLOSE_SECONDS = 1.0
"""Within which each of the two steps of a close ends, beside what closing the idle connections may take."""

_START = b"0-0"
Answer = TypeVar("Answer")


class RedisStreams:
    """The broker at an address, as the consumer of this name sees it; implements `Broker`.

    Make it inside the loop it is to be used in. It connects when it is first asked something.
    """

    def __init__(self, address: Address, *, consumer: str, emit: Listener) -> None:
        self._address, self._consumer, self._emit = address, consumer, emit
        self._client = Client(address)
        self._answers_in = answer_seconds(address)
        self._claims_from = _START
        self._grouped = 0
        """How often this process has made or found the group; 0 until the first time."""
        self._making = asyncio.Lock()
        self._places = asyncio.Semaphore(MOST_CONNECTIONS)
        """Who finds no connection waits for one, within its bound, as the library does not."""
        self._remade: deque[float] = deque(maxlen=MOST_REMADE)

    async def announce(self, batches: Sequence[Sequence[UUID]]) -> None:
        """See `Broker`."""
        values = list(map(written, batches))
        if values:
            await self._within(self._answers_in, lambda: self._add(values))

    async def receive(self, *, count: int, wait_seconds: float) -> Sequence[Message]:
        """See `Broker`."""
        if count < 1:
            return ()
        wait = max(0.0, min(wait_seconds, LONGEST_WAIT_SECONDS))
        bound = wait + self._answers_in
        entries = await self._within(
            bound, lambda: self._in_group(lambda again: self._read(count, 0 if again else wait))
        )
        return await self._ours(entries)

    async def reclaim(self, *, idle_seconds: float, count: int) -> Sequence[Message]:
        """See `Broker`."""
        if count < 1:
            return ()
        entries = await self._within(
            self._answers_in, lambda: self._in_group(lambda _again: self._claim(idle_seconds, count))
        )
        return await self._ours(entries)

    async def acknowledge(self, messages: Sequence[str]) -> None:
        """See `Broker`. XACK answers 0 where the group is gone, which is as good: nothing is pending then."""
        if messages:
            await self._within(self._answers_in, lambda: self._run(FINISH, *messages))

    async def standing(self) -> Standing:
        """See `Broker`. Makes no group: where there is none, nothing is unread."""
        unread, pending, age = await self._within(self._answers_in, lambda: self._run(STANDING, MOST_COUNTED))
        return Standing(unread, pending, age / 1000)

    async def facts(self) -> ServerFacts:
        """What the server says of itself. Changes nothing, and makes no consumer."""
        return await self._within(self._answers_in, self._client.facts)

    async def held(self, count: int) -> Sequence[Message]:
        """The oldest messages of the stream, read or not. Changes nothing, and makes no consumer."""
        asked = ("XRANGE", self._address.stream, "-", "+", "COUNT", count)
        return read_all(await self._within(self._answers_in, lambda: self._client.ask(*asked))).messages

    async def close(self) -> None:
        """See `Broker`."""
        if self._grouped:  # else there is no consumer of this name
            with suppress(BrokerUnavailable):  # others forget it later
                await self._within(CLOSE_SECONDS, lambda: self._run(FORGET, 0, self._consumer))
        with suppress(RedisError, OSError):  # a connection that cannot say farewell is as closed
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._client.close()

    # Commands, one round trip each.

    async def _add(self, values: Sequence[bytes]) -> None:
        await self._client.ask_all(("XADD", self._address.stream, "*", FIELD, value) for value in values)

    async def _read(self, count: int, wait: float) -> Entries:
        milliseconds = round(wait * 1000)
        block = ("BLOCK", milliseconds) if milliseconds else ()  # BLOCK 0 would wait for ever
        of = ("GROUP", GROUP, self._consumer, "COUNT", count, *block, "STREAMS", self._address.stream, ">")
        return read_new(await self._client.ask("XREADGROUP", *of))

    async def _claim(self, idle_seconds: float, count: int) -> Entries:
        stream, idle, gone = self._address.stream, round(idle_seconds * 1000), round(GONE_SECONDS * 1000)
        claim = ("XAUTOCLAIM", stream, GROUP, self._consumer, idle, self._claims_from, "COUNT", count)
        amend, forget = ("EVAL", AMEND, 1, stream, GROUP), ("EVAL", FORGET, 1, stream, GROUP, gone, "")
        _amended, claimed, _forgotten = await self._client.ask_all((amend, claim, forget))
        self._claims_from, entries = read_claimed(claimed)
        return entries

    async def _run(self, script: str, *arguments: int | str) -> Any:  # noqa: ANN401 - it is the script that knows
        return await self._client.ask("EVAL", script, 1, self._address.stream, GROUP, *arguments)

    # What holds of every call.

    async def _ours(self, entries: Entries) -> Sequence[Message]:
        """The messages; what is none is removed and told of."""
        if entries.alien:
            await self.acknowledge(entries.alien)
            self._emit(BrokerEntriesDropped(len(entries.alien)))
        return entries.messages

    async def _in_group(self, ask: Callable[[bool], Awaitable[Answer]]) -> Answer:
        """Ask; where the group is gone make it, and ask again."""
        known = self._grouped
        try:
            answer = await ask(False)
        except ResponseError as error:
            if not is_emptied(error):
                raise
            async with self._making:
                if self._grouped == known:  # else another task has made it meanwhile
                    await self._make_group(error)
            return await ask(True)
        self._grouped = self._grouped or 1
        return answer

    async def _make_group(self, gone: ResponseError) -> None:
        """Make the group, from the first entry on. Raises `gone` where that has to be done all the time."""
        now = asyncio.get_running_loop().time()
        if len(self._remade) == MOST_REMADE and now - self._remade[0] < REMADE_SECONDS:
            raise gone
        try:
            await self._client.ask("XGROUP", "CREATE", self._address.stream, GROUP, "0", "MKSTREAM")
        except ResponseError as error:
            if code_of(error) != "BUSYGROUP":  # another consumer was first
                raise
        self._remade.append(now)
        self._claims_from = _START
        self._grouped += 1
        if self._grouped > 1:
            self._emit(BrokerEmptied())

    async def _within(self, seconds: float, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask, and have an answer or `BrokerUnavailable` within so many seconds."""
        try:
            async with asyncio.timeout(seconds), self._places:
                return await ask()
        except (RedisError, OSError) as error:
            with suppress(RedisError, OSError):  # they are of a server that has just failed
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._client.forget_idle()
            address = self._address
            raise unavailable(error, shown=address.shown, stream=address.stream, bound=seconds) from error
