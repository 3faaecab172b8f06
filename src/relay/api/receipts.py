"""The calls on receipts and deliveries.

Owns the routes. Invariant: a payload is handed out as the bytes that came in, and as nothing that a browser would run.
"""

from __future__ import annotations

from fastapi import APIRouter, Response

from relay.api.deps import Deps, Tenant
from relay.api.documentation import operation_id
from relay.api.problem_documentation import problems
from relay.api.receipt_models import DeliveryDetail, ReceiptShown
from relay.api.receipt_views import is_shown, show_delivery, show_receipt
from relay.api.requests import DeliveryId, ReceiptId, no_such
from relay.domain import ids
from relay.web.problems import ErrorCode

router = APIRouter(prefix="/v1", tags=["receipts"], generate_unique_id_function=operation_id)

_UNKNOWN = problems(ErrorCode.NOT_FOUND)

# whoever sent the payload chose its content type
_AS_A_FILE = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
}


@router.get("/receipts/{id}", responses=_UNKNOWN)
async def get_receipt(receipt_id: ReceiptId, deps: Deps, tenant: Tenant) -> ReceiptShown:
    """Show what became of an event."""
    receipt = await deps.receipts.get(tenant, receipt_id)
    if receipt is None:
        raise no_such("receipt")
    return show_receipt(receipt)


@router.get(
    "/receipts/{id}/payload",
    response_class=Response,
    responses={**_UNKNOWN, 200: {"description": "The bytes as they were posted.", "content": {"*/*": {}}}},
)
async def get_payload(receipt_id: ReceiptId, deps: Deps, tenant: Tenant) -> Response:
    """Hand out the payload, byte for byte, with the content type that it came with."""
    payload = await deps.receipts.payload(tenant, receipt_id)
    if payload is None:
        raise no_such("receipt")
    file = f'attachment; filename="{ids.write(ids.RECEIPT, receipt_id)}"'
    return Response(
        payload.body,
        headers={"content-type": payload.content_type, "content-disposition": file, **_AS_A_FILE},
    )


@router.get("/deliveries/{id}", responses=_UNKNOWN)
async def get_delivery(delivery_id: DeliveryId, deps: Deps, tenant: Tenant) -> DeliveryDetail:
    """Show one delivery with every attempt."""
    delivery = await deps.receipts.delivery(tenant, delivery_id)
    if delivery is None or not is_shown(delivery):
        raise no_such("delivery")
    return show_delivery(delivery, await deps.receipts.attempts(delivery))
