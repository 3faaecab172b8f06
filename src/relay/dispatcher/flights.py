"""Flights: the deliveries that this process holds, from the claim to the answer, and the permits they take.

Owns the counting. A flight takes a permit of its lane when it boards and one of the process's sends when it is
launched; `land` returns both, whatever became of it. A lane that an answer has just closed is kept shut here until the
database knows of it. Invariant: the counts are those of the flights that are held,
since nothing else changes them and landing twice changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from uuid import UUID

from relay.dispatcher.directory import Address
from relay.domain.delivery import ClaimedDelivery

FULL = 1_000_000
"""More flights than any lane may have."""


class Flight:
    """One claimed delivery on its way to its address.

    `claimed_at` and `lease_ends_at` are this process's monotonic seconds; the lease's end is early by the claim's own
    duration, since it began no sooner than the claim was asked for. `launched_at` is None until the sender has it.
    """

    __slots__ = ("address", "claimed", "claimed_at", "landed", "launched_at", "lease_ends_at")

    def __init__(self, claimed: ClaimedDelivery, address: Address, claimed_at: float, lease_ends_at: float) -> None:
        self.claimed = claimed
        self.address = address
        self.claimed_at = claimed_at
        self.lease_ends_at = lease_ends_at
        self.launched_at: float | None = None
        self.landed = False

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
        self._by_endpoint: dict[UUID, int] = {}
        self._shut: set[UUID] = set()

    @property
    def busy(self) -> dict[UUID, int]:
        """How many flights each lane has, `FULL` for a lane that is shut; lanes with nothing are not named."""
        return {**self._by_endpoint, **dict.fromkeys(self._shut, FULL)}

    def shut(self, endpoint: UUID) -> None:
        """Claim and launch nothing for this lane until `reopen`."""
        self._shut.add(endpoint)

    def reopen(self, endpoint: UUID) -> None:
        """The database holds the lane itself from now on."""
        self._shut.discard(endpoint)

    def is_shut(self, endpoint: UUID) -> bool:
        """Whether an answer has closed this lane and the database may not know of it yet."""
        return endpoint in self._shut

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

    def board(self, flights: Iterable[Flight]) -> None:
        """Take claimed deliveries in; each takes a permit of its lane."""
        for flight in flights:
            self._waiting.append(flight)
            endpoint = flight.claimed.endpoint_id
            self._by_endpoint[endpoint] = self._by_endpoint.get(endpoint, 0) + 1

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
        self._launched.discard(flight)
        endpoint = flight.claimed.endpoint_id
        left = self._by_endpoint[endpoint] - 1
        if left:
            self._by_endpoint[endpoint] = left
        else:
            del self._by_endpoint[endpoint]

    def ground(self) -> list[Flight]:
        """Land everything that was not launched yet, and answer it."""
        grounded = list(self._waiting)
        self._waiting.clear()
        for flight in grounded:
            self.land(flight)
        return grounded
