"""Flights: the deliveries that this process holds, from the claim to the answer, and the permits they take.

Owns the counting. A flight takes a permit of its lane when it boards and one of the process's sends when it is
launched; `land` returns both, whatever became of it. How many permits a lane has is `lanes`' question. Invariant: the
counts are those of the flights that are held, since nothing else changes them and landing twice changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from uuid import UUID

from relay.dispatcher.directory import Address
from relay.dispatcher.lanes import Lane, Lanes
from relay.domain.delivery import ClaimedDelivery


class Flight:
    """One claimed delivery on its way to its address.

    `asked_at` and `claimed_at`, between which the claim was made, and `lease_ends_at` are this process's monotonic
    seconds; a lease of `lease_seconds` ends that long after it was asked for, or later. `launched_at` is None until the
    sender has it; `trace_entropy` is empty as long.
    """

    __slots__ = (
        "address",
        "asked_at",
        "claimed",
        "claimed_at",
        "landed",
        "lane",
        "launched_at",
        "lease_ends_at",
        "trace_entropy",
    )

    def __init__(
        self, claimed: ClaimedDelivery, address: Address, *, asked_at: float, claimed_at: float, lease_seconds: float
    ) -> None:
        self.claimed = claimed
        self.address = address
        self.asked_at = asked_at
        self.claimed_at = claimed_at
        self.lease_ends_at = asked_at + lease_seconds
        self.launched_at: float | None = None
        self.landed = False
        self.lane: Lane | None = None
        self.trace_entropy = b""

    def __str__(self) -> str:
        return f"delivery {self.claimed.id}"

    @property
    def lease(self) -> tuple[UUID, UUID]:
        """The delivery's id and the token of the claim that this flight belongs to."""
        return self.claimed.id, self.claimed.lease_token


class Flights:
    """All flights of one process: those waiting to be launched and those with the sender.

    `limit` is how many may be with the sender at once, `ahead` how many more may be claimed and wait.
    """

    def __init__(self, *, limit: int, ahead: int) -> None:
        self._limit = limit
        self._ahead = ahead
        self._waiting: deque[Flight] = deque()
        self._launched: set[Flight] = set()
        self.landings = 0
        """How many flights have given their permits back."""
        self.lanes = Lanes(limit)

    @property
    def launched(self) -> int:
        """How many flights are with the sender."""
        return len(self._launched)

    @property
    def held(self) -> int:
        """How many flights there are in all."""
        return len(self._launched) + len(self._waiting)

    @property
    def room(self) -> int:
        """How many more may be claimed."""
        return self._limit + self._ahead - self.held

    def board(self, flights: Iterable[Flight], now: float) -> None:
        """Take claimed deliveries in; each takes a permit of its lane."""
        for flight in flights:
            flight.lane = self.lanes.enter(flight.claimed.endpoint_id, now)
            self._waiting.append(flight)

    def ready(self) -> list[Flight]:
        """Take out those that may be launched now, in the order they boarded. Each must be launched or landed."""
        number = min(len(self._waiting), self._limit - len(self._launched))
        return [self._waiting.popleft() for _ in range(number)]

    def launch(self, flight: Flight, now: float) -> None:
        """The sender has it from now on; it holds one of the process's permits."""
        flight.launched_at = now
        self._launched.add(flight)

    def land(self, flight: Flight) -> None:
        """Return every permit that the flight holds."""
        if flight.landed:
            return
        flight.landed = True
        self.landings += 1
        self._launched.discard(flight)
        if flight.lane is not None:
            self.lanes.leave(flight.lane)

    def ground(self, endpoints: Collection[UUID] | None = None) -> list[Flight]:
        """Land everything that was not launched yet, to these endpoints or at all, and answer it."""
        grounded = [each for each in self._waiting if endpoints is None or each.claimed.endpoint_id in endpoints]
        self._waiting = deque(
            each for each in self._waiting if endpoints is not None and each.claimed.endpoint_id not in endpoints
        )
        for flight in grounded:
            self.land(flight)
        return grounded
