"""A receipt is read as of one moment, however busy its recorders are."""

from __future__ import annotations

import asyncio
from uuid import UUID

from relay.domain.delivery import DeliveryStatus
from relay.loadtest.floors import delivered
from relay.store.database import Database
from relay.store.queue import FIRST_LANE
from relay.store.receipts import ReceiptView
from tests.support.deliveries import new_id
from tests.support.dispatching import House


def is_of_one_moment(view: ReceiptView) -> bool:
    delivered = sum(each.status is DeliveryStatus.DELIVERED for each in view.deliveries)
    return view.acked == delivered and (view.outcome is not None) == (delivered == view.expected)


async def test_a_receipt_and_its_deliveries_are_of_one_moment(database_dsn: str, database: Database) -> None:
    house = House(database_dsn, database)
    endpoint = await house.endpoint("http://127.0.0.1:1/")
    receipts = await house.events(200, endpoint)
    claim = await house.queue.claim_due(after=FIRST_LANE, batch=200, token=new_id(), lease_seconds=60.0)
    by_receipt = {delivery.receipt_id: delivery for delivery in claim.deliveries}

    async def read_until_closed(receipt: UUID) -> list[ReceiptView]:
        views = [await house.receipt(receipt)]
        while views[-1].outcome is None:
            views.append(await house.receipt(receipt))
        return views

    views: list[ReceiptView] = []
    for receipt in receipts[: len(by_receipt)]:
        async with asyncio.timeout(10):
            reading = asyncio.create_task(read_until_closed(receipt))
            await asyncio.gather(reading, house.queue.record([delivered(by_receipt[receipt])]))
        views += reading.result()
    assert [view for view in views if not is_of_one_moment(view)] == []
