"""Routes whose body is JSON: read within the limit, refused in the order of every other body, then validated.

Owns the reading in the framework's place: its own reader has no limit, takes NaN for JSON, and answers an unknown
charset with an error of the server. Invariant: a route gets its body decoded, or is not called.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar

import msgspec
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from relay.web.exchange import BodyReader, Intake
from relay.web.json_bodies import content_type_fault, decode_json
from relay.web.problems import MOST_FAULTS, ErrorCode, refuse
from relay.web.serving import Guard


class JsonRoute(APIRoute):
    """A route of the API. Wants a `Guard` around the application, and the `BodyReader` in its state.

    Where the body has a default, a request may come without one. `NO_OBJECT` is what null is refused with then, and
    `NO_BODY` what is said where there has to be one.
    """

    NO_OBJECT: ClassVar[ErrorCode] = ErrorCode.INVALID
    NO_BODY: ClassVar[str] = "the request has no body; send JSON"

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The framework's handler, with the body put before it where it wants one."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        is_required = self.body_field.field_info.is_required()

        async def read_and_handle(request: Request) -> Response:
            await self._read(request, is_required=is_required)
            return await handle(request)

        return read_and_handle

    async def _read(self, request: Request, *, is_required: bool) -> None:
        intake: Intake = request.scope[Guard.INTAKE]
        if intake.ended:
            if is_required:
                raise refuse(ErrorCode.MALFORMED, self.NO_BODY)
            request._body = b""
            return
        fault = content_type_fault(request.headers.get("content-type", "").encode("latin-1"))
        if fault is not None:
            raise refuse(ErrorCode.CONTENT_TYPE, fault)
        if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise refuse(ErrorCode.CONTENT_TYPE, "send the body as it is, without a Content-Encoding")
        bodies: BodyReader = request.app.state.bodies
        body = await bodies.read(intake)
        if not body and is_required:
            raise refuse(ErrorCode.MALFORMED, self.NO_BODY)
        try:
            value = decode_json(msgspec.json.decode, body)
        except msgspec.ValidationError:
            raise refuse(ErrorCode.MALFORMED, _TOO_LARGE) from None
        if value is None and (not is_required or self.NO_OBJECT is ErrorCode.BAD_FILTER):
            # for the framework null is no body, and that would be every default
            raise refuse(self.NO_OBJECT, "the body should be an object")
        # where the framework's request keeps what it has read itself
        request._body = body
        request._json = value


class FilterRoute(JsonRoute):
    """A route whose body is a filter: what is wrong in it is a `bad_filter`, as it would be in a query."""

    NO_OBJECT = ErrorCode.BAD_FILTER
    NO_BODY = "the request has no body; send a JSON object with a filter, or {} for all"

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with the framework's faults of a body told as those of a filter."""
        handle = super().get_route_handler()

        async def handle_filter(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                raise refuse(ErrorCode.BAD_FILTER, faults_in_words(error)) from None

        return handle_filter


_PLAINER = {
    "extra_forbidden": "there is no such field",
    "model_attributes_type": "should be an object",
    "model_type": "should be an object",
    "dict_type": "should be an object",
    "list_type": "should be an array",
    "missing": "must be given",
}
"""The framework's words where they are its own rather than JSON's."""


def plain(error: Mapping[str, Any]) -> str:
    """The sentence of a validation error; none of them repeats what was sent."""
    message: str = _PLAINER.get(error["type"], error["msg"])
    return message.removeprefix("Value error, ")


def faults_in_words(error: RequestValidationError) -> str:
    """All faults in one sentence, each behind the name of what it was found in."""
    told = (f"{'.'.join(map(_name, each['loc'][1:]))}: {plain(each)}" for each in error.errors()[:MOST_FAULTS])
    return "; ".join(each.removeprefix(": ") for each in told)


def _name(part: str | int) -> str:
    return ascii(part[:_NAME_CHARACTERS])[1:-1] if isinstance(part, str) else str(part)


_NAME_CHARACTERS = 40

_TOO_LARGE = "the body holds a number that is too large: at most 1.8e308, and whole numbers of 4,300 digits, are read"
