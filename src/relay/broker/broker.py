"""What a dispatcher asks of a broker, whatever carries the ids.

Owns the Protocol and the values that cross it. `tests/broker/conformance.py` says the same in tests, which every
transport passes, the one in memory (`tests/support`) included.

How a transport behaves, in one place:

- Every announcement is read by one consumer of the fleet, which then holds it (it is *pending*) until it acknowledges
  it; what is held for long by a consumer that is gone is taken over with `reclaim`. Nothing is promised beyond that: an
  announcement may come twice, late, or never. The claim in PostgreSQL makes of the first two one delivery, the sweep of
  the third.
- Every call ends within its bound: `wait_seconds` for `receive`, and a few seconds for the answer, whatever the network
  or the server do. Cancelling a call is safe; what it was about may or may not have happened.
- Each call may raise `BrokerUnavailable`. The object stays good: the next call tries again by itself, on a fresh
  connection. Nothing is waited for in between, so whoever calls in a loop paces it.
- A server that came back empty (restart, FLUSHALL, eviction, failover to one that had nothing) is no fault: the call
  that finds out makes the group anew, from the first entry on, says so once with `BrokerEmptied`, and answers as from
  an empty broker. What was announced and is gone comes again by the sweep.
- What is in the stream and was not written by Relay, or cannot be read, is removed and told of with
  `BrokerEntriesDropped`; it is never handed out and never an error.
- Calls may be made from several tasks at once; a `receive` that waits holds up no other call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

MESSAGE_DELIVERIES = 50
"""How many ids one message carries at most."""

LONGEST_WAIT_SECONDS = 5.0
"""How long a `receive` waits at most: also how long it may take to notice that nobody is there any more."""


@dataclass(frozen=True, slots=True)
class Message:
    """One announcement as a consumer reads it: the transport's own id of it, for `acknowledge`, and 1 to
    `MESSAGE_DELIVERIES` delivery ids in the order in which they were announced."""

    id: str
    deliveries: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """What the broker still holds: messages that no consumer has read yet (0 where there is no group or no stream;
    exact up to 1,000, and that many where there are more), and messages that were read and not acknowledged.

    The oldest of the unread was announced `unread_seconds` ago by the server's clock: negative where that was put back.
    Messages are read in order, so what was announced before that one was read, or is lost.
    """

    unread: int
    pending: int
    unread_seconds: float = field(default=0.0, compare=False)


class BrokerUnavailable(Exception):
    """The broker did not do what it was asked, now: it is away, does not answer, or refuses. The text says which, and
    what to do where that is known; no credential is in it."""


class Broker(Protocol):
    """A transport for ids, as one consumer of the fleet sees it. See the module for what holds of every call."""

    async def announce(self, batches: Sequence[Sequence[UUID]]) -> None:
        """Announce each batch of 1 to `MESSAGE_DELIVERIES` ids as one message, all in one round trip; nothing to
        announce asks nobody. Where it raises, any part of them may have been announced."""
        ...

    async def receive(self, *, count: int, wait_seconds: float) -> Sequence[Message]:
        """Up to `count` messages that nobody has read, oldest first, as soon as there is one; empty after
        `wait_seconds` without any, which is no fault. 0 does not wait, and more than `LONGEST_WAIT_SECONDS` is that."""
        ...

    async def reclaim(self, *, idle_seconds: float, count: int) -> Sequence[Message]:
        """Take over up to `count` messages that were read, by whichever consumer (this one included), and neither
        acknowledged nor taken over for `idle_seconds`. One call looks at a part of what is pending and the next goes on
        behind it; an empty answer means that a part, not that everything, was looked at. Consumers of processes that
        are gone are forgotten on the way, once nothing is pending for them."""
        ...

    async def acknowledge(self, messages: Sequence[str]) -> None:
        """Be done with messages, by their ids: they are pending no more and leave the stream, together. Ids that are
        not known (any more) are passed over."""
        ...

    async def standing(self) -> Standing:
        """What is unread and pending, both at one moment."""
        ...

    async def close(self) -> None:
        """Be a consumer no more. What is pending for it stays so, for another to reclaim. Never raises, ends within a
        few seconds, and may be called again; no other call may follow."""
        ...
