"""The calls on receipts and deliveries.

Owns the routes. Invariant: a payload is handed out as the bytes that came in, and as nothing that a browser would run.
"""

from __future__ import annotations

import asyncio
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response

from relay.api.deps import Deps, Tenant
from relay.api.documentation import operation_id
from relay.api.filters import WantedReceipts, known_consumer
from relay.api.problem_documentation import LISTED, problems
from relay.api.receipt_models import DeliveryDetail, ReceiptPage, ReceiptShown
from relay.api.receipt_views import show_delivery, show_receipt
from relay.api.requests import Cursor, DeliveryId, Limit, ReceiptId, no_such, only_known_parameters
from relay.api.waiting import Waiting
from relay.domain import ids
from relay.store.filters import ReceiptFilter
from relay.store.history import NEWEST
from relay.web import paging
from relay.web.exchange import Disconnected
from relay.web.problems import ErrorCode

router = APIRouter(prefix="/v1", tags=["receipts"], generate_unique_id_function=operation_id)

LONGEST_WAIT_SECONDS = 60

_UNKNOWN = problems(ErrorCode.NOT_FOUND)

Timeout = Annotated[
    float,
    Query(ge=0, le=LONGEST_WAIT_SECONDS, allow_inf_nan=False, description="How many seconds to wait at most."),
]

# whoever sent the payload chose its content type
_AS_A_FILE = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
}


@router.get("/receipts", responses=problems(*LISTED), dependencies=[Depends(only_known_parameters)])
async def list_receipts(
    deps: Deps, tenant: Tenant, wanted: WantedReceipts, limit: Limit = paging.DEFAULT_LIMIT, cursor: Cursor = None
) -> ReceiptPage:
    """List receipts, newest first. Each shows at most its first 100 deliveries; `delivery_count` counts all of them.

    Where a filter leaves little over, a page may be short or empty although more follow: a list ends where
    `next_cursor` is null.
    """
    listing = _listing_of(wanted)
    before = NEWEST if cursor is None else listing.read_cursor(cursor)
    async with known_consumer(deps, tenant, wanted.consumer):
        page = await deps.history.receipts(tenant, wanted, before=before, limit=limit)
    return ReceiptPage(
        data=[show_receipt(receipt, confirmed_by_commit=deps.confirmed_by_commit) for receipt in page.items],
        next_cursor=None if page.next is None else listing.write_cursor(page.next),
    )


def _listing_of(wanted: ReceiptFilter) -> paging.Listing[UUID]:
    since, until = (None if each is None else each.isoformat() for each in (wanted.since, wanted.until))
    state = None if wanted.open is None else str(wanted.open)
    return paging.Listing(
        "receipts", paging.BY_ID, (state, wanted.type, wanted.event_id, wanted.consumer, since, until)
    )


@router.get("/receipts/{id}", responses=_UNKNOWN)
async def get_receipt(receipt_id: ReceiptId, deps: Deps, tenant: Tenant) -> ReceiptShown:
    """Show what became of an event."""
    receipt = await deps.receipts.get(tenant, receipt_id)
    if receipt is None:
        raise no_such("receipt")
    return show_receipt(receipt, confirmed_by_commit=deps.confirmed_by_commit)


@router.get(
    "/receipts/{id}/wait",
    responses=problems(ErrorCode.NOT_FOUND, ErrorCode.BAD_FILTER, ErrorCode.OVERLOADED),
    dependencies=[Depends(only_known_parameters)],
)
async def wait_for_receipt(
    request: Request, receipt_id: ReceiptId, deps: Deps, tenant: Tenant, timeout: Timeout = 30.0
) -> ReceiptShown:
    """Wait until a receipt closes. Answers at once if it is closed, and after `timeout` as it stands then."""
    receipt = await deps.receipts.get(tenant, receipt_id)
    if receipt is not None and receipt.outcome is None:
        await _until_closed(request, receipt_id, timeout)
        receipt = await deps.receipts.get(tenant, receipt_id)
    if receipt is None:
        raise no_such("receipt")
    return show_receipt(receipt, confirmed_by_commit=deps.confirmed_by_commit)


async def _until_closed(request: Request, receipt: UUID, seconds: float) -> None:
    waiting: Waiting = request.app.state.waiting
    gone = asyncio.ensure_future(_until_gone(request))
    try:
        await waiting.until_closed(receipt, seconds=seconds, gone=gone)
        if gone.done():
            raise Disconnected
    finally:
        gone.cancel()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


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
    if delivery is None:
        raise no_such("delivery")
    return show_delivery(delivery, await deps.receipts.attempts(delivery))
