"""The calls that send again or give up: of a receipt, of one delivery, of dead letters.

Owns the routes and the one way in which each of them is carried out: once under its name, in one transaction, and only
after its commit are dispatchers woken and listeners told. Invariant: whoever repeats a request with its
`Idempotency-Key` gets the first one's bytes, and nothing is done again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response
from pydantic import BaseModel

from relay.api.dead_letter_models import DeadLettersCounted, DeadLettersWanted
from relay.api.dead_letters import listing_of
from relay.api.deps import By, Deps, Tenant
from relay.api.documentation import operation_id
from relay.api.fields import AN_IDEMPOTENCY_KEY
from relay.api.filters import known_consumer
from relay.api.json_route import FilterRoute
from relay.api.problem_documentation import IDEMPOTENCY_KEY, REPLAY, Responses, problems
from relay.api.receipt_models import DeliveryListed, ReceiptRedriven, ReceiptToRedrive, RedrivenShown
from relay.api.receipt_views import list_delivery
from relay.api.requests import DeliveryId, ReceiptId, no_such, only_known_parameters
from relay.domain import ids
from relay.domain.idempotency import InvalidKey, parse_key
from relay.domain.telemetry import IdempotentReplay
from relay.store.dead_letters import DeadPlace
from relay.store.faults import StoreBusy
from relay.store.redrive import Counted, NotRedrivable, Performed, Redrive
from relay.store.request_keys import KeptAnswer, RequestKey, RequestKeyReused, RequestUnderWay
from relay.web.answers import JSON
from relay.web.problems import ErrorCode, refuse

router = APIRouter(
    prefix="/v1",
    tags=["receipts"],
    route_class=FilterRoute,
    generate_unique_id_function=operation_id,
    # a filter or a dry run that was put into the query must not be passed over: what is left would be everything
    dependencies=[Depends(only_known_parameters)],
)

ACCEPTED = 202

Work = Callable[[Redrive], Awaitable[BaseModel]]
"""What a call does inside its transaction; answers the body of its 202."""

_TRIES = 4
_PAUSE_SECONDS = 0.02
"""How often a change is tried that others' locks kept from happening, and how long they are given to pass."""

_WAIT_SECONDS = 10.0
_LONGEST_PAUSE_SECONDS = 0.25
"""How long a request waits for one of its name that is under way (a bit longer than that one may take), and how seldom
it looks. It has no connection meanwhile, so however many wait, others are served."""

_NAMED = (ErrorCode.MALFORMED, ErrorCode.BAD_FILTER, ErrorCode.IDEMPOTENCY_KEY_REUSED)
_FILTERED = (
    *_NAMED,
    ErrorCode.BODY_TIMEOUT,
    ErrorCode.PAYLOAD_TOO_LARGE,
    ErrorCode.CONTENT_TYPE,
    ErrorCode.OVERLOADED,
)


_OF_EACH = ReceiptToRedrive()
"""What a call without a body asks for. A call on dead letters has one: what got lost on the way must not mean all."""


def _answers(shape: type[BaseModel], *codes: ErrorCode) -> Responses:
    return {ACCEPTED: {"model": shape, "headers": REPLAY}, **problems(*codes, ErrorCode.JOURNAL_QUORUM)}


def _read_key(
    request: Request,
    _: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key", description=IDEMPOTENCY_KEY, json_schema_extra={"examples": [AN_IDEMPOTENCY_KEY]}
        ),
    ] = None,
) -> str | None:
    # a header that comes twice is read as one list, as the ingest does, and refused as such
    lines = request.headers.getlist("idempotency-key")
    if not lines:
        return None
    try:
        return parse_key(", ".join(lines))
    except InvalidKey as fault:
        raise refuse(ErrorCode.MALFORMED, str(fault)) from None


class _Call:
    """One call under way: who asks, under which name, and with what."""

    def __init__(
        self, request: Request, deps: Deps, tenant: Tenant, author: By, key: Annotated[str | None, Depends(_read_key)]
    ) -> None:
        self.deps = deps
        self.tenant = tenant
        self._author = author
        self._request = request
        self._key = key

    async def perform(self, work: Work, consumer: str | None = None) -> Response:
        """Do the work once, tell of it, and answer. Raises `Refused`."""

        async def kept(redrive: Redrive) -> KeptAnswer:
            return KeptAnswer(ACCEPTED, (await work(redrive)).model_dump_json().encode())

        try:
            async with known_consumer(self.deps, self.tenant, consumer):
                performed = await self._performed(self._name(), kept)
        except RequestKeyReused:
            detail = "an earlier request with this Idempotency-Key was another one; give a new request a new key"
            raise refuse(ErrorCode.IDEMPOTENCY_KEY_REUSED, detail) from None
        except NotRedrivable as fault:
            raise refuse(ErrorCode.NOT_REDRIVABLE, str(fault)) from None
        headers = {}
        if performed.replayed:
            headers["relay-idempotent-replay"] = "true"
            self.deps.emit(IdempotentReplay())
        if performed.effect.owes_anew:
            self.deps.wake()
        for happening in performed.effect.happenings:
            self.deps.emit(happening)
        return Response(performed.answer.body, performed.answer.status, headers, JSON.decode())

    async def _performed(self, name: RequestKey | None, work: Callable[[Redrive], Awaitable[KeptAnswer]]) -> Performed:
        ambient = self.deps.ambient
        until = ambient.monotonic() + _WAIT_SECONDS
        tries, pause = _TRIES, _PAUSE_SECONDS
        while True:
            try:
                return await self.deps.redrives.perform(self.tenant, name, work, self._author)
            except RequestUnderWay:
                if ambient.monotonic() >= until:
                    raise
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            except StoreBusy:
                tries -= 1
                if not tries:
                    raise
            await ambient.sleep(pause * (1 + ambient.draw()))

    def _name(self) -> RequestKey | None:
        if self._key is None:
            return None
        request = self._request
        # the parts are kept apart by what neither a method nor a path can hold
        said = b"\0".join((request.method.encode(), request.url.path.encode(), _body_of(request)))
        return RequestKey(self._key, hashlib.sha256(said).digest())


def _body_of(request: Request) -> bytes:
    """What the route has read of the request's body: nothing, where it takes none."""
    body: bytes = getattr(request, "_body", b"")
    return body


Call = Annotated[_Call, Depends()]


@router.post(
    "/receipts/{id}/redrive",
    status_code=ACCEPTED,
    responses=_answers(ReceiptRedriven, *_FILTERED, ErrorCode.NOT_FOUND, ErrorCode.NOT_REDRIVABLE),
)
async def redrive_receipt(receipt_id: ReceiptId, call: Call, wanted: ReceiptToRedrive = _OF_EACH) -> Response:
    """Send an event again to whoever has not acked it. Dead letters come back, also those that were given up, and what
    waits for a retry is due at once; what is being sent right now is left alone. An event that matched no endpoint is
    routed anew, to all that want it by now or to the one `consumer` alone.
    """

    async def work(redrive: Redrive) -> BaseModel:
        redriven = await redrive.receipt(receipt_id, consumer=wanted.consumer)
        if redriven is None:
            raise no_such("receipt")
        shown = [
            RedrivenShown(
                id=str(each.id),
                endpoint_id=ids.write(ids.ENDPOINT, each.endpoint_id),
                consumer=each.consumer,
                generation=each.generation,
            )
            for each in redriven
        ]
        return ReceiptRedriven(receipt_id=ids.write(ids.RECEIPT, receipt_id), redriven=shown)

    return await call.perform(work, wanted.consumer)


@router.post(
    "/deliveries/{id}/redrive",
    status_code=ACCEPTED,
    responses=_answers(DeliveryListed, *_NAMED, ErrorCode.NOT_FOUND, ErrorCode.NOT_REDRIVABLE),
)
async def redrive_delivery(delivery_id: DeliveryId, call: Call) -> Response:
    """Send one delivery again, also if it was delivered. Its id stays, its generation grows by one."""

    async def work(redrive: Redrive) -> BaseModel:
        delivery = await redrive.delivery(delivery_id)
        if delivery is None:
            raise no_such("delivery")
        return list_delivery(delivery)

    return await call.perform(work)


@router.post(
    "/dead-letters/redrive",
    status_code=ACCEPTED,
    responses=_answers(DeadLettersCounted, *_FILTERED, ErrorCode.BAD_CURSOR),
)
async def redrive_dead_letters(call: Call, wanted: DeadLettersWanted) -> Response:
    """Send dead letters again, the oldest first. What a removed endpoint is owed, and what no endpoint wants, stays."""

    after = _place(wanted)

    async def work(redrive: Redrive) -> BaseModel:
        counted = await redrive.redrive_dead_letters(
            wanted.filter(), limit=wanted.limit, after=after, dry_run=wanted.dry_run
        )
        return _counted(wanted, counted)

    return await call.perform(work, wanted.consumer)


@router.post(
    "/dead-letters/discard",
    status_code=ACCEPTED,
    responses=_answers(DeadLettersCounted, *_FILTERED, ErrorCode.BAD_CURSOR),
)
async def discard_dead_letters(call: Call, wanted: DeadLettersWanted) -> Response:
    """Give dead letters up, the oldest first. A receipt of which nothing else is owed closes as `closed_incomplete`."""

    after = _place(wanted)

    async def work(redrive: Redrive) -> BaseModel:
        counted = await redrive.discard_dead_letters(
            wanted.filter(), limit=wanted.limit, after=after, dry_run=wanted.dry_run
        )
        return _counted(wanted, counted)

    return await call.perform(work, wanted.consumer)


_OLDEST_FIRST = "dead letters, the oldest first"


def _place(wanted: DeadLettersWanted) -> DeadPlace | None:
    if wanted.cursor is None:
        return None
    return listing_of(_OLDEST_FIRST, wanted.filter()).read_cursor(wanted.cursor)


def _counted(wanted: DeadLettersWanted, counted: Counted) -> DeadLettersCounted:
    listing = listing_of(_OLDEST_FIRST, wanted.filter())
    return DeadLettersCounted(
        dry_run=wanted.dry_run,
        count=counted.count,
        more=counted.more,
        next_cursor=None if counted.next is None else listing.write_cursor(counted.next),
    )
