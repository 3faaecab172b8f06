"""The calls on endpoints.

Owns the routes and their order of doing things. Invariant: a secret leaves in exactly two answers, that of its creation
and that of its rotation.
"""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from starlette.background import BackgroundTask

from relay.api.deps import By, Calling, Deps, Tenant, new_id
from relay.api.documentation import operation_id
from relay.api.endpoint_models import (
    EndpointChange,
    EndpointCreated,
    EndpointNew,
    EndpointPage,
    EndpointShown,
    SecretGiven,
    SecretRotated,
    created,
)
from relay.api.endpoint_rules import check_change, check_profile, read_change, read_new, read_rotation, read_secret
from relay.api.ingest_documentation import ACCEPTED
from relay.api.json_route import JsonRoute
from relay.api.problem_documentation import LISTED, problems
from relay.api.receipt_models import DeliveryPage, Status
from relay.api.receipt_views import list_delivery
from relay.api.requests import Cursor, EndpointId, Limit, no_such, only_known_parameters
from relay.domain import ids
from relay.domain.delivery import DeadReason, DeliveryStatus
from relay.domain.endpoint import Destination, Endpoint, EndpointState, Transport
from relay.domain.signing import SECRET_ENTROPY_BYTES, new_secret
from relay.domain.telemetry import DeadLettered, Listener
from relay.store.endpoints import NEWEST
from relay.store.faults import NameTaken, StoreUnavailable
from relay.store.queue import Queue
from relay.web import instants, paging
from relay.web.problems import ErrorCode, FieldFault, Refused, invalid, pointer

router = APIRouter(
    prefix="/v1/endpoints",
    tags=["endpoints"],
    route_class=JsonRoute,
    generate_unique_id_function=operation_id,
)

LISTING = paging.Listing("endpoints", paging.BY_ID)

logger = logging.getLogger(__name__)

_NAMES_DRAWN = 5
_BURIED_AT_ONCE = 500

_UNKNOWN = problems(ErrorCode.NOT_FOUND)
_CHANGE = problems(ErrorCode.NOT_FOUND, ErrorCode.JOURNAL_QUORUM)
_BODY = (
    ErrorCode.JOURNAL_QUORUM,
    ErrorCode.MALFORMED,
    ErrorCode.BODY_TIMEOUT,
    ErrorCode.OVERLOADED,
    ErrorCode.PAYLOAD_TOO_LARGE,
    ErrorCode.CONTENT_TYPE,
    ErrorCode.INVALID,
    ErrorCode.URL_REFUSED,
)
_ROTATION = problems(ErrorCode.NOT_FOUND, *(code for code in _BODY if code is not ErrorCode.URL_REFUSED))

_NO_SECRET = SecretGiven()


@router.post("", status_code=201, responses=problems(*_BODY))
async def create_endpoint(
    wanted: EndpointNew, deps: Deps, tenant: Tenant, author: By, response: Response
) -> EndpointCreated:
    """Create an endpoint. The answer has its secret, this once."""
    secret = read_secret(wanted)
    if secret is None:
        secret = new_secret(deps.ambient.entropy(SECRET_ENTROPY_BYTES))
    # a drawn name may be taken, however unlikely that is
    for left in reversed(range(1 if wanted.name else _NAMES_DRAWN)):
        try:
            config = read_new(deps, wanted)
            endpoint = await deps.endpoints.by(author).create(
                tenant, new_id(deps), config, secret_id=new_id(deps), secret=secret
            )
        except NameTaken:
            if not left:
                raise _name_taken() from None
        else:
            response.headers["location"] = f"/v1/endpoints/{ids.write(ids.ENDPOINT, endpoint.id)}"
            return created(endpoint, secret.expose())
    raise AssertionError("the last try returns or raises")


@router.get("", responses=problems(*LISTED), dependencies=[Depends(only_known_parameters)])
async def list_endpoints(
    deps: Deps, tenant: Tenant, limit: Limit = paging.DEFAULT_LIMIT, cursor: Cursor = None
) -> EndpointPage:
    """List the endpoints, newest first."""
    before = NEWEST if cursor is None else LISTING.read_cursor(cursor)
    rows = await deps.endpoints.list(tenant, before=before, limit=limit + 1)
    shown, following = LISTING.page(rows, limit, lambda endpoint: endpoint.id)
    return EndpointPage(data=[EndpointShown.of(endpoint) for endpoint in shown], next_cursor=following)


@router.get("/{id}", responses=_UNKNOWN)
async def get_endpoint(endpoint_id: EndpointId, deps: Deps, tenant: Tenant) -> EndpointShown:
    """Show an endpoint."""
    return _shown(await deps.endpoints.get(tenant, endpoint_id))


@router.get(
    "/{id}/deliveries",
    responses=problems(ErrorCode.NOT_FOUND, *LISTED),
    dependencies=[Depends(only_known_parameters)],
)
async def list_deliveries(
    endpoint_id: EndpointId,
    deps: Deps,
    tenant: Tenant,
    status: Annotated[Status | None, Query(description="Deliveries of this status alone.")] = None,
    limit: Limit = paging.DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> DeliveryPage:
    """List what was and is owed to an endpoint, newest first."""
    if await deps.endpoints.get(tenant, endpoint_id) is None:
        raise no_such("endpoint")
    listing = paging.Listing("deliveries", paging.BY_ID, (endpoint_id.hex, status))
    page = await deps.history.deliveries(
        tenant,
        endpoint_id,
        status=None if status is None else DeliveryStatus(status),
        before=NEWEST if cursor is None else listing.read_cursor(cursor),
        limit=limit,
    )
    return DeliveryPage(
        data=[list_delivery(delivery) for delivery in page.items],
        next_cursor=None if page.next is None else listing.write_cursor(page.next),
    )


@router.patch("/{id}", responses=problems(ErrorCode.NOT_FOUND, *_BODY))
async def change_endpoint(
    endpoint_id: EndpointId, wanted: EndpointChange, deps: Deps, tenant: Tenant, author: By
) -> EndpointShown:
    """Change an endpoint. What is left out stays as it is."""
    check_change(deps, wanted)
    endpoint = await deps.endpoints.get(tenant, endpoint_id)
    if endpoint is None:
        raise no_such("endpoint")
    change = read_change(deps, endpoint.config.transport, wanted)
    if wanted.signature is not None and endpoint.config.transport is Transport.HTTP:
        # a secret never changes but by rotation, and what a rotation makes suits every profile
        read = (await deps.destinations.read([endpoint_id]))[endpoint_id]
        if isinstance(read, Destination):
            check_profile(wanted.signature, filter(None, (read.secret, read.previous_secret)))
        else:
            raise read
    if not wanted.model_fields_set:
        return _shown(endpoint)
    try:
        changed = await deps.endpoints.by(author).update(tenant, endpoint_id, change)
    except NameTaken:
        raise _name_taken() from None
    # a wider limit lets out what waits for the narrower one
    deps.wake()
    return _shown(changed)


@router.delete("/{id}", status_code=204, responses=_CHANGE)
async def remove_endpoint(endpoint_id: EndpointId, deps: Deps, tenant: Tenant, author: By) -> Response:
    """Remove an endpoint. What it is still owed becomes dead letters, `endpoint_removed`."""
    if not await deps.endpoints.by(author).remove(tenant, endpoint_id):
        raise no_such("endpoint")
    return Response(status_code=204, background=BackgroundTask(_bury_removed, deps.queue, deps.emit))


@router.post("/{id}/pause", responses=_CHANGE)
async def pause_endpoint(endpoint_id: EndpointId, deps: Deps, tenant: Tenant, author: By) -> EndpointShown:
    """Pause an endpoint. Its deliveries are held until it is resumed; new events still match it.

    One that its own answer has disabled (a 410; a chat's 401, 403 or 404) stays disabled, with its reason: it is held
    already.
    """
    return _shown(await deps.endpoints.by(author).set_state(tenant, endpoint_id, EndpointState.PAUSED))


@router.post("/{id}/resume", responses=_CHANGE)
async def resume_endpoint(endpoint_id: EndpointId, deps: Deps, tenant: Tenant, author: By) -> EndpointShown:
    """Resume an endpoint. Its deliveries go again, whether a person paused it or its own answer disabled it."""
    resumed = await deps.endpoints.by(author).set_state(tenant, endpoint_id, EndpointState.ACTIVE)
    deps.wake()
    return _shown(resumed)


@router.post(
    "/{id}/test",
    status_code=202,
    response_class=Response,
    responses={
        **problems(ErrorCode.NOT_FOUND, ErrorCode.OVERLOADED, ErrorCode.DRAINING, ErrorCode.JOURNAL_QUORUM),
        202: {"description": "The test event is durable.", "content": {"application/json": {"schema": ACCEPTED}}},
    },
)
async def send_test_event(endpoint_id: EndpointId, deps: Deps, caller: Calling) -> Response:
    """Send a test event to an endpoint. An event of type `relay.test` is owed to it alone, whatever its patterns."""
    endpoint = await deps.endpoints.get(caller.tenant, endpoint_id)
    if endpoint is None:
        raise no_such("endpoint")
    answer = await deps.send_test(caller, endpoint.id, endpoint.config.name)
    return Response(answer.body, answer.status, media_type=answer.media_type.decode())


@router.post("/{id}/rotate-secret", responses=_ROTATION)
async def rotate_secret(
    endpoint_id: EndpointId, deps: Deps, tenant: Tenant, author: By, given: SecretGiven = _NO_SECRET
) -> SecretRotated:
    """Rotate an endpoint's secret. Until the old one expires, requests are signed with both.

    A chat's new token is given, since its platform makes it; it counts from the next message on, and the old one no
    more.
    """
    endpoint = await deps.endpoints.get(tenant, endpoint_id)
    if endpoint is None:
        raise no_such("endpoint")
    token = read_rotation(endpoint, given)
    secret = token or new_secret(deps.ambient.entropy(SECRET_ENTROPY_BYTES))
    endpoint = await deps.endpoints.by(author).rotate_secret(
        tenant,
        endpoint_id,
        secret_id=new_id(deps),
        secret=secret,
        overlap_seconds=0.0 if token else deps.secret_overlap_seconds,
    )
    if endpoint is None:
        raise no_such("endpoint")
    return SecretRotated(
        id=ids.write(ids.ENDPOINT, endpoint.id),
        secret=secret.expose(),
        previous_secret_expires_at=instants.write_optional(endpoint.previous_secret_expires_at),
    )


async def _bury_removed(queue: Queue, emit: Listener) -> None:
    """Until nothing is left to bury: each round takes some rows away for good, and an empty one ends it."""
    try:
        while buried := await queue.bury_removed(batch=_BURIED_AT_ONCE):
            for consumer, count in buried.items():
                emit(DeadLettered(consumer, DeadReason.ENDPOINT_REMOVED, count))
    except StoreUnavailable as fault:
        logger.warning("burial_left_to_dispatcher", extra={"fields": {"detail": str(fault)}})


def _shown(endpoint: Endpoint | None) -> EndpointShown:
    if endpoint is None:
        raise no_such("endpoint")
    return EndpointShown.of(endpoint)


def _name_taken() -> Refused:
    return invalid([FieldFault(pointer("name"), "another endpoint has this name")])
