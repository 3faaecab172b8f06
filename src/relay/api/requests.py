"""What every route does with its request: read ids and queries, make ids, say that something is not there.

Owns these few steps. Invariant: an id of the wrong form is answered like one that nobody has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated
from uuid import UUID

from fastapi import Query, Request

from relay.api.deps import ApiDeps
from relay.domain import ids
from relay.web.paging import LARGEST_LIMIT
from relay.web.problems import ErrorCode, Refused, refuse

Limit = Annotated[int, Query(ge=1, le=LARGEST_LIMIT, description="How many items the page has, at most.")]
Cursor = Annotated[str | None, Query(description="The `next_cursor` of the page before.")]


def only_parameters(*known: str) -> Callable[[Request], None]:
    """A dependency that refuses every other query parameter (`bad_filter`): a misspelt filter must not select all."""

    def check(request: Request) -> None:
        unknown = request.query_params.keys() - set(known)
        if unknown:
            names = ", ".join(ascii(name[:40]) for name in sorted(unknown)[:5])
            raise refuse(ErrorCode.BAD_FILTER, f"unknown here: {names}; known are {', '.join(known) or 'none'}")

    return check


def read_id(prefix: str, text: str) -> UUID:
    """The id in a path. Raises `Refused` (`not_found`)."""
    try:
        found = ids.parse(prefix, text)
    except ids.InvalidId:
        raise no_such(_KIND_OF[prefix]) from None
    if ids.unix_ms(found) > _LATEST_MS:
        raise no_such(_KIND_OF[prefix])
    return found


def read_delivery_id(text: str) -> UUID:
    """The delivery id in a path, a plain UUID with dashes. Raises `Refused` (`not_found`)."""
    try:
        delivery = UUID(text)
    except ValueError:
        raise no_such("delivery") from None
    if str(delivery) != text.lower():
        raise no_such("delivery")
    return delivery


def no_such(kind: str) -> Refused:
    """The answer for an id that nobody has, or that belongs to somebody else."""
    return refuse(ErrorCode.NOT_FOUND, f"there is no {kind} of that id")


def new_id(deps: ApiDeps) -> UUID:
    """A fresh id of now."""
    now = deps.ambient.now()
    return ids.uuid7(int(now.timestamp() * 1000), deps.ambient.entropy(ids.ENTROPY_BYTES))


_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999, and of the calendar: an id has room for later times, but nobody made it then."""

_KIND_OF = {ids.ENDPOINT: "endpoint", ids.RECEIPT: "receipt"}
