"""Attempts as they are told of, for whoever listens."""

from uuid import UUID

from relay.domain.attempt import AttemptFact
from relay.domain.outcome import Acked, OutcomeClass, Verdict
from relay.domain.sending import ErrorClass

DELIVERY, RECEIPT = UUID(int=0xD), UUID(int=0xE)


def attempt(
    consumer: str = "billing",
    *,
    verdict: Verdict | None = None,
    outcome: OutcomeClass = OutcomeClass.SUCCESS,
    status: int | None = 200,
    send: float = 0.02,
    delivery: float | None = 0.04,
) -> AttemptFact:
    """A recorded attempt, by default a success."""
    return AttemptFact(
        DELIVERY,
        RECEIPT,
        "order-7",
        "invoice.paid",
        "acct_default",
        consumer,
        attempt=2,
        generation=1,
        outcome_class=outcome,
        verdict=Acked() if verdict is None else verdict,
        status_code=status,
        error_class=None if status else ErrorClass.CONNECT_TIMEOUT,
        claim_seconds=0.0031,
        gate_seconds=0.0002,
        send_seconds=send,
        persist_seconds=0.0057,
        total_seconds=0.0304,
        delivery_seconds=delivery,
        forwarded=(),
        trace_entropy=bytes(range(1, 25)),
        display_url="https://example.test/hook?token=***",
    )
