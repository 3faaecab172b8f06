"""The list of dead letters.

Owns the route. A place in the list is an instant and an id, for many die at the same moment. Invariant: a bulk call and
the list mean the same by one filter.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from relay.api.dead_letter_models import DeadLetterPage, DeadLetterShown
from relay.api.deps import Deps, Tenant
from relay.api.documentation import operation_id
from relay.api.filters import CONSUMER, TYPE, Consumer, Instant, TypePattern, known_consumer
from relay.api.problem_documentation import LISTED, problems
from relay.api.requests import Cursor, Limit, only_known_parameters
from relay.domain import ids
from relay.domain.delivery import DeadReason
from relay.domain.receipt import Boundary
from relay.store.dead_letters import DEAD_NEWEST, DeadLetter, DeadPlace
from relay.store.filters import DeadLetterFilter
from relay.web import instants, paging

router = APIRouter(prefix="/v1", tags=["receipts"], generate_unique_id_function=operation_id)

BY_DEATH = paging.by_instant(DeadPlace)


def listing_of(name: str, wanted: DeadLetterFilter) -> paging.Listing[DeadPlace]:
    """What cursors of that list and filter are made and read by."""
    since = None if wanted.since is None else wanted.since.isoformat()
    return paging.Listing(name, BY_DEATH, (wanted.consumer, wanted.reason, wanted.type, since))


def _filter(
    consumer: Annotated[Consumer | None, Query(description=f"Owed to this endpoint. {CONSUMER}")] = None,
    reason: Annotated[DeadReason | None, Query(description="Dead for this reason.")] = None,
    event_type: Annotated[TypePattern | None, Query(alias="type", description=TYPE)] = None,
    since: Annotated[Instant | None, Query(description="Dead since this instant (RFC 3339) or later.")] = None,
) -> DeadLetterFilter:
    return DeadLetterFilter(consumer=consumer, reason=reason, type=event_type, since=since)


@router.get("/dead-letters", responses=problems(*LISTED), dependencies=[Depends(only_known_parameters)])
async def list_dead_letters(
    deps: Deps,
    tenant: Tenant,
    wanted: Annotated[DeadLetterFilter, Depends(_filter)],
    limit: Limit = paging.DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> DeadLetterPage:
    """List what waits for a person, newest first. An event that no endpoint wanted is in it with reason `no_route`."""
    listing = listing_of("dead letters", wanted)
    before = DEAD_NEWEST if cursor is None else listing.read_cursor(cursor)
    async with known_consumer(deps, tenant, wanted.consumer):
        page = await deps.dead_letters.list(tenant, wanted, before=before, limit=limit)
    return DeadLetterPage(
        data=[_shown(letter) for letter in page.items],
        next_cursor=None if page.next is None else listing.write_cursor(page.next),
    )


def _shown(letter: DeadLetter) -> DeadLetterShown:
    return DeadLetterShown(
        receipt_id=ids.write(ids.RECEIPT, letter.receipt_id),
        delivery_id=str(letter.delivery_id) if letter.delivery_id else None,
        endpoint_id=ids.write(ids.ENDPOINT, letter.endpoint_id) if letter.endpoint_id else None,
        consumer=letter.consumer,
        type=letter.type,
        event_id=letter.event_id,
        reason=letter.reason,
        boundary=Boundary.B4 if letter.was_received else Boundary.B3,
        last_error=letter.last_error,
        attempts=letter.attempts,
        display_url=letter.display_url,
        dead_at=instants.write(letter.dead_at),
    )
