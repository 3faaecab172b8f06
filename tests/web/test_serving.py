"""Claims about what stands around the applications."""

from __future__ import annotations

import logging

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from relay.web.exchange import Disconnected, Intake
from relay.web.problems import ErrorCode, refuse
from relay.web.serving import Guard, by_path
from tests.support.asgi import call


def raising(error: Exception, *, after_start: bool = False) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if after_start:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise error

    return app


async def test_requests_go_to_the_application_of_their_exact_path() -> None:
    app = by_path({"/v1/events": PlainTextResponse("ingest")}, PlainTextResponse("api"))
    assert (await call(app, "POST", "/v1/events")).body == b"ingest"
    for path in ("/v1/events/", "/v1/event", "/", "/v1/events/batch"):
        assert (await call(app, "GET", path)).body == b"api"


async def test_what_is_no_request_goes_to_the_other_application() -> None:
    seen: list[str] = []

    async def other(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    async def nothing(*_: object) -> None: ...

    await by_path({"/v1/events": PlainTextResponse("ingest")}, Guard(other))({"type": "lifespan"}, nothing, nothing)  # type: ignore[arg-type] # never called
    assert seen == ["lifespan"]


async def test_a_refusal_becomes_its_problem_document() -> None:
    reply = await call(Guard(raising(refuse(ErrorCode.NOT_FOUND, "no"))), "GET", "/")
    assert (reply.status, reply.code) == (404, "not_found")


async def test_a_bug_is_logged_and_tells_the_client_nothing(caplog: pytest.LogCaptureFixture) -> None:
    reply = await call(Guard(raising(RuntimeError("the password is 1234"))), "GET", "/")
    assert (reply.status, reply.code) == (500, "internal")
    assert b"1234" not in reply.body
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "1234" in caplog.text


async def test_a_bug_after_the_answer_has_begun_is_the_servers_to_end() -> None:
    with pytest.raises(RuntimeError):
        await call(Guard(raising(RuntimeError("late"), after_start=True)), "GET", "/")


async def test_nobody_answers_a_client_that_has_left() -> None:
    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(_: object) -> None:
        raise AssertionError("there is nobody to answer")

    await Guard(raising(Disconnected()))({"type": "http", "headers": []}, receive, send)


async def test_an_answer_that_leaves_a_body_unread_closes_the_connection() -> None:
    reply = await call(Guard(PlainTextResponse("no such path", 404)), "POST", "/", body=[b"a", b"b"])
    assert reply.headers["connection"] == "close"
    assert reply.messages[-1] == {"type": "http.response.body", "body": b""}
    assert reply.body == b"no such path"


async def test_an_answer_to_a_body_that_was_read_keeps_the_connection() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        intake: Intake = scope[Guard.INTAKE]
        body = await intake.read(10)
        await PlainTextResponse(body.decode())(scope, receive, send)

    reply = await call(Guard(app), "POST", "/", body=[b"a", b"b"])
    assert reply.body == b"ab"
    assert "connection" not in reply.headers
