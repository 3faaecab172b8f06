"""Routes whose body is JSON: read within the limit, refused in the order of every other body, then validated.

Owns the reading in the framework's place: its own reader has no limit, takes NaN for JSON, and answers an unknown
charset with an error of the server. Invariant: a route gets its body decoded, or is not called.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute

from relay.web.exchange import BodyReader, Intake
from relay.web.json_bodies import content_type_fault, decode_json
from relay.web.problems import ErrorCode, refuse
from relay.web.serving import Guard


class JsonRoute(APIRoute):
    """A route of the API. Wants a `Guard` around the application, and the `BodyReader` in its state."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The framework's handler, with the body put before it where it wants one."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def read_and_handle(request: Request) -> Response:
            await _read_body(request)
            return await handle(request)

        return read_and_handle


async def _read_body(request: Request) -> None:
    fault = content_type_fault(request.headers.get("content-type", "").encode("latin-1"))
    if fault is not None:
        raise refuse(ErrorCode.CONTENT_TYPE, fault)
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise refuse(ErrorCode.CONTENT_TYPE, "send the body as it is, without a Content-Encoding")
    bodies: BodyReader = request.app.state.bodies
    intake: Intake = request.scope[Guard.INTAKE]
    body = await bodies.read(intake)
    try:
        value = decode_json(msgspec.json.decode, body)
    except msgspec.ValidationError as fault:
        raise refuse(ErrorCode.MALFORMED, f"the body holds a number that is too large: {fault}") from None
    # where the framework's request keeps what it has read itself
    request._body = body
    request._json = value
