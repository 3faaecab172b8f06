"""Claims about what an attempt's facts mean."""

from datetime import UTC, datetime

import pytest

from relay.domain.backoff import DEFAULT, PATIENT, RetryPolicy
from relay.domain.delivery import DeadReason
from relay.domain.endpoint import AckMode
from relay.domain.outcome import (
    Acked,
    Bury,
    HandBack,
    HandBackReason,
    Judgement,
    LaneNotice,
    OutcomeClass,
    OutcomeReason,
    Received,
    Retry,
    classify,
    judge,
    of_another_configuration,
    rule,
)
from relay.domain.sending import ErrorClass, Meaning, Phases, SendFacts

NOW = datetime(2026, 11, 30, 8, 49, 37, tzinfo=UTC)
TRANSPORT_FAILURES = {
    ErrorClass.DNS_FAILED: OutcomeReason.UNREACHABLE,
    ErrorClass.DNS_TIMEOUT: OutcomeReason.TIMED_OUT,
    ErrorClass.CONNECT_REFUSED: OutcomeReason.UNREACHABLE,
    ErrorClass.CONNECT_FAILED: OutcomeReason.UNREACHABLE,
    ErrorClass.CONNECT_TIMEOUT: OutcomeReason.TIMED_OUT,
    ErrorClass.TLS_FAILED: OutcomeReason.TLS,
    ErrorClass.TLS_CERTIFICATE: OutcomeReason.TLS,
    ErrorClass.RESET: OutcomeReason.BROKEN_OFF,
    ErrorClass.PROTOCOL: OutcomeReason.BROKEN_OFF,
    ErrorClass.SILENCE_TIMEOUT: OutcomeReason.TIMED_OUT,
    ErrorClass.TOTAL_TIMEOUT: OutcomeReason.TIMED_OUT,
}
OWN_ENDS = {ErrorClass.CUT_SHORT, ErrorClass.LEASE_EXPIRED}
REFUSALS = {ErrorClass.REFUSED_URL, ErrorClass.REFUSED_ADDRESS}


def judged(
    status: int | None = None,
    error: ErrorClass | None = None,
    *,
    retry_after: str | None = None,
    ack: AckMode = AckMode.RESPONSE,
    retry: RetryPolicy = DEFAULT,
    attempt: int = 1,
    age: float = 0.0,
    phases: Phases | None = None,
) -> Judgement:
    headers = (("content-type", "text/plain"),) + ((("retry-after", retry_after),) if retry_after is not None else ())
    facts = SendFacts(status, error, headers, phases=phases or Phases())
    return judge(facts, ack=ack, retry=retry, generation_attempt=attempt, generation_age=age, draw=0.5, now=NOW)


def expected_class(status: int) -> OutcomeClass:
    if status in range(200, 300):
        return OutcomeClass.SUCCESS
    if status in {408, 425, 429} or status not in range(300, 500):
        return OutcomeClass.RETRYABLE
    return OutcomeClass.PERMANENT


def test_every_status_has_the_class_of_the_table() -> None:
    statuses = (-1, 0, *range(100, 1000), 65_536)

    assert {s: classify(SendFacts(s)) for s in statuses} == {s: expected_class(s) for s in statuses}


def test_every_status_has_the_reason_of_the_table() -> None:
    reasons: dict[OutcomeReason, list[int]] = {}
    for status in (0, *range(100, 1000)):
        reasons.setdefault(rule(SendFacts(status)).reason, []).append(status)

    rejected = set(range(400, 500)) - {408, 410, 425, 429}
    assert reasons == {
        OutcomeReason.ODD_STATUS: [0, *range(100, 200), *range(600, 1000)],
        OutcomeReason.ACCEPTED: [*range(200, 300)],
        OutcomeReason.REDIRECTED: [*range(300, 400)],
        OutcomeReason.REJECTED: sorted(rejected),
        OutcomeReason.NOT_READY: [408, 425],
        OutcomeReason.GONE: [410],
        OutcomeReason.THROTTLED: [429],
        OutcomeReason.SERVER_ERROR: [*range(500, 600)],
    }


def test_only_a_server_error_among_the_statuses_counts_as_no_answer() -> None:
    unanswered = {status for status in (0, *range(100, 1000)) if rule(SendFacts(status)).answered is not True}

    assert unanswered == set(range(500, 600))


def test_each_error_has_its_reason_and_no_error_is_forgotten() -> None:
    assert {error: judged(error=error).reason for error in TRANSPORT_FAILURES} == TRANSPORT_FAILURES
    assert set(TRANSPORT_FAILURES) | REFUSALS | OWN_ENDS | {ErrorClass.LOCAL} == set(ErrorClass)


def test_failures_on_the_way_are_retried_and_count_against_the_breaker() -> None:
    judgements = [judged(error=error) for error in TRANSPORT_FAILURES]

    assert {j.outcome_class for j in judgements} == {OutcomeClass.RETRYABLE}
    assert {j.lane for j in judgements} == {LaneNotice(answered=False)}
    assert all(isinstance(j.verdict, Retry) and j.verdict.delay_seconds == 2 for j in judgements)


def test_facts_without_status_and_error_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="a status or an error"):
        classify(SendFacts())


@pytest.mark.parametrize("status", [200, 400, 403, 429, 500])
def test_what_a_platform_means_decides_before_its_status(status: int) -> None:
    ruled = {meaning: str(rule(SendFacts(status, meaning=meaning)).reason) for meaning in Meaning}
    assert ruled == {Meaning.GONE: "gone", Meaning.THROTTLED: "throttled", Meaning.UNPROVEN: "odd_status"}


def test_a_2xx_is_the_ack_where_the_response_acks() -> None:
    assert judged(204) == Judgement(OutcomeClass.SUCCESS, OutcomeReason.ACCEPTED, Acked(), LaneNotice(answered=True))


def test_a_2xx_is_only_a_receipt_where_the_endpoint_acks_by_a_call() -> None:
    assert judged(200, ack=AckMode.EXPLICIT).verdict == Received()


@pytest.mark.parametrize("error", [ErrorClass.RESET, ErrorClass.TOTAL_TIMEOUT, ErrorClass.LOCAL])
def test_a_status_stands_whatever_became_of_the_body(error: ErrorClass) -> None:
    assert judged(200, error).verdict == Acked()
    assert judged(503, error).reason is OutcomeReason.SERVER_ERROR
    assert judged(400, error).verdict == Bury(DeadReason.PERMANENT_FAILURE, OutcomeReason.REJECTED)


def test_410_buries_the_delivery_and_disables_the_endpoint() -> None:
    judgement = judged(410)

    assert judgement.verdict == Bury(DeadReason.PERMANENT_FAILURE, OutcomeReason.GONE)
    assert judgement.lane == LaneNotice(answered=True, disable=True)


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 451])
def test_other_permanent_failures_leave_the_endpoint_alone(status: int) -> None:
    judgement = judged(status)

    assert isinstance(judgement.verdict, Bury)
    assert judgement.verdict.dead_reason is DeadReason.PERMANENT_FAILURE
    assert judgement.lane == LaneNotice(answered=True)


@pytest.mark.parametrize("error", sorted(REFUSALS))
def test_a_refusal_by_policy_has_its_own_dead_reason_and_tells_the_lane_nothing(error: ErrorClass) -> None:
    assert judged(error=error) == Judgement(
        OutcomeClass.PERMANENT, OutcomeReason.REFUSED, Bury(DeadReason.REFUSED, OutcomeReason.REFUSED), None
    )


def test_trouble_of_this_machine_spends_no_attempt_even_the_last() -> None:
    judgement = judged(error=ErrorClass.LOCAL, attempt=12, age=9999.0)

    assert judgement.verdict == HandBack(HandBackReason.LOCAL)
    assert (judgement.outcome_class, judgement.lane) == (OutcomeClass.DEFERRED, None)


@pytest.mark.parametrize("error", sorted(OWN_ENDS))
@pytest.mark.parametrize("attempt", [1, 5, 11])
def test_what_this_side_cut_short_is_an_attempt_that_is_made_again_soon(error: ErrorClass, attempt: int) -> None:
    judgement = judged(error=error, attempt=attempt, age=1700.0)

    assert judgement.outcome_class is OutcomeClass.RETRYABLE
    assert judgement.verdict == Retry(DEFAULT.base_seconds, OutcomeReason.CUT_SHORT)


def test_what_this_side_cut_short_tells_the_lane_nothing() -> None:
    assert judged(error=ErrorClass.CUT_SHORT).lane is None


def test_the_last_attempt_was_the_last_even_if_this_side_cut_it_short() -> None:
    verdict = judged(error=ErrorClass.CUT_SHORT, attempt=12).verdict

    assert verdict == Bury(DeadReason.EXHAUSTED, OutcomeReason.CUT_SHORT)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_retry_after_moves_the_next_try_later(status: int) -> None:
    assert judged(status, retry_after="120").verdict == Retry(120 * 1.1, judged(status).reason)
    assert (
        judged(status, retry_after="Mon, 30 Nov 2026 08:51:37 GMT").verdict == judged(status, retry_after="120").verdict
    )


@pytest.mark.parametrize("text", ["-5", "-1", "1.5", "soon", "", "0", "1", "Sun, 06 Nov 1994 08:49:37 GMT"])
def test_a_retry_after_that_asks_for_nothing_leaves_the_ordinary_delay(text: str) -> None:
    assert judged(429, retry_after=text, attempt=3).verdict == Retry(8, OutcomeReason.THROTTLED)


def test_a_retry_after_beyond_an_hour_counts_as_an_hour() -> None:
    assert judged(503, retry_after="86400").verdict == Retry(3600 * 1.1, OutcomeReason.SERVER_ERROR)


def test_the_longest_retry_after_counts() -> None:
    facts = SendFacts(503, headers=(("retry-after", "60"), ("retry-after", "600")))
    judgement = judge(
        facts, ack=AckMode.RESPONSE, retry=DEFAULT, generation_attempt=1, generation_age=0, draw=0, now=NOW
    )

    assert judgement.verdict == Retry(600, OutcomeReason.SERVER_ERROR)


def test_a_429_holds_the_lane_exactly_as_long_as_it_asks() -> None:
    assert judged(429, retry_after="35").lane == LaneNotice(answered=True, hold_seconds=35)
    assert judged(429, retry_after="86400").lane == LaneNotice(answered=True, hold_seconds=3600)


@pytest.mark.parametrize("text", [None, "0", "-5"])
def test_a_429_that_asks_for_nothing_holds_the_lane_for_the_base_delay(text: str | None) -> None:
    assert judged(429, retry_after=text, attempt=9).lane == LaneNotice(answered=True, hold_seconds=2)


def test_a_very_long_base_delay_does_not_hold_a_lane_that_asked_for_nothing() -> None:
    slow = RetryPolicy(5, base_seconds=7200, max_seconds=7200, window_seconds=1e6, jitter=0)

    assert judged(429, retry=slow).lane == LaneNotice(answered=True, hold_seconds=60)


def test_only_a_429_holds_the_lane() -> None:
    assert judged(503, retry_after="120").lane == LaneNotice(answered=False)


def test_the_429_that_exhausts_a_delivery_still_holds_the_lane() -> None:
    judgement = judged(429, retry_after="35", attempt=12)

    assert judgement.verdict == Bury(DeadReason.EXHAUSTED, OutcomeReason.THROTTLED)
    assert judgement.lane == LaneNotice(answered=True, hold_seconds=35)


def test_the_last_attempt_of_a_generation_exhausts_it() -> None:
    assert judged(500, attempt=11, age=1110.0).verdict == Retry(300, OutcomeReason.SERVER_ERROR)
    assert judged(500, attempt=12, age=1410.0).verdict == Bury(DeadReason.EXHAUSTED, OutcomeReason.SERVER_ERROR)
    assert judged(500, attempt=10, retry=PATIENT).verdict == Bury(DeadReason.EXHAUSTED, OutcomeReason.SERVER_ERROR)


def test_an_attempt_after_the_window_is_the_last() -> None:
    assert judged(500, attempt=2, age=1800.0).verdict == Bury(DeadReason.EXHAUSTED, OutcomeReason.SERVER_ERROR)


def test_wait_and_send_count_towards_the_window() -> None:
    late = Phases(wait_ms=2_000, total_ms=10_000)

    assert isinstance(judged(500, attempt=9, age=1490.0).verdict, Retry)
    assert isinstance(judged(500, attempt=9, age=1490.0, phases=late).verdict, Bury)


@pytest.mark.parametrize("status", [401, 404, 410])
def test_what_was_said_to_a_configuration_that_is_gone_ends_nothing_and_closes_nothing(status: int) -> None:
    judgement = of_another_configuration(judged(status))
    assert judgement.verdict == Retry(0.0, judged(status).reason)
    assert (judgement.outcome_class, judgement.lane) == (OutcomeClass.RETRYABLE, LaneNotice(answered=True))
