"""What every route does with its request: read ids and queries, make ids, say that something is not there.

Owns these few steps. Invariant: an id of the wrong form is answered like one that nobody has.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Path, Query, Request

from relay.api.fields import A_DELIVERY, A_KEY, A_RECEIPT, A_SOURCE, AN_ENDPOINT, id_form
from relay.domain import ids
from relay.web.paging import LARGEST_LIMIT
from relay.web.problems import ErrorCode, Refused, refuse

_SHOWN_CHARACTERS = 40
_SHOWN_NAMES = 5
"""How much of a client's own words an answer repeats."""

Limit = Annotated[int, Query(ge=1, le=LARGEST_LIMIT, description="How many items the page has, at most.")]
Cursor = Annotated[str | None, Query(description="The `next_cursor` of the page before.")]


def _id(about: str, example: str) -> object:
    # its form is told, not checked by the framework: what has none is not found
    return Path(alias="id", description=about, json_schema_extra=id_form(example))


def only_known_parameters(request: Request) -> None:
    """A dependency that refuses a query parameter which the description does not have, or which comes twice.

    A misspelt filter must not select all, and of two values none may win in silence. Raises `Refused` (`bad_filter`).
    """
    operation = request.app.openapi()["paths"][request.scope["route"].path_format][request.method.lower()]
    known = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
    given = Counter(name for name, _ in request.query_params.multi_items())
    if unknown := set(given) - set(known):
        names = ", ".join(ascii(name[:_SHOWN_CHARACTERS]) for name in sorted(unknown)[:_SHOWN_NAMES])
        instead = f"known are {', '.join(known)}" if known else "this call takes no query: use its body"
        raise refuse(ErrorCode.BAD_FILTER, f"unknown here: {names}; {instead}")
    if twice := sorted(name for name, times in given.items() if times > 1):
        raise refuse(ErrorCode.BAD_FILTER, f"given more than once: {', '.join(twice)}")


def contradicts_header(request: Request, tenant: str | None) -> bool:
    """Whether a tenant that is named in the body or the query is another one than `Relay-Tenant` names.

    Neither may win in silence: whoever names two has made a mistake in one of them.
    """
    named = request.headers.get("relay-tenant")
    return named is not None and tenant is not None and named != tenant


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


def _endpoint(text: Annotated[str, _id("The endpoint's id.", AN_ENDPOINT)]) -> UUID:
    return read_id(ids.ENDPOINT, text)


def _receipt(text: Annotated[str, _id("The receipt's id.", A_RECEIPT)]) -> UUID:
    return read_id(ids.RECEIPT, text)


def _delivery(text: Annotated[str, _id("The delivery's id.", A_DELIVERY)]) -> UUID:
    return read_delivery_id(text)


def _key(text: Annotated[str, _id("The key's id.", A_KEY)]) -> UUID:
    return read_id(ids.KEY, text)


def _source(text: Annotated[str, _id("The source's id.", A_SOURCE)]) -> UUID:
    return read_id(ids.SOURCE, text)


EndpointId = Annotated[UUID, Depends(_endpoint)]
ReceiptId = Annotated[UUID, Depends(_receipt)]
DeliveryId = Annotated[UUID, Depends(_delivery)]
KeyId = Annotated[UUID, Depends(_key)]
SourceId = Annotated[UUID, Depends(_source)]
"""The id in a path, read."""

_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999, and of the calendar: an id has room for later times, but nobody made it then."""

_KIND_OF = {ids.ENDPOINT: "endpoint", ids.RECEIPT: "receipt", ids.KEY: "key", ids.SOURCE: "source"}
