"""The calls on the catalogue: event types and their numbered schemas.

Owns the routes. What a schema may be is the domain's to say, and the judge's. Invariant: what is stored has been
examined and compiled, and a version that was stored never changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Path, Query, Request, Response

from relay.api.deps import ApiDeps, By, Deps, Tenant
from relay.api.documentation import operation_id
from relay.api.json_route import JsonRoute
from relay.api.problem_documentation import LISTED, problems
from relay.api.requests import Cursor, Limit, only_known_parameters
from relay.api.schema_models import EventTypePage, EventTypeShown, SchemaPage, SchemaShown
from relay.domain.routing import LONGEST_TYPE
from relay.domain.schema import LARGEST_NUMBER, InvalidSchemaName, SchemaName, read_name
from relay.store.faults import CatalogueFull
from relay.store.schemas import ListedSchema, StoredSchema
from relay.web import paging
from relay.web.judging import BeyondBounds, Weighed
from relay.web.problems import ErrorCode, FieldFault, Refused, invalid, refuse

router = APIRouter(prefix="/v1", tags=["schemas"], route_class=JsonRoute, generate_unique_id_function=operation_id)

MOST_SCHEMA_BYTES = 128 * 1024
"""How large the text of a schema may be."""

SCHEMA_MEDIA_TYPE = "application/schema+json"

_OF_A_SCHEMA: dict[str, Any] = {"type": ["object", "boolean"]}

_UNKNOWN = problems(ErrorCode.NOT_FOUND)

_A_NUMBER_BYTES = 4

_BY_NAME: paging.Places[SchemaName] = paging.Places(
    lambda place: place.number.to_bytes(_A_NUMBER_BYTES, "big") + place.type.encode(),
    lambda raw: SchemaName(raw[_A_NUMBER_BYTES:].decode(), _number_of(raw)),
)
_BY_TYPE: paging.Places[str] = paging.Places(str.encode, bytes.decode)
_EVENT_TYPES = paging.Listing("event types", _BY_TYPE)

TypeInPath = Annotated[
    str,
    Path(
        alias="type",
        description="The event type.",
        json_schema_extra={
            "pattern": r"^[A-Za-z0-9_/-]+(\.[A-Za-z0-9_/-]+)*$",
            "maxLength": LONGEST_TYPE,
            "examples": ["invoice.refunded"],
        },
    ),
]
VersionInPath = Annotated[
    str,
    Path(
        alias="version",
        description="The version: v and a number, `v3`.",
        json_schema_extra={"pattern": "^v[1-9][0-9]{0,8}$", "examples": ["v3"]},
    ),
]


@router.put(
    "/schemas/{type:path}/{version}",
    status_code=201,
    responses={
        **problems(
            ErrorCode.JOURNAL_QUORUM,
            ErrorCode.MALFORMED,
            ErrorCode.NOT_FOUND,
            ErrorCode.BODY_TIMEOUT,
            ErrorCode.OVERLOADED,
            ErrorCode.SCHEMA_EXISTS,
            ErrorCode.PAYLOAD_TOO_LARGE,
            ErrorCode.CONTENT_TYPE,
            ErrorCode.INVALID,
        ),
        200: {"description": "The same schema was there already.", "model": SchemaShown},
    },
)
async def put_schema(
    event_type: TypeInPath,
    version: VersionInPath,
    # of any type, since what a schema may be is the domain's to say, in words of its own
    schema: Annotated[object, Body(json_schema_extra=_OF_A_SCHEMA)],  # noqa: ARG001 - it is read from its bytes
    request: Request,
    deps: Deps,
    tenant: Tenant,
    author: By,
    response: Response,
) -> SchemaShown:
    """Put a schema into the catalogue. A version is written once: the same bytes again are answered with 200, others
    are refused with `schema_exists`.

    JSON Schema 2020-12. Events of the type are checked against the newest version from now on, unless their sender
    names another one with `Relay-Schema`.
    """
    try:
        name = read_name(f"{event_type}/{version}")
    except InvalidSchemaName as fault:
        raise invalid([FieldFault("", str(fault))]) from None
    text = await request.body()
    if len(text) > MOST_SCHEMA_BYTES:
        detail = f"a schema may have at most {MOST_SCHEMA_BYTES} bytes"
        raise refuse(ErrorCode.PAYLOAD_TOO_LARGE, detail, limit_bytes=MOST_SCHEMA_BYTES)
    await _check_schema(deps, tenant, text)
    try:
        put = await deps.schemas.by(author).put(tenant, name, text)
    except CatalogueFull as fault:
        raise invalid([FieldFault("", str(fault))]) from None
    if put.stored.text != text:
        raise _exists(name)
    response.status_code = 201 if put.is_new else 200
    return _shown(name, put.stored)


@router.get(
    "/schemas/{type:path}/{version}",
    response_class=Response,
    responses={
        **_UNKNOWN,
        200: {"description": "The schema, byte for byte.", "content": {SCHEMA_MEDIA_TYPE: {"schema": {}}}},
    },
)
async def get_schema(event_type: TypeInPath, version: VersionInPath, deps: Deps, tenant: Tenant) -> Response:
    """Show a schema. It comes as the bytes that were put."""
    try:
        stored = await deps.schemas.read(tenant, read_name(f"{event_type}/{version}"))
    except InvalidSchemaName:
        stored = None
    if stored is None:
        raise refuse(ErrorCode.NOT_FOUND, "there is no schema of that type and version")
    return Response(stored.text, media_type=SCHEMA_MEDIA_TYPE)


@router.get("/schemas", responses=problems(*LISTED), dependencies=[Depends(only_known_parameters)])
async def list_schemas(
    deps: Deps,
    tenant: Tenant,
    event_type: Annotated[str | None, Query(alias="type", description="Schemas of this type alone.")] = None,
    limit: Limit = paging.DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> SchemaPage:
    """List the schemas, by type and version."""
    listing = paging.Listing("schemas", _BY_NAME, (event_type,))
    after = _FIRST if cursor is None else listing.read_cursor(cursor)
    rows = await deps.schemas.page(tenant, after=after, event_type=event_type, limit=limit + 1)
    shown, following = listing.page(rows, limit, lambda row: row.name)
    return SchemaPage(data=[SchemaShown.of(row) for row in shown], next_cursor=following)


@router.get("/event-types", responses=problems(*LISTED), dependencies=[Depends(only_known_parameters)])
async def list_event_types(
    deps: Deps, tenant: Tenant, limit: Limit = paging.DEFAULT_LIMIT, cursor: Cursor = None
) -> EventTypePage:
    """List the event types that have schemas."""
    after = "" if cursor is None else _EVENT_TYPES.read_cursor(cursor)
    rows = await deps.schemas.event_types(tenant, after=after, limit=limit + 1)
    shown, following = _EVENT_TYPES.page(rows, limit, lambda row: row.type)
    return EventTypePage(data=[EventTypeShown.of(row) for row in shown], next_cursor=following)


_FIRST = SchemaName("", 0)


async def _check_schema(deps: ApiDeps, tenant: str, text: bytes) -> None:
    """Raises `Refused` (`invalid`) with what is wrong with a schema."""
    try:
        found: Weighed | Sequence[FieldFault] = await deps.judge.weigh(tenant, text)
    except BeyondBounds:
        found = [FieldFault("", "it takes longer, or more memory, to compile than there is for a schema")]
    if not isinstance(found, Weighed):
        raise invalid(found)


def _exists(name: SchemaName) -> Refused:
    return refuse(
        ErrorCode.SCHEMA_EXISTS, f"{name} is there already, with other bytes, and never changes: put a new version"
    )


def _shown(name: SchemaName, stored: StoredSchema) -> SchemaShown:
    digest = hashlib.sha256(stored.text).digest()
    return SchemaShown.of(ListedSchema(name, len(stored.text), digest, stored.created_at))


def _number_of(raw: bytes) -> int:
    number = int.from_bytes(raw[:_A_NUMBER_BYTES], "big")
    if len(raw) <= _A_NUMBER_BYTES or number > LARGEST_NUMBER:
        raise ValueError("no place in a list of schemas")
    return number
