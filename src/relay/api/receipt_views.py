"""What a receipt and its deliveries say: from the store's rows to the words of the API.

Owns what a delivery waits for, when it is due, and which moments make up a receipt's story. Pure. Invariant: nothing is
told that was not recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from relay.api.receipt_models import AttemptShown, DeliveryDetail, DeliveryListed, DeliveryShown, Moment, ReceiptShown
from relay.domain import ids, receipt
from relay.domain.delivery import DeliveryStatus
from relay.domain.endpoint import EndpointState
from relay.domain.outcome import DeferralReason
from relay.domain.receipt import Boundary, TimelineWhat
from relay.store.receipts import AttemptView, DeliveryView, ReceiptView
from relay.web import instants

WAITS_FOR_RETRY = "retry"
WAITS_FOR_ACK = "ack"


def show_receipt(view: ReceiptView, *, confirmed_by_commit: bool) -> ReceiptShown:
    """The receipt with its deliveries and its story.

    Where several machines have to confirm an event, the moment at which they had is written down nowhere (it would be a
    second write for each event), and the story leaves it out.
    """
    return ReceiptShown(
        receipt_id=ids.write(ids.RECEIPT, view.id),
        event_id=view.event_id,
        type=view.type,
        schema_=view.schema,
        tenant=view.tenant,
        source=view.source,
        received_at=instants.write(view.received_at),
        journal_pos=str(view.position),
        content_type=view.content_type,
        payload_sha256=view.payload_sha256.hex(),
        payload_bytes=view.payload_bytes,
        rules_version=view.rules_version,
        state="open" if view.outcome is None else "closed",
        outcome=view.outcome,
        reason=view.reason,
        closed_at=instants.write_optional(view.closed_at),
        delivery_count=view.expected,
        discarded=view.discarded,
        deliveries=[DeliveryShown(**_shared(each), attempts=each.attempts) for each in view.deliveries],
        timeline=[
            Moment(boundary=entry.boundary, what=entry.what, at_ms=round(entry.at_ms, 3), consumer=entry.consumer)
            for entry in receipt.timeline(view.received_at, _moments(view, confirmed_by_commit=confirmed_by_commit))
        ],
    )


def show_delivery(view: DeliveryView, attempts: Iterable[AttemptView]) -> DeliveryDetail:
    """One delivery with its attempts."""
    return DeliveryDetail(
        **_shared(view),
        receipt_id=ids.write(ids.RECEIPT, view.receipt_id),
        attempt_count=view.attempts,
        attempts=[_attempt(attempt) for attempt in attempts],
    )


def list_delivery(view: DeliveryView) -> DeliveryListed:
    """One delivery without its attempts."""
    return DeliveryListed(**_shared(view), attempts=view.attempts, receipt_id=ids.write(ids.RECEIPT, view.receipt_id))


def waiting_for(view: DeliveryView) -> str | None:
    """What has to happen before this delivery moves on; None where it is on its way or done."""
    if view.status is DeliveryStatus.IN_FLIGHT:
        return WAITS_FOR_ACK if view.awaits_ack else None
    if view.status is not DeliveryStatus.PENDING:
        return None
    if view.endpoint_state is not EndpointState.ACTIVE:
        # disabled by its answer is held just as paused is: until a person resumes it
        return DeferralReason.PAUSED
    if view.held_reason is not None and (view.held_until is None or view.held_until > view.due_at):
        return view.held_reason
    return WAITS_FOR_RETRY if view.attempts else None


def next_attempt_at(view: DeliveryView) -> datetime | None:
    """When a waiting delivery is tried next: its due time, or its lane's reopening if that is later; None where time
    alone does not open the lane."""
    if view.status is not DeliveryStatus.PENDING or view.endpoint_state is not EndpointState.ACTIVE:
        return None
    if view.held_reason == DeferralReason.ENDPOINT_CONCURRENCY and view.held_until is None:
        return None
    return max(view.due_at, view.held_until or view.due_at)


def boundary(view: DeliveryView) -> Boundary:
    """Where a delivery stands: B4 once the endpoint has it, B3 before that and where it could not get there."""
    return Boundary.B4 if view.status is DeliveryStatus.DELIVERED or view.was_received else Boundary.B3


def _shared(view: DeliveryView) -> dict[str, Any]:
    return {
        "id": str(view.id),
        "endpoint_id": ids.write(ids.ENDPOINT, view.endpoint_id),
        "consumer": view.consumer,
        "status": view.status.value,
        "generation": view.generation,
        "acked_at": instants.write_optional(view.acked_at),
        "next_attempt_at": instants.write_optional(next_attempt_at(view)),
        "waiting_for": waiting_for(view),
        "reason": view.dead_reason,
        "boundary": boundary(view),
        "last_error": view.last_error,
        "redriven_at": instants.write_optional(view.redriven_at),
        "discarded_at": instants.write_optional(view.discarded_at),
    }


def _moments(view: ReceiptView, *, confirmed_by_commit: bool) -> Iterator[receipt.Moment]:
    yield receipt.Moment(TimelineWhat.CHECKED, receipt.after(view.received_at, view.checked_us))
    yield receipt.Moment(TimelineWhat.RECEIPT_ASSIGNED, receipt.after(view.received_at, view.assigned_us))
    yield receipt.Moment(TimelineWhat.COMMITTED, view.committed_at)
    if confirmed_by_commit:
        # one copy is asked for, so the commit itself is the proof, and with the proof the 202 is due
        yield receipt.Moment(TimelineWhat.CONFIRMED, view.committed_at)
        yield receipt.Moment(TimelineWhat.ACCEPTED, view.committed_at)
    yield from _routing(view)
    yield from _past(view)
    told = {ended.redriven_at for ended in view.past} | {view.routed_at}
    for delivery in view.deliveries:
        if view.routed_at is not None:
            yield receipt.Moment(TimelineWhat.REDRIVEN, view.routed_at, delivery.consumer)
        # the one that began the present generation is told with the end of the one before
        if delivery.redriven_at is not None and delivery.redriven_at not in told:
            yield receipt.Moment(TimelineWhat.REDRIVEN, delivery.redriven_at, delivery.consumer)
        if delivery.acked_at is not None:
            yield receipt.Moment(TimelineWhat.ACKED, delivery.acked_at, delivery.consumer)
        if delivery.dead_at is not None:
            yield receipt.Moment(TimelineWhat.DEAD_LETTERED, delivery.dead_at, delivery.consumer)
    if view.closed_at is not None:
        yield receipt.Moment(TimelineWhat.CLOSED, view.closed_at)


def _past(view: ReceiptView) -> Iterator[receipt.Moment]:
    """What had become of deliveries before they were sent again."""
    consumers = {delivery.id: delivery.consumer for delivery in view.deliveries}
    for ended in view.past:
        consumer = consumers[ended.delivery_id]
        if ended.dead_at is not None:
            yield receipt.Moment(TimelineWhat.DEAD_LETTERED, ended.dead_at, consumer)
        if ended.acked_at is not None:
            yield receipt.Moment(TimelineWhat.ACKED, ended.acked_at, consumer)
        yield receipt.Moment(TimelineWhat.REDRIVEN, ended.redriven_at, consumer)


def _routing(view: ReceiptView) -> Iterator[receipt.Moment]:
    """Routing is part of what was committed; what matched nothing then has its deliveries from a re-drive."""
    if view.deliveries and view.routed_at is None:
        yield receipt.Moment(TimelineWhat.ROUTED, view.committed_at)
    elif view.routed_at is not None or view.reason is not None:
        yield receipt.Moment(TimelineWhat.DEAD_LETTERED, view.committed_at)


def _attempt(view: AttemptView) -> AttemptShown:
    return AttemptShown(
        attempt=view.attempt,
        generation=view.generation,
        at=instants.write(view.at),
        outcome_class=view.outcome_class,
        reason=view.reason,
        deferred_for_ms=view.deferred_for_ms,
        status_code=view.status_code,
        error_class=view.error_class,
        snippet=view.snippet,
        wait_ms=view.wait_ms,
        connect_ms=view.connect_ms,
        send_ms=view.send_ms,
        first_byte_ms=view.first_byte_ms,
        total_ms=view.total_ms,
        display_url=view.display_url,
    )
