"""Lanes, as one process sees them: how much of each is under way here, and how much may be.

Owns the windows. A lane starts with a small window that grows with every answer and shrinks with every failure, as in
TCP's slow start; the endpoint's `max_in_flight` bounds it, and half of the process's permits do. Lanes that did not
answer last time or not for long, or that say nothing, are in doubt, and share half of the permits. Invariant: however
many endpoints hang, the other half is for those that answer.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection
from uuid import UUID

from relay.store.queue import Allowance

FIRST_WINDOW = 4
"""What a lane may have under way before it answers for the first time."""

SILENT_SECONDS = 1.0
"""A lane that has something under way and was not heard of for so long is in doubt."""

STUCK_SECONDS = 0.1
"""What waits in a lane that has been full for so long is told why."""

CLAIM_SECONDS = 60.0
"""More than passes between asking for a claim and launching what it gave, or giving it up."""

IDLE_SECONDS = 1.0
IDLE_LANES = 512
"""How long, and for how many lanes, a window is remembered while nothing is under way."""


class Lane:
    """One endpoint's part in this process.

    `heard_at` is when a send last ended, or when what is under way began; `full_since` is None while its window has
    room. `limited` tells whether the window was full when the last permit was taken: one that is not used does not
    grow. `peak` is the most that was under way at once.
    """

    __slots__ = ("doubtful", "endpoint", "full_since", "heard_at", "in_flight", "limited", "peak", "window")

    def __init__(self, endpoint: UUID) -> None:
        self.endpoint = endpoint
        self.in_flight = self.peak = 0
        self.window = FIRST_WINDOW
        self.doubtful = False
        self.limited = False
        self.heard_at = 0.0
        self.full_since: float | None = None


class Lanes:
    """The lanes of one process that may have `limit` sends under way. Times are its monotonic seconds."""

    def __init__(self, limit: int) -> None:
        self._for_doubtful = max(1, limit // 2)
        self._widest = max(FIRST_WINDOW, limit // 2)
        self._lanes: dict[UUID, Lane] = {}
        self._idle: OrderedDict[UUID, Lane] = OrderedDict()
        self._shut: set[UUID] = set()
        self._closed_at: dict[UUID, float] = {}

    def enter(self, endpoint: UUID, now: float) -> Lane:
        """Take a permit of this endpoint's lane."""
        lane = self._lanes.get(endpoint)
        if lane is None:
            lane = self._idle.pop(endpoint) if endpoint in self._idle else Lane(endpoint)
            lane.heard_at = now
            self._lanes[endpoint] = lane
        lane.in_flight += 1
        lane.peak = max(lane.peak, lane.in_flight)
        lane.limited = lane.in_flight >= lane.window
        if lane.limited and lane.full_since is None:
            lane.full_since = now
        return lane

    def leave(self, lane: Lane) -> None:
        """Return a permit."""
        lane.in_flight -= 1
        lane.full_since = None
        if not lane.in_flight:
            del self._lanes[lane.endpoint]
            self._idle[lane.endpoint] = lane
            if len(self._idle) > IDLE_LANES:
                self._idle.popitem(last=False)

    def doubt(self, endpoints: Collection[UUID]) -> None:
        """These did not answer last time, here or elsewhere, or not for long: one at a time, until they do."""
        for endpoint in endpoints:
            if (lane := self._lanes.get(endpoint)) is not None and not lane.doubtful:
                lane.doubtful = lane.limited = True
                lane.window = 1

    def answered(self, lane: Lane, now: float, *, in_order: bool = True) -> None:
        """The endpoint has just answered, whatever it said. A window that was in use grows, unless the answer had to be
        cut off."""
        lane.doubtful = False
        lane.heard_at = now
        if in_order and lane.limited and lane.window < self._widest:
            lane.window += 1

    def throttled(self, lane: Lane, now: float) -> None:
        """The endpoint wants to be left alone for a while, and is asked by one request then."""
        lane.doubtful = True
        lane.heard_at = now
        lane.window = 1

    def failed(self, lane: Lane, now: float) -> None:
        """The endpoint has not answered; it is remembered from now on."""
        lane.doubtful = True
        lane.heard_at = now
        lane.window = max(1, lane.window // 2)

    def shut(self, endpoint: UUID) -> None:
        """Take nothing from this lane until `reopen`."""
        self._shut.add(endpoint)

    def reopen(self, endpoint: UUID) -> None:
        """The database keeps the lane closed itself from now on."""
        self._shut.discard(endpoint)

    def close(self, endpoints: Collection[UUID], now: float) -> None:
        """The database has closed these lanes by now: what was claimed before is not to be sent."""
        if endpoints:
            recent = {each: at for each, at in self._closed_at.items() if now - at < CLAIM_SECONDS}
            self._closed_at = {**recent, **dict.fromkeys(endpoints, now)}

    def is_closed_since(self, endpoint: UUID, asked_at: float) -> bool:
        """Whether this lane was closed after a claim was asked for."""
        return bool(self._closed_at) and self._closed_at.get(endpoint, -math.inf) >= asked_at

    def is_shut(self, endpoint: UUID) -> bool:
        """Whether an answer has closed this lane and the database may not know of it yet."""
        return endpoint in self._shut

    def has_room(self, endpoint: UUID) -> bool:
        """Whether this lane may have more under way here."""
        lane = self._lanes.get(endpoint)
        return endpoint not in self._shut and (lane is None or lane.in_flight < lane.window)

    def reach(self, endpoint: UUID) -> int:
        """What this lane has under way here when it is full: its window, or less where the endpoint allows less."""
        lane = self._lanes.get(endpoint) or self._idle.get(endpoint)
        return FIRST_WINDOW if lane is None else min(lane.window, lane.peak)

    def allowance(self, now: float) -> Allowance:
        """What may be claimed now."""
        self._forget_idle(now)
        lanes = [each for each in (*self._lanes.values(), *self._idle.values()) if each.endpoint not in self._shut]
        in_doubt = sum(each.in_flight for each in lanes if each.doubtful or _is_silent(each, now))
        left = max(0, self._for_doubtful - in_doubt)
        shut_out = [0] * len(self._shut)
        return Allowance(
            lanes=[*(each.endpoint for each in lanes), *self._shut],
            busy=[*(each.in_flight for each in lanes), *shut_out],
            windows=[*(_window(each, now, left) for each in lanes), *shut_out],
            others=FIRST_WINDOW,
            doubtful=left,
            stuck=[each.endpoint for each in lanes if _is_stuck(each, now)],
        )

    def _forget_idle(self, now: float) -> None:
        while self._idle and now - next(iter(self._idle.values())).heard_at >= IDLE_SECONDS:
            self._idle.popitem(last=False)


def _window(lane: Lane, now: float, left: int) -> int:
    """What the lane may have under way. One in doubt keeps what it has: more would wait behind that."""
    if _is_silent(lane, now) or (lane.doubtful and not left):
        return min(lane.window, lane.in_flight)
    return lane.window


def _is_silent(lane: Lane, now: float) -> bool:
    return lane.in_flight > 0 and now - lane.heard_at >= SILENT_SECONDS


def _is_stuck(lane: Lane, now: float) -> bool:
    return lane.full_since is not None and now - lane.full_since >= STUCK_SECONDS
