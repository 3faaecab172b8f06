"""The consumer: claims what messages name while the broker serves, and what is due while it does not.

Owns what was read and not acknowledged, and the way to polling and back. A message is not ownership, the lease is: each
delivery is claimed by its id, through every gate, and a lost claim is dropped. Invariants: a message is acknowledged
once nothing of it is left to claim, after the claim has committed, or at once if others that are held name all of it;
no more is read than there are permits for (what stalled elsewhere is taken over up to `MOST_HELD`); without a broker,
or without a word from it for the sweep's time, deliveries are looked for as if there were none.

What is left over since its lane is full here is kept, and asked for again when something has landed. It counts for
nothing in what may be read: a full lane keeps nothing from the others. But where permits are scarce nothing is read
beyond half of `MOST_HELD`: else the oldest would be let go for what came after it. Of one lane no more is kept than two
windows take: the rest is announced anew for other dispatchers, with a pause that grows, so that a fleet whose windows
are all full does not pass it round. Past `MOST_HELD` deliveries the oldest messages are let go, and are read again by
whoever reclaims them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from uuid import UUID

from relay.broker import MESSAGE_DELIVERIES, Broker, BrokerUnavailable, Message
from relay.dispatcher.alarm import Alarm
from relay.dispatcher.announced import batches
from relay.dispatcher.claimer import PACE_SECONDS, Claimer
from relay.dispatcher.flights import Flights
from relay.dispatcher.mode import Mode
from relay.dispatcher.surplus import Surplus
from relay.domain.ambient import Ambient
from relay.domain.housekeeping import BrokerStrangersFound
from relay.domain.telemetry import Listener, Loop, LoopSucceeded

WAIT_SECONDS = 2.0
"""How long one read waits for a message: also the longest time in which nobody notices that the broker is away."""

RECLAIM_EVERY_SECONDS, RECLAIM_IDLE_SECONDS, RECLAIM_MESSAGES = 5.0, 10.0, 20
"""How often messages that nobody has acknowledged are looked for, how old they are, and how many are taken over."""

AGAIN_SECONDS = 0.25
"""After how long everything that is left over is asked for again, whether its lane has room here or not."""

PROBE_SECONDS = 1.0
"""Between two tries of a broker that is away. How long one is left alone that comes and goes, the mode says."""

NEVER_SECONDS, NO_MESSAGE = 1e9, "0-1"
"""For how long no message has stalled, and the id of none: what a trial asks a broker for to see whether it would."""

LET_GO_SECONDS = 2.0
"""For how long a stop tries to announce anew what is held."""

STRANGERS_EVERY_SECONDS, STRANGERS_SECONDS = 1.0, 60.0
"""How often it is looked whether messages are for this installation, and how often it is told that they are not."""

MOST_HELD = 2_000
"""Deliveries that are left over in one process at the most."""

MOST_ASKED = 500
"""Deliveries that one claim is asked for."""


class Held:
    """Messages that were read and not acknowledged, oldest first, with what is left of each.

    A delivery's endpoint is known once a claim has left it over.
    """

    def __init__(self) -> None:
        self._messages: dict[str, tuple[UUID, ...]] = {}
        self._left: dict[UUID, UUID | None] = {}

    def __len__(self) -> int:
        return len(self._left)

    def take(self, messages: Iterable[Message]) -> list[str]:
        """Take what was read. One that is held already is the same message again. Answers those that are needless, and
        not held: all that they name is left of others that are."""
        needless: list[str] = []
        for message in messages:
            if message.id in self._messages:
                continue
            if self._left.keys() >= set(message.deliveries):
                needless.append(message.id)
                continue
            self._messages[message.id] = message.deliveries
            for delivery in message.deliveries:
                self._left.setdefault(delivery, None)
        return needless

    def fresh(self) -> list[UUID]:
        """What no claim was asked for yet."""
        return [delivery for delivery, endpoint in self._left.items() if endpoint is None]

    def left_over(self) -> list[tuple[UUID, UUID]]:
        """What a claim has left over, with its endpoint."""
        return [(delivery, endpoint) for delivery, endpoint in self._left.items() if endpoint is not None]

    def settle(self, asked: Iterable[UUID], left_over: dict[UUID, UUID]) -> list[str]:
        """After a claim: answers the messages of which nothing is left, which are held no more."""
        for delivery in asked:
            self._left.pop(delivery, None)
        self._left |= left_over
        left = self._left.keys()
        return self._drop([message for message, named in self._messages.items() if left.isdisjoint(named)])

    def let_go(self, most: int) -> None:
        """Forget the oldest messages until no more than so many deliveries are left."""
        for message in list(self._messages):
            if len(self._left) <= most:
                return
            self._drop([message])
            kept = {delivery for named in self._messages.values() for delivery in named}
            self._left = {delivery: endpoint for delivery, endpoint in self._left.items() if delivery in kept}

    def give_up(self) -> tuple[list[str], list[UUID]]:
        """Everything that is held, as messages and as deliveries; nothing is held any more."""
        messages, deliveries = list(self._messages), list(self._left)
        self._messages.clear()
        self._left.clear()
        return messages, deliveries

    def _drop(self, messages: list[str]) -> list[str]:
        for message in messages:
            del self._messages[message]
        return messages


class Consumer:
    """Consumes for one process. `silence_seconds` without a message call for a look of its own at what is due."""

    def __init__(
        self,
        *,
        broker: Broker,
        claimer: Claimer,
        flights: Flights,
        mode: Mode,
        alarm: Alarm,
        silence_seconds: float,
        ambient: Ambient,
        emit: Listener,
    ) -> None:
        self._broker = broker
        self._claimer = claimer
        self._flights = flights
        self._mode = mode
        self._alarm = alarm
        self._silence_seconds = silence_seconds
        self._ambient = ambient
        self._emit = emit
        self._held = Held()
        self._surplus = Surplus(flights.lanes)
        self._receiving: asyncio.Task[Sequence[Message]] | None = None
        self._heard_at = self._reclaimed_at = self._asked_at = self._all_again_at = 0.0
        self._strangers_at = 0.0
        self._pause = PACE_SECONDS
        self._landings = 0
        self._is_scarce = False

    async def run(self) -> None:
        """Claim until cancelled. Raises `StoreUnavailable`; what was claimed before stays under way."""
        while True:
            if self._mode.is_active:
                await self._consume()
            else:
                await self._poll()

    def meet(self, dispatchers: int) -> None:
        """So many dispatchers there are, with this one."""
        self._surplus.is_wanted = dispatchers > 1

    async def let_go(self) -> None:
        """Announce anew what is held, so that others have it at once, and be a consumer no more."""
        messages, deliveries = self._held.give_up()
        try:
            with contextlib.suppress(BrokerUnavailable, TimeoutError):  # then it is reclaimed
                async with asyncio.timeout(LET_GO_SECONDS):
                    if deliveries:
                        await self._broker.announce(batches(deliveries))
                    if messages:
                        await self._broker.acknowledge(messages)
        finally:
            await self._broker.close()

    async def _poll(self) -> None:
        """Claim what is due, as without a broker, until that serves."""
        probing = asyncio.ensure_future(self._probe())
        probing.add_done_callback(lambda _: self._alarm.ring())

        def goes_on() -> bool:
            if probing.done():
                probing.result()  # a bug there ends this loop: nobody else would ever look for the broker again
            return not self._mode.is_active

        try:
            await self._claimer.run(goes_on)
        finally:
            await _ended(probing)

    async def _probe(self) -> None:
        """Try all that a consumer asks until the broker lets us. To ask what it holds would tell nothing: a replica, or
        a server that cannot save, answers that and takes no writes, which a read of a group is. And where a user lacks
        a single command, the rest goes well."""
        while True:
            while rest := self._mode.rest_seconds:
                await self._ambient.sleep(rest)
            try:
                needless = self._held.take(await self._broker.receive(count=1, wait_seconds=0))
                needless += self._held.take(await self._broker.reclaim(idle_seconds=NEVER_SECONDS, count=1))
                await self._broker.acknowledge(needless or [NO_MESSAGE])
            except BrokerUnavailable as fault:
                self._mode.lost(Loop.CLAIMER, str(fault))
            else:
                self._mode.served(Loop.CLAIMER)
                return
            await self._ambient.sleep(PROBE_SECONDS)

    async def _consume(self) -> None:
        """Claim what messages name, until the broker does not serve."""
        self._heard_at = self._reclaimed_at = self._ambient.monotonic()
        try:
            while self._mode.is_active:
                await self._claimer.await_room()
                self._alarm.reset()
                await self._read()
                asked_at = self._ambient.monotonic()
                if asked := self._askable(asked_at):
                    await self._claim(asked, asked_at)
                elif asked_at - self._heard_at >= self._silence_seconds:
                    await self._look_without()
        except BrokerUnavailable as fault:
            self._mode.lost(Loop.CLAIMER, str(fault))
        finally:
            receiving, self._receiving = self._receiving, None
            if receiving is not None:
                await _ended(receiving)
        # it is pending still, and reclaimed when the broker is there again; until then it is polled for
        self._held.give_up()

    async def _read(self) -> None:
        """Wait for a message, or for something that lets what is left over be asked for again."""
        now = self._ambient.monotonic()
        if self._is_scarce and not (self._receiving is not None and self._receiving.done()):
            self._is_scarce, self._heard_at = False, now
            return
        if now - self._reclaimed_at >= RECLAIM_EVERY_SECONDS:
            await self._reclaim(now)
        receiving = self._receive()
        await self._await_word(receiving, now)
        if receiving.done():
            messages, self._receiving = receiving.result(), None
            needless = self._held.take(messages)
            self._held.let_go(MOST_HELD)
            if needless:
                await self._broker.acknowledge(needless)
            if messages:
                self._heard_at = self._ambient.monotonic()
            self._emit(LoopSucceeded(Loop.CLAIMER))

    async def _reclaim(self, now: float) -> None:
        """Take over what stalled."""
        stalled = await self._broker.reclaim(idle_seconds=RECLAIM_IDLE_SECONDS, count=RECLAIM_MESSAGES)
        needless = self._held.take(stalled)
        is_full = len(self._held) >= MOST_HELD
        self._held.let_go(MOST_HELD)
        if needless:
            await self._broker.acknowledge(needless)
        if is_full or len(stalled) < RECLAIM_MESSAGES:  # else there are more, and the next read looks for them
            self._reclaimed_at = now

    async def _await_word(self, receiving: asyncio.Task[Sequence[Message]], now: float) -> None:
        if self._held.fresh():
            return
        if not self._held:
            await asyncio.wait([receiving])
            return
        lanes = self._flights.lanes
        has_room = any(lanes.has_room(endpoint) for _, endpoint in self._held.left_over())
        again_at = self._again_at() if has_room else self._all_again_at
        ringing = asyncio.ensure_future(self._alarm.wait(max(again_at - now, PACE_SECONDS)))
        try:
            await asyncio.wait([receiving, ringing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _ended(ringing)

    def _again_at(self) -> float:
        """When what is left over is asked for again whose lane has room here, as far as this process knows: soon where
        something has landed since, else after a pause that grows with each claim in vain."""
        return self._asked_at + (self._pause if self._flights.landings == self._landings else PACE_SECONDS)

    def _askable(self, now: float) -> list[UUID]:
        """What to ask for: what was just read, and of what is left over that whose lane has room here."""
        asked = self._held.fresh()
        if now >= self._all_again_at:
            self._all_again_at = now + AGAIN_SECONDS
            asked += [delivery for delivery, _ in self._held.left_over()]
        elif now >= self._again_at():
            lanes = self._flights.lanes
            asked += [delivery for delivery, endpoint in self._held.left_over() if lanes.has_room(endpoint)]
        return asked[:MOST_ASKED]

    async def _claim(self, asked: Sequence[UUID], asked_at: float) -> None:
        most = self._claimer.batch
        self._asked_at, self._landings = asked_at, self._flights.landings
        claim = await self._claimer.take(asked)
        done = self._held.settle(asked, dict(claim.left_over))
        # lanes that have little leave a batch of many shares unfilled
        self._is_scarce = 2 * len(self._held) >= MOST_HELD and 2 * len(claim.deliveries) >= most
        self._pause = PACE_SECONDS if claim.deliveries else min(2 * self._pause, AGAIN_SECONDS)
        if surplus := self._surplus.of(self._held.left_over(), asked_at):
            # before it is held no more: if it is not taken, it is left to whoever reclaims it
            await self._broker.announce(batches(surplus))
            done += self._held.settle(surplus, {})
        if done:
            await self._broker.acknowledge(done)
        if not claim.deliveries and not claim.left_over:
            await self._look_for_strangers(asked, asked_at)
        await self._claimer.pace(asked_at, claim)

    async def _look_for_strangers(self, asked: Sequence[UUID], now: float) -> None:
        """Nothing of these was there to be claimed. Others may have been faster; or they are not ours at all."""
        if now >= self._strangers_at:
            count = await self._claimer.strangers(asked)
            self._strangers_at = now + (STRANGERS_SECONDS if count else STRANGERS_EVERY_SECONDS)
            if count:
                self._emit(BrokerStrangersFound(count))

    async def _look_without(self) -> None:
        """Nothing was announced for long. There may be nothing, or nobody who announces: look, and poll for as long as
        there is something and no message."""
        asked_at = self._ambient.monotonic()
        claim = await self._claimer.take()
        if not claim.deliveries and not self._flights.held:
            self._heard_at = asked_at
            return
        receiving = self._receive()
        receiving.add_done_callback(lambda _: self._alarm.ring())
        await self._claimer.run(lambda: not receiving.done())

    def _receive(self) -> asyncio.Task[Sequence[Message]]:
        """The read that is under way."""
        if self._receiving is None:
            count = max(1, self._claimer.room // MESSAGE_DELIVERIES)
            self._receiving = asyncio.ensure_future(self._broker.receive(count=count, wait_seconds=WAIT_SECONDS))
        return self._receiving


async def _ended(task: asyncio.Future[object] | asyncio.Task[Sequence[Message]] | asyncio.Task[None]) -> None:
    """Return when the task has ended. Raises what ended it, unless that was this, or a broker that did not serve: of
    that, the next who asks is told."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        with contextlib.suppress(BrokerUnavailable):
            task.result()
