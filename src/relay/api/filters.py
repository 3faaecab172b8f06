"""What lists may be asked for: the forms of filters, wherever they come from.

Owns each filter's form and its words in the description. Whether there is such a consumer only the database knows.
Invariant: what passes here can be compared by the database, and means what it means in routing.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import Depends, Query
from pydantic import AfterValidator, BeforeValidator, Field

from relay.api.deps import ApiDeps
from relay.api.fields import AN_INSTANT
from relay.domain.routing import check_pattern
from relay.store.filters import ReceiptFilter, UnknownConsumer
from relay.web.problems import ErrorCode, refuse

LONGEST_CONSUMER = 100
LONGEST_EVENT_ID = 255
LONGEST_WORDS = 300

_SHOWN_CHARACTERS = 40
_CONSUMERS_NAMED = 10

# RFC 3339, 5.6. A plus sign that nobody encoded comes out of a query as a space.
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d(?:\.\d+)?)(?:[Zz]|([ +-])(\d\d:\d\d))", re.ASCII)
_TYPE_PATTERN = r"^(\*|[A-Za-z0-9_/-]+(\.[A-Za-z0-9_/-]+)*(\.\*)?)$"


def read_instant(text: object) -> datetime:
    """An instant by RFC 3339, what is finer than a microsecond cut off. Raises `ValueError`."""
    found = _INSTANT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"an instant is written as {AN_INSTANT}, or with an offset such as +01:00 in the place of Z")
    day, time, sign, offset = found.groups()
    zone = f"{'-' if sign == '-' else '+'}{offset or '00:00'}"
    try:
        return datetime.fromisoformat(f"{day}T{time[:15]}{zone}").astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("there is no such instant between the years 1 and 9999") from None


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold a NUL character")
    return text


Instant = Annotated[
    datetime, BeforeValidator(read_instant), Field(json_schema_extra={"format": "date-time", "examples": [AN_INSTANT]})
]
TypePattern = Annotated[
    str,
    Field(strict=True),
    AfterValidator(check_pattern),
    Field(json_schema_extra={"pattern": _TYPE_PATTERN, "examples": ["invoice.*"]}),
]
Consumer = Annotated[
    str,
    Field(strict=True, min_length=1, max_length=LONGEST_CONSUMER),
    AfterValidator(_without_nul),
    Field(json_schema_extra={"examples": ["ledger"]}),
]
EventId = Annotated[
    str,
    Field(min_length=1, max_length=LONGEST_EVENT_ID),
    AfterValidator(_without_nul),
    Field(json_schema_extra={"examples": ["invoice-4711-paid"]}),
]
Words = Annotated[str, Field(min_length=1, max_length=LONGEST_WORDS), AfterValidator(_without_nul)]

TYPE = "Events of this type: an exact type, `invoice.*` for all below, `*` for every type."
CONSUMER = "The name of an endpoint, also of one that was removed."


def _receipt_filter(
    state: Annotated[Literal["open", "closed"] | None, Query(description="Open or closed receipts.")] = None,
    event_type: Annotated[TypePattern | None, Query(alias="type", description=TYPE)] = None,
    event_id: Annotated[EventId | None, Query(description="The sender's own id, or the one that Relay made.")] = None,
    consumer: Annotated[Consumer | None, Query(description=f"Owed to this endpoint. {CONSUMER}")] = None,
    since: Annotated[Instant | None, Query(description="Received at this instant (RFC 3339) or later.")] = None,
    until: Annotated[Instant | None, Query(description="Received before this instant (RFC 3339).")] = None,
) -> ReceiptFilter:
    is_open = None if state is None else state == "open"
    return ReceiptFilter(open=is_open, type=event_type, event_id=event_id, consumer=consumer, since=since, until=until)


WantedReceipts = Annotated[ReceiptFilter, Depends(_receipt_filter)]
"""The filter of a list of receipts."""


@asynccontextmanager
async def known_consumer(deps: ApiDeps, tenant: str, consumer: str | None) -> AsyncIterator[None]:
    """Around what asks for a consumer: one that nobody knows is a `bad_filter`, which names some that there are."""
    try:
        yield
    except UnknownConsumer:
        endpoints = await deps.endpoints.list(tenant, limit=_CONSUMERS_NAMED + 1)
        names = ", ".join(endpoint.config.name for endpoint in endpoints[:_CONSUMERS_NAMED]) or "none"
        more = ", and more at /v1/endpoints" if len(endpoints) > _CONSUMERS_NAMED else ""
        asked = ascii((consumer or "")[:_SHOWN_CHARACTERS])
        raise refuse(
            ErrorCode.BAD_FILTER, f"consumer: no endpoint is or was named {asked}; there are {names}{more}"
        ) from None
