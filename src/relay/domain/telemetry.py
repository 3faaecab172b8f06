"""What happens in Relay, as values: the one vocabulary behind logs, metrics, the console and the tests.

Owns the closed union `Happening`. Loops emit, listeners make numbers and lines of it; nothing is formatted here.
Invariant: whatever becomes a label is a member of a closed enum or a consumer's name; ids and addresses are for lines
only, and no happening holds a credential.

What happens per delivery is told per batch: one `AttemptsRecorded` for everything that one transaction wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import get_args
from uuid import UUID

from relay.domain.attempt import AckFact, AttemptFact
from relay.domain.breaker import BreakerState
from relay.domain.delivery import DeadReason
from relay.domain.failure import FailureReason
from relay.domain.housekeeping import BrokerStrangersFound, DaysDropped, EventsPruned, QueueMeasured, ReportingEnded
from relay.domain.outcome import DeferralReason, HandBackReason, OutcomeClass
from relay.domain.receipt import ReceiptOutcome
from relay.domain.trace import ServedTrace


class RejectReason(StrEnum):
    """Why the gateway refused a request."""

    CREDENTIAL = "credential"
    SIGNATURE = "signature"
    SCOPE = "scope"
    SIZE = "size"
    CONTENT_TYPE = "content_type"
    MALFORMED = "malformed"
    SCHEMA = "schema"
    IDEMPOTENCY = "idempotency"
    LOOP = "loop"


class Loop(StrEnum):
    """The loops that a supervisor keeps running."""

    CLAIMER = "claimer"
    WAKEUPS = "wakeups"
    RECORDER = "recorder"
    REAPER = "reaper"
    RECONCILER = "reconciler"
    PRUNER = "pruner"
    MAINTAINER = "maintainer"
    HEARTBEAT = "heartbeat"
    REPORTER = "reporter"
    PUBLISHER = "publisher"
    SWEEP = "sweep"


class Process(StrEnum):
    """What a process does."""

    GATEWAY = "gateway"
    DISPATCHER = "dispatcher"


# The gateway.


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """A request was refused before anything was stored."""

    reason: RejectReason


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A request, or one event of a batch, was turned away for a fault that is not its sender's."""

    reason: FailureReason


@dataclass(frozen=True, slots=True)
class RequestServed:
    """An ingest request was answered, whatever the answer, `seconds` after it arrived. `trace` is for spans alone."""

    seconds: float
    trace: ServedTrace | None = None


@dataclass(frozen=True, slots=True)
class EventsAccepted:
    """So many new events of one request are durable and owed as so many deliveries; `unrouted` matched no rule."""

    count: int
    deliveries: int
    unrouted: int = 0


@dataclass(frozen=True, slots=True)
class IdempotentReplay:
    """A request repeated an earlier one and got that one's answer."""


@dataclass(frozen=True, slots=True)
class AppendCommitted:
    """One append is on the quorum. `seconds`, one for each event: from its acceptance to that proof."""

    events: int
    deliveries: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class QuorumFailed:
    """An append of so many events was not proved in time, or was refused because an earlier one still is not."""

    events: int


@dataclass(frozen=True, slots=True)
class JournalCouldNotWrite:
    """An append was refused by a database that answers and cannot write: its disk is full, or it is a standby."""


@dataclass(frozen=True, slots=True)
class QuorumLost:
    """From now on nothing is accepted, because the quorum does not confirm the journal; `why` in words."""

    why: str


@dataclass(frozen=True, slots=True)
class QuorumRegained:
    """The quorum confirms the journal again, after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class DurabilityKnown:
    """How many of how many copies a 202 waits for from now on."""

    confirmed: int
    of: int


# The dispatcher's hot path.


@dataclass(frozen=True, slots=True)
class DeliveriesClaimed:
    """A claim took so many deliveries from so many lanes, in `seconds`."""

    count: int
    lanes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class AttemptsRecorded:
    """One transaction recorded these attempts, in `seconds`. `counts` has every outcome class, zero included."""

    attempts: tuple[AttemptFact, ...]
    counts: dict[OutcomeClass, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class RetriesScheduled:
    """So many deliveries will be tried again."""

    count: int


@dataclass(frozen=True, slots=True)
class LaneFoundClosed:
    """A gate keeps what is due in a lane waiting; told once for each time that it closed."""

    consumer: str
    reason: DeferralReason


@dataclass(frozen=True, slots=True)
class DeferralsRecorded:
    """So many waits behind a gate have ended and are on record, as attempts of the class `deferred`."""

    count: int


@dataclass(frozen=True, slots=True)
class DeliveriesHandedBack:
    """So many claimed deliveries went back to their lanes unsent, their attempts unspent."""

    count: int
    reason: HandBackReason
    delivery_ids: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class SendsFailedHere:
    """So many deliveries could not be sent since this was last told, for trouble of this machine; the latest was for
    `consumer`, and `detail` says what it came to."""

    count: int
    consumer: str
    detail: str
    delivery_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class DeliveryMetBug:
    """A bug kept one delivery from being sent, or its outcome from being judged or recorded; it goes back to its lane,
    at once or when its lease has run out."""

    delivery_id: UUID
    consumer: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class PermitsAwaited:
    """The claimer waited `seconds` for room in the process's limit of sends."""

    seconds: float


@dataclass(frozen=True, slots=True)
class InFlightChanged:
    """So many sends are under way in this process."""

    count: int


@dataclass(frozen=True, slots=True)
class ClockCompared:
    """This machine's clock is so many seconds ahead of the database's (behind: negative), or agrees with it (0)."""

    ahead_seconds: float


@dataclass(frozen=True, slots=True)
class LeasesLost:
    """So many outcomes came after their lease had gone to somebody else: recorded as attempts, without effect."""

    count: int
    delivery_ids: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class LeasesReaped:
    """So many deliveries were taken from holders whose lease had run out."""

    count: int


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """So many deliveries wait for a person. `consumer` is empty where no rule matched; `delivery_ids` are named
    where no attempt's line names them."""

    consumer: str
    reason: DeadReason
    count: int = 1
    delivery_ids: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class ReceiptsClosed:
    """So many receipts closed."""

    outcome: ReceiptOutcome
    count: int


@dataclass(frozen=True, slots=True)
class DeliveriesAcked:
    """Deliveries were acked by calls of their own."""

    acks: Sequence[AckFact]


@dataclass(frozen=True, slots=True)
class ReceiptsRedriven:
    """So many receipts were sent again, on demand or by the reconciler."""

    count: int


# Lanes.


@dataclass(frozen=True, slots=True)
class BreakerMoved:
    """A lane's breaker changed its state; `trips` openings since it was last closed, the latest for `seconds`."""

    consumer: str
    state: BreakerState
    trips: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LaneHeld:
    """An endpoint asked to be left alone for `seconds`, with a 429."""

    consumer: str
    seconds: float


@dataclass(frozen=True, slots=True)
class EndpointDisabled:
    """An endpoint answered that it is gone, as `reason` says; its deliveries are held until a person resumes it."""

    consumer: str
    reason: str


@dataclass(frozen=True, slots=True)
class BrokerModeChanged:
    """Deliveries are announced through the broker (`active`), or the dispatcher polls instead, and why."""

    active: bool
    reason: str


@dataclass(frozen=True, slots=True)
class BrokerEmptied:
    """The broker had lost what it held, by a restart, a flush, an eviction or a failover, and was set up anew. What it
    held is announced again."""


@dataclass(frozen=True, slots=True)
class BrokerEntriesDropped:
    """So many entries of the broker's stream were removed unread: Relay did not write them, or they were torn."""

    count: int


# Loops and processes.


@dataclass(frozen=True, slots=True)
class LoopStarted:
    """A loop runs."""

    loop: Loop


@dataclass(frozen=True, slots=True)
class LoopSucceeded:
    """A loop finished a round, having dealt with so many rows. Not `whole` where a part of its work is still held up:
    the loop is alive, but what was told of that is not over."""

    loop: Loop
    handled: int = 0
    whole: bool = True


@dataclass(frozen=True, slots=True)
class LoopHeldUp:
    """A loop cannot go on for a fault of the world, such as a database that is away, and tries again in
    `restart_seconds`. Told at each try; `reason` is for lines, never a label."""

    loop: Loop
    reason: str
    restart_seconds: float


@dataclass(frozen=True, slots=True)
class LoopCrashed:
    """A loop ended by a bug and starts again in `restart_seconds`. The error's text is for lines, never a label."""

    loop: Loop
    error: BaseException
    restart_seconds: float


@dataclass(frozen=True, slots=True)
class LoopStopped:
    """A loop came to its end because its process stops."""

    loop: Loop


@dataclass(frozen=True, slots=True)
class LogLinesDropped:
    """So many log lines were not written, since whoever reads the log takes none, or its disk is full."""

    count: int


@dataclass(frozen=True, slots=True)
class SpansDropped:
    """So many spans were dropped, since the collector took none, or not so many."""

    count: int


@dataclass(frozen=True, slots=True)
class ProcessStarted:
    """A process is ready to work; `address` is what it listens on."""

    process: Process
    address: str


@dataclass(frozen=True, slots=True)
class ProcessDraining:
    """A process takes nothing new and finishes what it has."""

    process: Process


@dataclass(frozen=True, slots=True)
class ProcessStopped:
    """A process has nothing left to do; `abandoned` counts what it did not finish in time."""

    process: Process
    abandoned: int = 0


Happening = (
    RequestRefused
    | RequestFailed
    | RequestServed
    | EventsAccepted
    | IdempotentReplay
    | AppendCommitted
    | QuorumFailed
    | JournalCouldNotWrite
    | QuorumLost
    | QuorumRegained
    | DurabilityKnown
    | DeliveriesClaimed
    | AttemptsRecorded
    | RetriesScheduled
    | LaneFoundClosed
    | DeferralsRecorded
    | DeliveriesHandedBack
    | SendsFailedHere
    | DeliveryMetBug
    | PermitsAwaited
    | InFlightChanged
    | ClockCompared
    | LeasesLost
    | LeasesReaped
    | DeadLettered
    | DeliveriesAcked
    | ReceiptsClosed
    | ReceiptsRedriven
    | BreakerMoved
    | LaneHeld
    | EndpointDisabled
    | QueueMeasured
    | ReportingEnded
    | BrokerModeChanged
    | BrokerEmptied
    | BrokerEntriesDropped
    | BrokerStrangersFound
    | DaysDropped
    | EventsPruned
    | LoopStarted
    | LoopSucceeded
    | LoopHeldUp
    | LoopCrashed
    | LoopStopped
    | LogLinesDropped
    | SpansDropped
    | ProcessStarted
    | ProcessDraining
    | ProcessStopped
)

KINDS: tuple[type[Happening], ...] = get_args(Happening)
"""Every kind of happening, for listeners that keep a table of them and tests that it is complete."""

Listener = Callable[[Happening], None]
"""Is told what happens, at once and in order. It must neither wait nor raise: it runs inside whoever emits."""


_OUTCOME_CLASS = attrgetter("outcome_class")


def attempts_recorded(attempts: Iterable[AttemptFact], seconds: float) -> AttemptsRecorded:
    """Tell of a batch of attempts, counted by class."""
    told = tuple(attempts)
    classes = list(map(_OUTCOME_CLASS, told))
    return AttemptsRecorded(told, {each: classes.count(each) for each in OutcomeClass}, seconds)


NAMES = {kind: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower() for kind in KINDS}
"""The name of each kind in log lines: `leases_reaped` for `LeasesReaped`."""


def name_of(happening: Happening) -> str:
    """The name of its kind in log lines."""
    return NAMES[type(happening)]
