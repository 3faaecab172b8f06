"""The publisher: announces what is due to the broker, for the whole fleet, in one process at a time.

Owns the pace of announcing and the sweep. What is ready is the store's look; what is worth a word `announced`'s.
Invariants: only due deliveries of open lanes are announced, no more of a lane than it may take; whatever the broker
loses is announced again within the sweep's time, and the time that messages wait there; an idle fleet looks once per
poll.

The sweep stands down for what nobody may have read yet: it would only stand behind itself, and the more of it the later
it is read. The broker is read in order, so that is what was announced since its oldest unread message, and in the
sweep's time before. A new leader knows of nothing that was announced, so it begins with a sweep, once all is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from relay.broker import Broker, BrokerUnavailable
from relay.dispatcher.alarm import Alarm
from relay.dispatcher.announced import MOST, Announced, batches
from relay.dispatcher.claimer import PACE_SECONDS
from relay.dispatcher.mode import Mode
from relay.domain.ambient import Ambient
from relay.domain.telemetry import Listener, Loop, LoopSucceeded
from relay.store.announcing import Announcing, Leadership
from relay.store.queue import FIRST_LANE

MOST_OF_A_LANE = 500
"""What one look takes of a lane at the most for each dispatcher: more than is claimed of it until the next one."""

LONGEST_PAUSE_SECONDS = 0.1
"""Between two looks while something is announced and not claimed yet: doubling up to this from the usual pace."""

LOOKING_SHARE = 4
"""How many times as long as it took the database a round without news is rested from, as long as a leader may be
silent: lanes that hang may be many thousands."""

STANDING_SECONDS = 1.0
"""How often the broker is asked what it still holds, while something is announced."""

SPEAKS_SECONDS = 2.0
"""How long a leader may be silent towards the database, which takes it for dead some seconds later."""

RETRY_SECONDS = 1.0
"""After how long a broker that did not take an announcement is tried again."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """Another process may lead after `poll_seconds`; what was announced `sweep_seconds` ago is announced again, which
    for what may be unread `stands_down`. `most` bounds what is announced and not claimed."""

    poll_seconds: float
    sweep_seconds: float
    stands_down: bool = True
    most: int = MOST


class Publisher:
    """Publishes for the whole installation, while this process holds the lock. `mark_closed` tells of the lanes behind
    an endpoint that are found closed."""

    def __init__(
        self,
        *,
        store: Announcing,
        broker: Broker,
        mark_closed: Callable[[UUID], Awaitable[None]],
        mode: Mode,
        alarm: Alarm,
        tuning: Publishing,
        ambient: Ambient,
        emit: Listener,
    ) -> None:
        self._store = store
        self._broker = broker
        self._mark_closed = mark_closed
        self._mode = mode
        self._alarm = alarm
        self._tuning = tuning
        self._ambient = ambient
        self._emit = emit
        self._refused: UUID | None = None
        self._forget()

    def _forget(self) -> None:
        self._announced = Announced(self._tuning.most)
        self._after = FIRST_LANE
        self._news = 0
        self._looking = 0.0
        self._pause = PACE_SECONDS
        self._stood_at = self._ambient.monotonic()
        self._stale_before: float | None = None

    async def run(self) -> None:
        """Try to lead, then announce while leading, until cancelled. Raises `StoreUnavailable`."""
        while True:
            pause = self._tuning.poll_seconds
            try:
                await self._repeat_refused()
                async with self._store.leading() as lead:
                    if lead is not None:
                        await self._lead(lead)
                # somebody else announces: what this process cannot do is not asked of it
                self._mode.served(Loop.PUBLISHER)
            except BrokerUnavailable as fault:
                self._mode.lost(Loop.PUBLISHER, str(fault))
                pause = RETRY_SECONDS
            self._tell(Loop.PUBLISHER)
            self._tell(Loop.SWEEP)
            await self._ambient.sleep(pause)

    async def _repeat_refused(self) -> None:
        """Where an announcement was not taken, nothing else tells that one is: a server may answer and take no writes.
        A row of it is the trial (it is due, or was); until it is taken the lock is left alone."""
        if self._refused is not None:
            await self._broker.announce([[self._refused]])
            self._refused = None

    async def _lead(self, lead: Leadership) -> None:
        """Announce until the broker or the database is away."""
        self._forget()
        await self._await_all_read(lead)
        while True:
            self._alarm.reset()
            looked_at = self._ambient.monotonic()
            is_news = await self._announce(lead, looked_at)
            self._mode.served(Loop.PUBLISHER)
            is_round_over = self._after == FIRST_LANE
            if is_round_over:
                await self._end_round(lead)
            if is_round_over or not is_news:
                await self._pace(looked_at)

    async def _end_round(self, lead: Leadership) -> None:
        """Every lane was seen."""
        if self._stale_before is not None:
            self._stale_before = None
            self._tell(Loop.SWEEP, self._news)
        await self._look_for_lost()
        if not self._news:
            await self._rest(lead)
        self._news, self._looking = 0, 0.0

    async def _await_all_read(self, lead: Leadership) -> None:
        """An earlier leader may have announced what is still unread: with that unread, a sweep stands down."""
        while self._tuning.stands_down:
            standing = await self._broker.standing()
            # before the wait: what is unread may be for this process to read
            self._mode.served(Loop.PUBLISHER)
            if not standing.unread:
                return
            await lead.seconds_to_next_due()  # a word to the database
            self._tell(Loop.SWEEP)
            await self._ambient.sleep(LONGEST_PAUSE_SECONDS)

    async def _announce(self, lead: Leadership, now: float) -> bool:
        """Look at the next lanes and announce what is news of them; answers whether anything was."""
        look = await lead.look(after=self._after, most_of_a_lane=MOST_OF_A_LANE)
        self._looking += self._ambient.monotonic() - now
        if look.is_unmarked:
            await self._mark_closed(self._after)
        fresh = self._announced.news(look, self._ambient.monotonic(), stale_before=self._stale_before)
        self._after = look.resume_after
        if fresh:
            try:
                await self._broker.announce(batches(fresh))
            except BrokerUnavailable:
                self._refused = fresh[0]
                raise
            self._news += len(fresh)
            self._pause = PACE_SECONDS
        self._tell(Loop.PUBLISHER, len(fresh))
        return bool(fresh)

    async def _rest(self, lead: Leadership) -> None:
        """Nothing of all lanes was news: sleep until something may be."""
        if self._announced.size:
            await self._alarm.wait(min(max(self._pause, LOOKING_SHARE * self._looking), SPEAKS_SECONDS))
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
            return
        self._pause = PACE_SECONDS
        self._tell(Loop.SWEEP)
        longest = min(self._tuning.poll_seconds, SPEAKS_SECONDS)
        seconds = await lead.seconds_to_next_due()
        await self._alarm.wait(longest if seconds is None else min(max(seconds, PACE_SECONDS), longest))

    async def _look_for_lost(self) -> None:
        """Have what was announced long ago announced again in the next round, and all of it if the broker is empty."""
        now = self._ambient.monotonic()
        if not self._announced.size or now < self._stood_at + STANDING_SECONDS:
            return
        standing = await self._broker.standing()
        self._stood_at = now
        if not standing.unread and not standing.pending:
            self._stale_before = now
            return
        waits = standing.unread_seconds if self._tuning.stands_down else 0.0
        if waits < 0:  # nobody knows what stands there
            self._tell(Loop.SWEEP)
            return
        self._stale_before = now - waits - self._tuning.sweep_seconds

    async def _pace(self, looked_at: float) -> None:
        left = looked_at + PACE_SECONDS - self._ambient.monotonic()
        if left > 0:
            await self._ambient.sleep(left)

    def _tell(self, loop: Loop, handled: int = 0) -> None:
        self._emit(LoopSucceeded(loop, handled))
