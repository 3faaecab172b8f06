"""Every request comes back exactly once, whatever breaks on this side."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from relay.domain.sending import ErrorClass
from relay.sender import HttpSender, NoAuthorities, SendLimits
from relay.sender.resolver import Resolver
from relay.sender.route import Routes
from relay.sender.transfer import Transfer
from relay.sender.wire import Wire
from tests.sender.conftest import OPEN, open_descriptors, request, sending
from tests.support.scripted_server import Peer, ScriptedServer


def answering(peer: Peer) -> None:
    while peer.read_request() is not None:
        peer.answer(200, b"ok")


def once(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """Make a method fail the first time it is called."""
    method = getattr(owner, name)
    failed: list[bool] = []

    def failing(*given: Any, **named: Any) -> Any:
        if not failed:
            failed.append(True)
            raise TypeError("a bug")
        return method(*given, **named)

    monkeypatch.setattr(owner, name, failing)


@pytest.mark.parametrize(
    ("owner", "name", "fate"),
    [
        (Transfer, "prepare", ErrorClass.LOCAL),
        (Transfer, "facts", ErrorClass.CUT_SHORT),
        (Transfer, "_answered", ErrorClass.CUT_SHORT),
        (Routes, "find", ErrorClass.LOCAL),
        (Wire, "add", ErrorClass.LOCAL),
        (Wire, "note", ErrorClass.CUT_SHORT),
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


@pytest.mark.parametrize(("owner", "name"), [(Transfer, "clear"), (Transfer, "_reset"), (Wire, "drop")])
async def test_a_bug_after_the_facts_were_made_costs_no_facts_and_no_place(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    once(monkeypatch, owner, name)
    limits = SendLimits(connections=2, connections_per_host=2)
    with ScriptedServer(answering) as server:
        async with sending(limits=limits) as here:
            facts = await here.send_all(*[request(server.url()) for _ in range(10)])
            facts += await here.send_all(*[request(server.url()) for _ in range(10)])
            assert here.sender.in_flight == 0
            assert [str(fault) for _, fault in here.faults] == ["a bug"]
            here.faults.clear()
    assert [(each.status_code, each.error_class) for each in facts] == [(200, None)] * 20


def silent(peer: Peer) -> None:
    peer.read_request()
    peer.wait_for_close()


async def test_a_bug_in_the_sweep_of_one_request_spares_the_others(
    monkeypatch: pytest.MonkeyPatch, quick: SendLimits
) -> None:
    once(monkeypatch, Wire, "watch_again")
    with ScriptedServer(silent) as server:
        async with sending(limits=quick) as here:
            facts = await here.send_all(*[request(server.url()) for _ in range(3)])
            assert [str(fault) for _, fault in here.faults] == ["a bug"]
            here.faults.clear()
    assert sorted(str(each.error_class) for each in facts) == ["cut_short", "silence_timeout", "silence_timeout"]


@pytest.mark.parametrize("name", ["_sweep_silent", "_sweep_waiting"])
async def test_a_sweep_that_broke_off_is_followed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, quick: SendLimits, name: str
) -> None:
    once(monkeypatch, HttpSender, name)
    with ScriptedServer(silent) as server:
        async with sending(limits=quick) as here:
            facts = await here.post(server.url())
            assert [str(fault) for _, fault in here.faults] == ["a bug"]
            here.faults.clear()
    assert facts.error_class is ErrorClass.SILENCE_TIMEOUT


async def test_a_bug_while_closing_spares_the_others_and_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_descriptors()
    with ScriptedServer(silent) as server:
        async with sending(close_within=0.0) as here:
            futures = here.begin(*[request(server.url()) for _ in range(3)])
            await server.saw(lambda: len(server.requests) == 3)
            once(monkeypatch, Transfer, "cut_short")
            await here.sender.close(0.0)
            assert [str(fault) for _, fault in here.faults] == ["a bug"]
            here.faults.clear()
    assert [(await each).error_class for each in futures] == [ErrorClass.CUT_SHORT] * 3
    assert open_descriptors() <= before + 2, "the connections would be three"


@pytest.mark.parametrize(("ca_file", "fault"), [(Path("/there/is/none"), NoAuthorities), (None, TypeError)])
async def test_a_sender_that_could_not_start_holds_nothing(
    monkeypatch: pytest.MonkeyPatch, ca_file: Path | None, fault: type[Exception]
) -> None:
    once(monkeypatch, Resolver, "__init__")
    limits = SendLimits(ca_file=ca_file)
    gc.collect()
    before = open_descriptors(), threading.active_count()
    sender: HttpSender[int] = HttpSender(policy=OPEN, limits=limits, clock=time.monotonic, deliver=lambda _: None)
    with pytest.raises(fault):
        await sender.start()
    assert (open_descriptors(), threading.active_count()) == before
    await sender.close(0.0)


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
