"""Every request comes back exactly once, whatever breaks on this side."""

from __future__ import annotations

from typing import Any

import pytest

from relay.domain.sending import ErrorClass
from relay.sender.route import Routes
from relay.sender.transfer import Transfer
from tests.sender.conftest import request, sending
from tests.support.scripted_server import Peer, ScriptedServer


def answering(peer: Peer) -> None:
    while peer.read_request() is not None:
        peer.answer(200, b"ok")


def once(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """Make a method fail the first time it is called."""
    method = getattr(owner, name)
    failed: list[bool] = []

    def failing(self: Any, *rest: Any) -> Any:
        if not failed:
            failed.append(True)
            raise TypeError("a bug")
        return method(self, *rest)

    monkeypatch.setattr(owner, name, failing)


@pytest.mark.parametrize(
    ("owner", "name", "fate"),
    [
        (Transfer, "prepare", ErrorClass.LOCAL),
        (Transfer, "facts", ErrorClass.CUT_SHORT),
        (Routes, "find", ErrorClass.LOCAL),
    ],
)
async def test_a_bug_with_one_request_ends_that_one_and_spares_the_others(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, fate: ErrorClass
) -> None:
    once(monkeypatch, owner, name)
    with ScriptedServer(answering) as server:
        async with sending() as here:
            facts = await here.send_all(*[request(server.url()) for _ in range(10)])
            assert here.sender.in_flight == 0
            again = await here.send_all(*[request(server.url()) for _ in range(10)])
            assert [str(fault) for _, fault in here.faults] == ["a bug"]
            here.faults.clear()
    assert sorted((each.status_code or 0, each.error_class) for each in facts) == [
        (0, fate),
        *[(200, None)] * 9,
    ]
    assert [each.status_code for each in again] == [200] * 10


async def test_a_bug_while_a_request_is_repeated_ends_that_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transfer, "died_with_its_connection", lambda *_: True)
    once(monkeypatch, Transfer, "renew")

    def closing(peer: Peer) -> None:
        peer.read_head()

    with ScriptedServer(closing) as server:
        async with sending() as here:
            facts = await here.post(server.url())
            assert here.sender.in_flight == 0
            assert [str(fault) for _, fault in here.faults] == ["a bug"]
            here.faults.clear()
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.CUT_SHORT)
