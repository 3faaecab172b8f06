"""The call by which an endpoint acks what it has processed.

Owns the route. Invariant: whoever repeats an ack gets the same answer, and nothing is done again.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from relay.api.acking import Acking
from relay.api.deps import Tenant
from relay.api.documentation import operation_id
from relay.api.json_route import JsonRoute
from relay.api.problem_documentation import problems
from relay.api.receipt_models import AckGiven, AckShown
from relay.api.requests import ReceiptId, no_such, only_known_parameters, read_delivery_id
from relay.domain import ids
from relay.store.acks import AckWanted
from relay.web import instants
from relay.web.problems import ErrorCode, refuse

router = APIRouter(prefix="/v1", tags=["receipts"], route_class=JsonRoute, generate_unique_id_function=operation_id)


def _acking(request: Request) -> Acking:
    acking: Acking = request.app.state.acking
    return acking


@router.post(
    "/receipts/{id}/acks",
    responses=problems(
        ErrorCode.MALFORMED,
        ErrorCode.BAD_FILTER,
        ErrorCode.NOT_FOUND,
        ErrorCode.BODY_TIMEOUT,
        ErrorCode.PAYLOAD_TOO_LARGE,
        ErrorCode.CONTENT_TYPE,
        ErrorCode.INVALID,
        ErrorCode.OVERLOADED,
        ErrorCode.JOURNAL_QUORUM,
    ),
    dependencies=[Depends(only_known_parameters)],
)
async def acknowledge(
    receipt_id: ReceiptId, tenant: Tenant, given: AckGiven, acking: Annotated[Acking, Depends(_acking)]
) -> AckShown:
    """Ack a delivery: its endpoint has processed the event. It is named by its id or by its consumer. An ack is taken
    whenever it comes, also before the answer to the delivery, while a retry is due, and for a dead letter.
    """
    delivery = None if given.delivery_id is None else read_delivery_id(given.delivery_id)
    ack = await acking.take(AckWanted(tenant, receipt_id, delivery, given.consumer))
    if ack is None and delivery is None:
        raise refuse(ErrorCode.NOT_FOUND, "there is no delivery of that receipt to a consumer of that name")
    if ack is None:
        raise no_such("delivery")
    return AckShown(
        receipt_id=ids.write(ids.RECEIPT, receipt_id),
        delivery_id=str(ack.delivery_id),
        endpoint_id=ids.write(ids.ENDPOINT, ack.endpoint_id),
        consumer=ack.consumer,
        acked_at=instants.write(ack.acked_at),
        state="open" if ack.outcome is None else "closed",
        outcome=ack.outcome,
    )
