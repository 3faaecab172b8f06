"""The queue: claim what is due, record what came of it, take back what was dropped.

Owns reading and writing deliveries after the append. Which delivery is worth sending and what an answer means is
decided elsewhere. Invariant: every write after a claim compares the token made at that claim.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import asyncpg
import msgspec

from relay.domain.attempt import AttemptRecord
from relay.domain.breaker import BreakerPolicy, BreakerState, cooldown
from relay.domain.delivery import ClaimedDelivery
from relay.domain.envelope import JournalPosition
from relay.domain.outcome import DeferralReason, classify
from relay.domain.receipt import ReceiptOutcome
from relay.domain.sending import ErrorClass, SendFacts
from relay.store import statements
from relay.store.database import Database
from relay.store.quorum import Numbering, Sight, look

UNNUMBERED = Numbering(timeline=-1, session=-1)
"""That of a claim without anything in it."""

_WRITTEN_BY, _EVENT_AGE = 22, 23  # columns; rows come by the hundred

FIRST_LANE = UUID(int=0)
"""The cursor before all lanes."""

_LEASE_EXPIRED = (
    f"{ErrorClass.LEASE_EXPIRED}: no answer was recorded while its lease lasted; its dispatcher may have died or stood"
    " still, and the endpoint may have got the request"
)
"""What became of an attempt whose lease was reaped, for people."""

UNBOUNDED = 1_000_000
"""A window wider than any lane."""

PROBE_GRACE_SECONDS = 5.0
"""How long after its timeout a probe's outcome may still come before another delivery may probe."""

_PAIRS = msgspec.json.Decoder(tuple[tuple[str, str], ...])


@dataclass(frozen=True, slots=True)
class Claim:
    """What one claim took.

    `resume_after` is where the next one goes on, `FIRST_LANE` when this one saw every lane. `came_around` tells that
    the last of all lanes was passed, `contended` that somebody else was taking from an open lane, so that it is worth
    asking again. `found_closed` are the consumers of lanes that were found closed, and by which gate, each closing
    once; `deferrals` counts the waits that this claim put on record. `doubtful` are endpoints that did not answer last
    time, or not for long. `written_by` are the transactions that made the deliveries owed, the last 32 bits of numbers
    below `before_xid` of this `numbering`; None where the event itself is gone. `event_ages` are the seconds since the
    events' appends, one for each. `left_over` are those of the deliveries asked for that may be asked for again, each
    with its endpoint.
    """

    deliveries: tuple[ClaimedDelivery, ...]
    resume_after: UUID
    came_around: bool
    contended: bool = False
    found_closed: tuple[tuple[str, DeferralReason], ...] = ()
    doubtful: frozenset[UUID] = frozenset()
    deferrals: int = 0
    written_by: tuple[int | None, ...] = ()
    event_ages: tuple[float, ...] = ()
    before_xid: int = 0
    numbering: Numbering = UNNUMBERED
    left_over: Mapping[UUID, UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much of each lane this process may take: no more than `windows` has for it, less what is `busy`.

    The three go together, lane by lane; a lane that is not named has `others` as its window. `doubtful` bounds what all
    lanes give together whose last send failed. `stuck` are lanes that have been full for so long that what waits in
    them is to be told why.
    """

    lanes: Sequence[UUID] = ()
    busy: Sequence[int] = ()
    windows: Sequence[int] = ()
    others: int = UNBOUNDED
    doubtful: int = UNBOUNDED
    stuck: Sequence[UUID] = ()


EVERYTHING = Allowance()
"""That of a process that has nothing under way."""


@dataclass(frozen=True, slots=True)
class Gates:
    """What a queue must know of its lanes' gates: the breaker's policy (None: no breaker), and the seconds that a probe
    may take where its endpoint has no timeout of its own."""

    breaker: BreakerPolicy | None = field(default_factory=BreakerPolicy)
    timeout_seconds: float = 10.0


DEFAULT_GATES = Gates()


@dataclass(frozen=True, slots=True)
class LaneMove:
    """A lane whose breaker moved: to which state, after how many openings in a row, and for how long it is open."""

    endpoint_id: UUID
    state: BreakerState
    trips: int
    cooldown_seconds: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a batch of outcomes did: which attempts were refused as stale, which receipts closed and how, which
    breakers moved, and which lanes were shut: by their breaker, by a hold (with those of the same credential) or for
    good. What an explicit ack had moved meanwhile was neither moved nor lost."""

    lost: frozenset[tuple[UUID, UUID]]
    closed: Mapping[UUID, ReceiptOutcome]
    breakers: tuple[LaneMove, ...] = ()
    acked_meanwhile: frozenset[tuple[UUID, UUID]] = frozenset()
    shut: frozenset[UUID] = frozenset()


class Queue:
    """The queue of one database. Claims may go over a pool with lazy commits, records never."""

    def __init__(self, claims: Database, records: Database, gates: Gates = DEFAULT_GATES) -> None:
        self._claims = claims
        self._records = records
        self._gates = gates

    async def claim_due(
        self,
        *,
        after: UUID,
        batch: int,
        token: UUID,
        lease_seconds: float,
        allowance: Allowance = EVERYTHING,
        narrow: bool = False,
        announced: Sequence[UUID] | None = None,
    ) -> Claim:
        """Lease at most `batch` (at least 1) due deliveries, lanes in rotation after `after` and around the end.

        What a lane gives is bounded by its gates, and by what this process may take of it. A `narrow` claim passes over
        no row that was taken before, so it costs the same where those cannot be cleaned away; it may miss what came
        into the queue late, and sees fewer lanes where many endpoints have nothing to get.

        Of the deliveries that are `announced`, if any list of them is given, no other is claimed: whichever of them is
        due, as far as its lane gives anything now, and no more than the lane's share of the batch.
        """
        async with self._claims.connection() as connection:
            session = connection.get_server_pid()
            rows = await connection.fetch(
                statements.text("claim_due"),
                after,
                batch,
                token,
                lease_seconds,
                allowance.lanes,
                allowance.busy,
                allowance.windows,
                allowance.others,
                allowance.doubtful,
                allowance.stuck,
                self._gates.breaker is not None,
                self._gates.timeout_seconds,
                PROBE_GRACE_SECONDS,
                narrow,
                announced,
            )
        return _claim(rows, token, session)

    async def record(self, attempts: Sequence[AttemptRecord]) -> Recorded:
        """Write attempts, move their deliveries, progress their receipts and teach their lanes, in one transaction.

        Idempotent: an attempt that was written before, by a call whose answer never came, adds nothing, and is reported
        by what it did then. An attempt whose lease was lost is kept as a record and reported in `lost`. An endpoint is
        disabled, or its lane held, with all those that share its credential, as the attempts' notices say.
        """
        policy = self._gates.breaker
        async with self._records.connection() as connection:
            rows = await connection.fetch(
                statements.text("record_outcomes"),
                *_columns(attempts),
                None if policy is None else policy.threshold,
                None if policy is None else policy.cooldown_seconds,
                None if policy is None else policy.max_cooldown_seconds,
            )
        moves = [row for row in rows if row[0] is None]
        moved = {(row[0], row[1]) for row in rows if row[2]}
        settled = frozenset((row[0], row[1]) for row in rows if row[2] is None)
        outcomes = {row[0]: ReceiptOutcome(row[3]) for row in rows if row[2] and row[3] is not None}
        return Recorded(
            lost=frozenset((a.delivery_id, a.lease_token) for a in attempts) - moved - settled,
            closed={a.receipt_id: outcomes[a.delivery_id] for a in attempts if a.delivery_id in outcomes},
            acked_meanwhile=settled,
            breakers=tuple(self._move(row) for row in moves if row["breaker"]),
            shut=frozenset(row["lane"] for row in moves if row["breaker"] in (None, BreakerState.OPEN)),
        )

    def _move(self, row: asyncpg.Record) -> LaneMove:
        policy, state = self._gates.breaker, BreakerState(row["breaker"])
        seconds = 0.0 if policy is None or state is not BreakerState.OPEN else cooldown(policy, row["trips"])
        return LaneMove(row["lane"], state, row["trips"], seconds)

    async def changed_since(self, revisions: Mapping[UUID, int]) -> set[UUID]:
        """Which of these endpoints have been changed since the revision that is named for each."""
        async with self._records.connection() as connection:
            rows = await connection.fetch(statements.text("changed_since"), list(revisions), list(revisions.values()))
        return {row[0] for row in rows}

    async def hand_back(self, leases: Sequence[tuple[UUID, UUID]], *, delay_seconds: float = 0.0) -> int:
        """Give unsent deliveries (id, token) back, their attempts uncounted; answers how many were still ours."""
        async with self._records.connection() as connection:
            rows = await connection.fetch(
                statements.text("hand_back"),
                [delivery for delivery, _ in leases],
                [token for _, token in leases],
                delay_seconds,
            )
        return len(rows)

    async def still_held(self, leases: Sequence[tuple[UUID, UUID]]) -> set[UUID]:
        """Which of these deliveries (id, token) still bear their token, seen behind whatever is being done to them."""
        async with self._claims.transaction() as connection:
            rows = await connection.fetch(
                statements.text("lock_held"), [delivery for delivery, _ in leases], [token for _, token in leases]
            )
        return {row[0] for row in rows}

    async def look(self, log_to: int | None = None) -> Sight:
        """Who has the log on disk up to a place, or up to what is on the server's own disk now."""
        async with self._claims.connection() as connection:
            return await look(connection, log_to)

    async def close_breakers(self) -> None:
        """Where there is no breaker, close those that are open on record."""
        if self._gates.breaker is None:
            async with self._records.connection() as connection:
                await connection.execute(statements.text("close_breakers"))

    async def reap(self, *, batch: int, on_record: bool = True) -> int:
        """Put deliveries whose lease has expired back into the queue, at most `batch`; answers how many.

        Their attempts are written down as ended by the lease; with `on_record` False they only stay counted, which is
        for when the database refuses the records (`StoreRefused`). What its worker still records comes beside it.
        """
        facts = SendFacts(error_class=ErrorClass.LEASE_EXPIRED)
        async with self._records.connection() as connection:
            rows = await connection.fetch(
                statements.text("reap_expired"), batch, classify(facts), facts.error_class, _LEASE_EXPIRED, on_record
            )
        return len(rows)

    async def bury_removed(self, *, batch: int) -> Mapping[str, int]:
        """Dead-letter what is pending for removed endpoints, at most `batch`; answers how many by consumer."""
        async with self._records.connection() as connection:
            return Counter(row[0] for row in await connection.fetch(statements.text("bury_removed"), batch))

    async def strangers(self, deliveries: Sequence[UUID]) -> list[UUID]:
        """Those of these that this database knows nothing of."""
        async with self._claims.connection() as connection:
            return [row[0] for row in await connection.fetch(statements.text("strangers"), deliveries)]

    async def seconds_to_next_due(self, allowance: Allowance = EVERYTHING) -> float | None:
        """Seconds until the earliest lane has something to claim (negative: it has by now), None if none ever will.

        `allowance` is what `claim_due` takes: a lane that is full here is left out, since time alone does not open it.
        A gate that time opens is waited for, and a probe that is under way looked after soon. So a claimer that found
        nothing can wait this long, and asks again at once only if something came due meanwhile.

        Only the first 512 lanes are looked at. A delivery behind them that comes due unannounced (a retry, a held lane)
        waits for the poll and for the rotation: at the most `RELAY_POLL_SECS` and two times around the lanes, which is
        10 ms for each 512 of them that have something pending. With the default poll and 10,000 such lanes it is 1.4 s.
        Looking at all of them here would cost up to 80 ms in each rest, to win a second in the worst case.
        """
        async with self._claims.connection() as connection:
            seconds: float | None = await connection.fetchval(
                statements.text("next_due"),
                allowance.lanes,
                allowance.busy,
                allowance.windows,
                allowance.others,
                self._gates.breaker is not None,
                allowance.doubtful,
            )
        return seconds


def _claim(rows: Sequence[asyncpg.Record], token: UUID, session: int) -> Claim:
    first = rows[0]
    seen = Claim(
        deliveries=(),
        resume_after=first["last_endpoint"] or FIRST_LANE,
        came_around=first["came_around"],
        contended=first["contended"],
        found_closed=tuple(
            zip(first["closed_lanes"] or (), map(DeferralReason, first["closed_gates"] or ()), strict=True)
        ),
        doubtful=frozenset(first["doubtful_lanes"] or ()),
        deferrals=first["deferrals"],
        left_over=dict(zip(first["left_over"] or (), first["left_lanes"] or (), strict=True)),
    )
    if first["id"] is None:
        return seen
    return replace(
        seen,
        deliveries=tuple([_claimed(row, token) for row in rows]),
        written_by=tuple([row[_WRITTEN_BY] for row in rows]),
        event_ages=tuple([row[_EVENT_AGE] for row in rows]),
        before_xid=first["before_xid"],
        numbering=Numbering(first["timeline"], session),
    )


def _claimed(row: asyncpg.Record, token: UUID) -> ClaimedDelivery:
    (
        _,
        _,
        delivery,
        receipt,
        endpoint,
        revision,
        with_previous,
        attempts,
        generation,
        generation_attempts,
        generation_age,
        claimed_at,
        event_id,
        event_type,
        received_at,
        partition,
        number,
        content_type,
        payload,
        sha256,
        forwarded,
        hops,
        *_,
    ) = row
    # by place: names would cost four times as much, for each delivery
    return ClaimedDelivery(
        delivery,
        token,
        receipt,
        endpoint,
        revision,
        with_previous,
        attempts,
        generation,
        generation_attempts,
        generation_age,
        claimed_at,
        event_id,
        event_type,
        received_at,
        JournalPosition(partition, number),
        content_type,
        payload,
        sha256,
        _PAIRS.decode(forwarded) if forwarded else (),
        hops,
    )


def _columns(attempts: Sequence[AttemptRecord]) -> tuple[list[object], ...]:
    return (
        [a.delivery_id for a in attempts],
        [a.lease_token for a in attempts],
        [a.receipt_id for a in attempts],
        [a.claimed_at for a in attempts],
        [a.attempt for a in attempts],
        [a.generation for a in attempts],
        [a.outcome_class for a in attempts],
        [a.move for a in attempts],
        [a.delay_seconds for a in attempts],
        [a.dead_reason for a in attempts],
        [a.reason for a in attempts],
        [a.status_code for a in attempts],
        [a.error_class for a in attempts],
        [a.snippet for a in attempts],
        [a.phases.wait_ms for a in attempts],
        [a.phases.connect_ms for a in attempts],
        [a.phases.send_ms for a in attempts],
        [a.phases.first_byte_ms for a in attempts],
        [a.phases.total_ms for a in attempts],
        [a.display_url for a in attempts],
        [a.endpoint_id for a in attempts],
        [None if a.lane is None else a.lane.answered for a in attempts],
        [_hold(a) for a in attempts],
        [_hold_reason(a) for a in attempts],
    )


def _hold(attempt: AttemptRecord) -> float | None:
    """For how many seconds the attempt closes its lane; without end until a person resumes it."""
    lane = attempt.lane
    if lane is None or not (lane.disable or lane.hold_seconds):
        return None
    return math.inf if lane.disable else lane.hold_seconds


def _hold_reason(attempt: AttemptRecord) -> str | None:
    if attempt.lane is None:
        return None
    if attempt.lane.disable:
        answer = "410 Gone" if attempt.status_code == 410 else attempt.reason
        return f"the endpoint answered {answer or 'that it is gone'}"
    return DeferralReason.RETRY_AFTER if attempt.lane.hold_seconds else None
