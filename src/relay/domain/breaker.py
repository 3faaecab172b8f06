"""The circuit breaker of a lane: does the endpoint answer at all?

Owns one transition table and its arithmetic; the state is kept in the database, whose statements do the same sums.
Instants are seconds on one clock, the database's. Invariants: after a cooldown exactly one send probes, and a lapsed
probe is replaced by exactly one; while the breaker is half open only that probe's outcome moves it; the outcome of a
send that began before the breaker opened counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from relay.domain.backoff import doubled


class BreakerState(StrEnum):
    """Whether sends pass: all (`closed`), none (`open`), one (`half_open`)."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerMove(StrEnum):
    """What moves a breaker."""

    RESET = "reset"
    """An answer came: the row of failures is over."""
    COUNT = "count"
    """A failure, and not yet enough of them."""
    TRIP = "trip"
    """The failure that makes the row long enough."""
    PROBE = "probe"
    """The cooldown is over, or the last probe's deadline has passed: one send may try."""
    RECOVER = "recover"
    """The probe was answered."""
    RELAPSE = "relapse"
    """The probe failed: the next cooldown is twice as long."""
    RELEASE = "release"
    """The probe came back without having learned anything: the next send may probe at once."""


MOVES: dict[tuple[BreakerState, BreakerMove], BreakerState] = {
    (BreakerState.CLOSED, BreakerMove.RESET): BreakerState.CLOSED,
    (BreakerState.CLOSED, BreakerMove.COUNT): BreakerState.CLOSED,
    (BreakerState.CLOSED, BreakerMove.TRIP): BreakerState.OPEN,
    (BreakerState.OPEN, BreakerMove.PROBE): BreakerState.HALF_OPEN,
    (BreakerState.HALF_OPEN, BreakerMove.PROBE): BreakerState.HALF_OPEN,
    (BreakerState.HALF_OPEN, BreakerMove.RECOVER): BreakerState.CLOSED,
    (BreakerState.HALF_OPEN, BreakerMove.RELAPSE): BreakerState.OPEN,
    (BreakerState.HALF_OPEN, BreakerMove.RELEASE): BreakerState.OPEN,
}


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """How many failures in a row open a breaker, and for how many seconds: doubled per trip up to the longest."""

    threshold: int = 5
    cooldown_seconds: float = 30.0
    max_cooldown_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Breaker:
    """A breaker's state.

    `failures` counts the failures in a row while closed, `trips` the openings since it was last closed. `opened_at` is
    the latest opening. `until` is the end of the cooldown while open, and the probe's deadline while half open; `probe`
    is the lease token of the send that probes.
    """

    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    trips: int = 0
    opened_at: float = float("-inf")
    until: float = float("-inf")
    probe: UUID | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """What a send tells the breaker: its lease token, when it was claimed, and whether the endpoint answered.

    `answered` is None where nothing was learned: this machine's own trouble, a refused address, a hand-back.
    """

    token: UUID
    began_at: float
    answered: bool | None


def cooldown(policy: BreakerPolicy, trips: int) -> float:
    """Seconds for which the `trips`-th opening in a row (from 1) lasts: 30, 60, 120, 240, 300, 300, …"""
    return doubled(policy.cooldown_seconds, trips - 1, policy.max_cooldown_seconds)


def may_probe(breaker: Breaker, now: float) -> bool:
    """Whether a send may become the probe: not closed, and the cooldown or the last probe's deadline has passed."""
    return breaker.state is not BreakerState.CLOSED and now >= breaker.until


def grant_probe(breaker: Breaker, token: UUID, now: float, deadline_seconds: float) -> Breaker | None:
    """Make the send with this lease token the probe, or None where none is to be had.

    The deadline is there because a probe may never report: an endpoint that accepts and never answers, or a process
    that dies, must not keep the lane half open. Whoever asks after the deadline gets the next probe.
    """
    if not may_probe(breaker, now):
        return None
    state = MOVES[breaker.state, BreakerMove.PROBE]
    return replace(breaker, state=state, until=now + deadline_seconds, probe=token)


def observe(breaker: Breaker, policy: BreakerPolicy, observed: Observed, now: float) -> Breaker:
    """The breaker after the end of a send; unchanged where that send has no say."""
    move = _move_for(breaker, policy, observed)
    if move is None:
        return breaker
    state = MOVES[breaker.state, move]
    if move is BreakerMove.RELEASE:
        return replace(breaker, state=state, until=now, probe=None)
    if state is BreakerState.OPEN:
        trips = breaker.trips + 1
        return Breaker(state, trips=trips, opened_at=now, until=now + cooldown(policy, trips))
    failures = breaker.failures + 1 if move is BreakerMove.COUNT else 0
    return Breaker(state, failures=failures, opened_at=breaker.opened_at)


def _move_for(breaker: Breaker, policy: BreakerPolicy, observed: Observed) -> BreakerMove | None:
    """Which move this outcome is, if any."""
    if breaker.state is BreakerState.HALF_OPEN and observed.token == breaker.probe:
        if observed.answered is None:
            return BreakerMove.RELEASE
        return BreakerMove.RECOVER if observed.answered else BreakerMove.RELAPSE
    heard = breaker.state is BreakerState.CLOSED and observed.began_at >= breaker.opened_at
    if not heard or observed.answered is None:
        return None
    if observed.answered:
        return BreakerMove.RESET
    return BreakerMove.TRIP if breaker.failures + 1 >= policy.threshold else BreakerMove.COUNT
