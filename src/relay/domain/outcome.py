"""What an attempt's facts mean: the one table, and the verdict that follows from it.

Owns the classes, the reasons and the judgement. It does not know how a verdict is written. What a chat platform says
differently, its transport has already put into the common facts. Invariant: every set of facts has exactly one ruling.

| what came | class | reason | the endpoint answered | and then |
|---|---|---|---|---|
| 200–299 | success | accepted | yes | acked, or received where the endpoint acks by a call |
| 408, 425 | retryable | not_ready | yes | retried |
| 429 | retryable | throttled | yes | retried, and the lane is held |
| 500–599 | retryable | server_error | no | retried |
| 410 | permanent | gone | yes | dead letter `permanent_failure`, and the endpoint is disabled |
| 300–399 | permanent | redirected | yes | dead letter `permanent_failure`; redirects are never followed |
| other 400–499 | permanent | rejected | yes | dead letter `permanent_failure` |
| any other status | retryable | odd_status | yes | retried |
| no status: DNS, connection | retryable | unreachable | no | retried |
| no status: TLS, certificate | retryable | tls | no | retried |
| no status: reset, not HTTP | retryable | broken_off | no | retried |
| no status: a timeout | retryable | timed_out | no | retried |
| no status: ended or lost by this side, may have left | retryable | cut_short | nothing learned | retried soon |
| refused by the egress policy | permanent | refused | nothing learned | dead letter `refused` |
| trouble of this machine, nothing left it | deferred | local | nothing learned | handed back, no attempt is spent |
| a chat platform: gone | permanent | gone | yes | dead letter `permanent_failure`, and the endpoint is disabled |
| a chat platform: throttled | retryable | throttled | yes | retried, and the lane is held |
| a chat platform: unproven | retryable | odd_status | yes | retried |

The last three rows stand before the status: what a platform says in its body is what its transport has made of it.
A status stands once its line and headers are in, whatever became of the body: 200 and then a reset is a success. 504 is
a server error although something answered: what the breaker asks is whether the endpoint did. What may have left is an
attempt, and counts as one; but our own cut is no reason to wait, so its next try comes after the shortest delay.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from relay.domain import backoff, retry_after
from relay.domain.backoff import RetryPolicy
from relay.domain.delivery import DeadReason
from relay.domain.endpoint import AckMode
from relay.domain.sending import ErrorClass, Meaning, SendFacts

RETRY_AFTER_CAP_SECONDS = 3600.0
"""The longest wait that an endpoint can ask for; a longer wish counts as this."""

HOLD_CAP_SECONDS = 60.0
"""The longest time that a 429 without a usable `Retry-After` holds a lane, however patient the retry policy."""


class OutcomeClass(StrEnum):
    """What an attempt came to; the same word in the database, the metrics and the console."""

    SUCCESS = "success"
    RETRYABLE = "retryable"
    PERMANENT = "permanent"
    DEFERRED = "deferred"


class OutcomeReason(StrEnum):
    """Why an attempt came to that; finer than its class, coarser than a status code."""

    ACCEPTED = "accepted"
    NOT_READY = "not_ready"
    THROTTLED = "throttled"
    SERVER_ERROR = "server_error"
    GONE = "gone"
    REDIRECTED = "redirected"
    REJECTED = "rejected"
    ODD_STATUS = "odd_status"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    BROKEN_OFF = "broken_off"
    TIMED_OUT = "timed_out"
    CUT_SHORT = "cut_short"
    REFUSED = "refused"
    LOCAL = "local"


class DeferralReason(StrEnum):
    """Which gate of its lane makes a delivery wait, without an attempt."""

    BREAKER = "breaker"
    RATE_LIMIT = "rate_limit"
    ENDPOINT_CONCURRENCY = "endpoint_concurrency"
    RETRY_AFTER = "retry_after"
    PAUSED = "paused"


class HandBackReason(StrEnum):
    """Why a claimed delivery goes back to its lane with its attempt unspent."""

    LOCAL = "local"
    """This machine could not send (no file descriptors, no memory)."""
    GATE = "gate"
    """A gate of the lane closed after the claim."""
    QUORUM = "quorum"
    """The claim could not be proved to be on the quorum in time."""
    LEASE = "lease"
    """What is left of the lease no longer covers the total timeout."""
    DRAINING = "draining"
    """The process stops."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """A row of the table. `answered` is what the breaker wants to know; None where nothing was learned."""

    outcome_class: OutcomeClass
    reason: OutcomeReason
    answered: bool | None


@dataclass(frozen=True, slots=True)
class Acked:
    """The response proves that the endpoint processed the event."""


@dataclass(frozen=True, slots=True)
class Received:
    """The endpoint has the event and will prove by a call of its own that it processed it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again in `delay_seconds` (0 or more)."""

    delay_seconds: float
    reason: OutcomeReason


@dataclass(frozen=True, slots=True)
class Bury:
    """No further attempt: the delivery waits for a person. `reason` is the last attempt's."""

    dead_reason: DeadReason
    reason: OutcomeReason


@dataclass(frozen=True, slots=True)
class HandBack:
    """Nothing was learned: the delivery goes back to its lane and keeps its attempt."""

    reason: HandBackReason


Verdict = Acked | Received | Retry | Bury | HandBack


@dataclass(frozen=True, slots=True)
class LaneNotice:
    """What an attempt tells about its endpoint rather than about its delivery.

    `answered` goes to the breaker; `hold_seconds` closes the lane for that long from now; `disable` holds it until a
    person resumes it.
    """

    answered: bool
    hold_seconds: float = 0.0
    disable: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """What becomes of the delivery, and what its lane learns (None: nothing, which ends a probe without a result)."""

    outcome_class: OutcomeClass
    reason: OutcomeReason
    verdict: Verdict
    lane: LaneNotice | None


_ACCEPTED = Ruling(OutcomeClass.SUCCESS, OutcomeReason.ACCEPTED, answered=True)
_NOT_READY = Ruling(OutcomeClass.RETRYABLE, OutcomeReason.NOT_READY, answered=True)
_THROTTLED = Ruling(OutcomeClass.RETRYABLE, OutcomeReason.THROTTLED, answered=True)
_SERVER_ERROR = Ruling(OutcomeClass.RETRYABLE, OutcomeReason.SERVER_ERROR, answered=False)
_GONE = Ruling(OutcomeClass.PERMANENT, OutcomeReason.GONE, answered=True)
_REDIRECTED = Ruling(OutcomeClass.PERMANENT, OutcomeReason.REDIRECTED, answered=True)
_REJECTED = Ruling(OutcomeClass.PERMANENT, OutcomeReason.REJECTED, answered=True)
_ODD_STATUS = Ruling(OutcomeClass.RETRYABLE, OutcomeReason.ODD_STATUS, answered=True)
_UNREACHABLE = Ruling(OutcomeClass.RETRYABLE, OutcomeReason.UNREACHABLE, answered=False)
_TLS = Ruling(OutcomeClass.RETRYABLE, OutcomeReason.TLS, answered=False)
_BROKEN_OFF = Ruling(OutcomeClass.RETRYABLE, OutcomeReason.BROKEN_OFF, answered=False)
_TIMED_OUT = Ruling(OutcomeClass.RETRYABLE, OutcomeReason.TIMED_OUT, answered=False)
_CUT_SHORT = Ruling(OutcomeClass.RETRYABLE, OutcomeReason.CUT_SHORT, answered=None)
_REFUSED = Ruling(OutcomeClass.PERMANENT, OutcomeReason.REFUSED, answered=None)
_LOCAL = Ruling(OutcomeClass.DEFERRED, OutcomeReason.LOCAL, answered=None)

_BY_HUNDRED = {2: _ACCEPTED, 3: _REDIRECTED, 4: _REJECTED, 5: _SERVER_ERROR}
_BY_STATUS = {status: _BY_HUNDRED[status // 100] for status in range(200, 600)} | {
    408: _NOT_READY,
    410: _GONE,
    425: _NOT_READY,
    429: _THROTTLED,
}

_BY_ERROR = {
    ErrorClass.DNS_FAILED: _UNREACHABLE,
    ErrorClass.DNS_TIMEOUT: _TIMED_OUT,
    ErrorClass.CONNECT_REFUSED: _UNREACHABLE,
    ErrorClass.CONNECT_FAILED: _UNREACHABLE,
    ErrorClass.CONNECT_TIMEOUT: _TIMED_OUT,
    ErrorClass.TLS_FAILED: _TLS,
    ErrorClass.TLS_CERTIFICATE: _TLS,
    ErrorClass.RESET: _BROKEN_OFF,
    ErrorClass.PROTOCOL: _BROKEN_OFF,
    ErrorClass.SILENCE_TIMEOUT: _TIMED_OUT,
    ErrorClass.TOTAL_TIMEOUT: _TIMED_OUT,
    ErrorClass.REFUSED_URL: _REFUSED,
    ErrorClass.REFUSED_ADDRESS: _REFUSED,
    ErrorClass.CUT_SHORT: _CUT_SHORT,
    ErrorClass.LEASE_EXPIRED: _CUT_SHORT,
    ErrorClass.LOCAL: _LOCAL,
}

_BY_MEANING = {Meaning.GONE: _GONE, Meaning.THROTTLED: _THROTTLED, Meaning.UNPROVEN: _ODD_STATUS}

_ANSWERED = LaneNotice(answered=True)
_ACKED = Judgement(OutcomeClass.SUCCESS, OutcomeReason.ACCEPTED, Acked(), _ANSWERED)
_RECEIVED = Judgement(OutcomeClass.SUCCESS, OutcomeReason.ACCEPTED, Received(), _ANSWERED)


def rule(facts: SendFacts) -> Ruling:
    """The row of the table for these facts. A meaning decides before a status, and a status before an error."""
    if facts.meaning is not None:
        return _BY_MEANING[facts.meaning]
    if facts.status_code is not None:
        return _BY_STATUS.get(facts.status_code, _ODD_STATUS)
    if facts.error_class is not None:
        return _BY_ERROR[facts.error_class]
    raise ValueError("an attempt has a status or an error")


def classify(facts: SendFacts) -> OutcomeClass:
    """The class of these facts."""
    return rule(facts).outcome_class


def of_another_configuration(judgement: Judgement) -> Judgement:
    """What an endpoint's refusal for good comes to where its configuration was changed while the attempt was under way.

    The answer is about a secret or an address that is gone, so it ends nothing and closes nothing: the delivery is
    tried again at once, as the endpoint is now. That it was an answer is all that the lane learns.
    """
    return Judgement(OutcomeClass.RETRYABLE, judgement.reason, Retry(0.0, judgement.reason), LaneNotice(answered=True))


def judge(
    facts: SendFacts,
    *,
    ack: AckMode,
    retry: RetryPolicy,
    generation_attempt: int,
    generation_age: float,
    draw: float,
    now: datetime,
) -> Judgement:
    """Decide what becomes of a delivery after an attempt.

    `generation_attempt` (from 1) and `generation_age` (seconds from the generation's first attempt to this claim) are
    the claim's; `draw` in [0, 1) spreads retries; `now` is only compared with a date in `Retry-After`. When a
    generation ends is the rule of `backoff.next_try`.
    """
    ruling = rule(facts)
    if ruling is _ACCEPTED:
        return _ACKED if ack is AckMode.RESPONSE else _RECEIVED
    if ruling is _LOCAL:
        return Judgement(ruling.outcome_class, ruling.reason, HandBack(HandBackReason.LOCAL), None)
    if ruling.outcome_class is OutcomeClass.PERMANENT:
        return _buried(ruling)
    wished = _wished_wait(facts, now)
    wait = backoff.next_try(
        retry,
        failed_attempt=generation_attempt,
        age=generation_age + (facts.phases.wait_ms + facts.phases.total_ms) / 1000,
        draw=draw,
        retry_after=wished,
        soon=ruling is _CUT_SHORT,
    )
    verdict = Bury(DeadReason.EXHAUSTED, ruling.reason) if wait is None else Retry(wait, ruling.reason)
    lane = _lane(ruling, hold_seconds=_hold(wished, retry) if ruling is _THROTTLED else 0.0)
    return Judgement(ruling.outcome_class, ruling.reason, verdict, lane)


def _buried(ruling: Ruling) -> Judgement:
    dead_reason = DeadReason.REFUSED if ruling is _REFUSED else DeadReason.PERMANENT_FAILURE
    lane = _lane(ruling, disable=ruling is _GONE)
    return Judgement(ruling.outcome_class, ruling.reason, Bury(dead_reason, ruling.reason), lane)


def _lane(ruling: Ruling, *, hold_seconds: float = 0.0, disable: bool = False) -> LaneNotice | None:
    return None if ruling.answered is None else LaneNotice(ruling.answered, hold_seconds, disable)


def _hold(wished: float, retry: RetryPolicy) -> float:
    """For how long a 429 closes its lane; an endpoint that asks for nothing in particular gets its base delay."""
    return wished or min(retry.base_seconds, HOLD_CAP_SECONDS)


def _wished_wait(facts: SendFacts, now: datetime) -> float:
    """Seconds that the endpoint asked for, at most the cap: the longest of its `Retry-After`, 0 without one of use."""
    wishes = [retry_after.parse(value, now) or 0.0 for name, value in facts.headers if name == "retry-after"]
    return min(max(wishes, default=0.0), RETRY_AFTER_CAP_SECONDS)
