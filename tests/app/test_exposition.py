"""Claims about the dispatcher's own small HTTP."""

from __future__ import annotations

import pytest

from relay.app.exposition import dispatcher_http
from tests.support.asgi import call


class Dispatcher:
    """A dispatcher that drains when it is told to."""

    draining = False

    def expose(self, accept: str) -> tuple[str, bytes]:
        """Its numbers, and what they were asked for."""
        return "text/plain", f"asked={accept}".encode()

    def is_draining(self) -> bool:
        """Whether it was told."""
        return self.draining


DISPATCHER = Dispatcher()
APP = dispatcher_http(DISPATCHER.expose, DISPATCHER.is_draining)


async def test_a_dispatcher_that_answers_lives() -> None:
    reply = await call(APP, "GET", "/healthz")
    assert (reply.status, reply.json()) == (200, {"status": "ok"})


async def test_a_dispatcher_that_takes_nothing_new_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DISPATCHER, "draining", True)
    reply = await call(APP, "GET", "/healthz")
    assert (reply.status, reply.json()) == (503, {"status": "draining"})


async def test_a_dispatcher_without_a_broker_says_no_word_of_one() -> None:
    reply = await call(APP, "GET", "/readyz")
    assert (reply.status, reply.json()) == (200, {"ready": True, "checks": {"dispatcher": "ok"}})


async def test_a_dispatcher_whose_broker_serves_is_ready() -> None:
    reply = await call(dispatcher_http(DISPATCHER.expose, DISPATCHER.is_draining, lambda: None), "GET", "/readyz")
    assert (reply.status, reply.json()) == (200, {"ready": True, "checks": {"dispatcher": "ok", "broker": "ok"}})


async def test_a_dispatcher_that_does_without_its_broker_says_why() -> None:
    reply = await call(dispatcher_http(DISPATCHER.expose, DISPATCHER.is_draining, lambda: "gone"), "GET", "/readyz")
    assert (reply.status, reply.json()["checks"]["broker"]) == (503, "deliveries are polled for: gone")


async def test_a_dispatcher_that_drains_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DISPATCHER, "draining", True)
    reply = await call(APP, "GET", "/readyz")
    assert (reply.status, reply.json()["checks"]["dispatcher"]) == (503, "draining")


async def test_its_numbers_come_in_the_format_that_is_asked_for() -> None:
    reply = await call(APP, "GET", "/metrics", headers=[("Accept", "application/openmetrics-text")])
    assert (reply.status, reply.body) == (200, b"asked=application/openmetrics-text")


@pytest.mark.parametrize("path", ["/", "/v1/events"])
async def test_there_is_nothing_else(path: str) -> None:
    reply = await call(APP, "GET", path)
    assert (reply.status, reply.code) == (404, "not_found")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_what_it_shows_is_only_read(path: str) -> None:
    reply = await call(APP, "POST", path)
    assert (reply.status, reply.code, reply.headers["allow"]) == (405, "method_not_allowed", "GET, HEAD")


async def test_a_bug_in_the_numbers_is_answered() -> None:
    def broken(_: str) -> tuple[str, bytes]:
        raise RuntimeError("broken")

    reply = await call(dispatcher_http(broken, DISPATCHER.is_draining), "GET", "/metrics")
    assert (reply.status, reply.code) == (500, "internal")
