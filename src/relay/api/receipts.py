"""The calls on receipts and deliveries.

Owns the routes. Invariant: a payload is handed out as the bytes that came in, and as nothing that a browser would run.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Response

from relay.api.deps import Deps, Tenant
from relay.api.documentation import problems
from relay.api.receipt_models import DeliveryDetail, ReceiptShown
from relay.api.receipt_views import show_delivery, show_receipt
from relay.api.requests import no_such, read_delivery_id, read_id
from relay.domain import ids
from relay.web.problems import ErrorCode

router = APIRouter(prefix="/v1", tags=["receipts"])

_UNKNOWN = problems(ErrorCode.NOT_FOUND)

# whoever sent the payload chose its content type
_AS_A_FILE = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
}


def _path_receipt(id: str) -> UUID:  # noqa: A002 - the name that the path and its documentation have
    return read_id(ids.RECEIPT, id)


def _path_delivery(id: str) -> UUID:  # noqa: A002 - likewise
    return read_delivery_id(id)


ReceiptId = Annotated[UUID, Depends(_path_receipt)]
DeliveryId = Annotated[UUID, Depends(_path_delivery)]


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
    """The payload, byte for byte, with the content type that it came with."""
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
    if delivery is None:
        raise no_such("delivery")
    return show_delivery(delivery, await deps.receipts.attempts(delivery))
