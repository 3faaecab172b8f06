"""Claims about bodies coming in and answers going out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from starlette.types import Message, Receive

from relay.web import exchange
from relay.web.answers import Answer
from relay.web.exchange import BodyReader, Disconnected, Heap, Intake, send_answer
from relay.web.problems import ErrorCode, Refused

LIMIT = 10


def pieces(*parts: bytes, whole: bool = True) -> Receive:
    """A client that sends these pieces and, unless it is whole, leaves then."""
    messages: list[Message] = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if whole:
        messages[-1]["more_body"] = False
    else:
        messages.append({"type": "http.disconnect"})
    left = iter(messages)

    async def receive() -> Message:
        return next(left)

    return receive


def chunked(receive: Receive) -> Intake:
    return Intake(receive, declared=None, chunked=True)


class Sent:
    """What went out."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)

    def header(self, name: bytes) -> bytes | None:
        return dict(self.messages[0]["headers"]).get(name)


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError("nothing ever comes")


async def test_a_body_in_pieces_is_put_together() -> None:
    assert await chunked(pieces(b"abc", b"", b"defg")).read(LIMIT) == b"abcdefg"


async def test_a_body_of_exactly_the_limit_is_accepted() -> None:
    assert await chunked(pieces(b"x" * 9, b"y")).read(LIMIT) == b"x" * 9 + b"y"


@pytest.mark.parametrize("parts", [(b"x" * 11,), (b"x" * 10, b"y"), (b"x" * 6, b"y" * 5)])
async def test_a_body_one_byte_past_the_limit_is_refused(parts: Iterable[bytes]) -> None:
    with pytest.raises(Refused) as refused:
        await chunked(pieces(*parts)).read(LIMIT)
    assert refused.value.problem.code is ErrorCode.PAYLOAD_TOO_LARGE
    assert refused.value.problem.extra == {"limit_bytes": LIMIT}


async def test_an_endless_body_is_refused_soon_after_the_limit() -> None:
    asked = 0

    async def endless() -> Message:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b"xxxx", "more_body": True}

    with pytest.raises(Refused):
        await chunked(endless).read(LIMIT)
    assert asked == 3


async def test_a_declared_length_past_the_limit_is_refused_before_anything_is_read() -> None:
    with pytest.raises(Refused):
        await Intake(never, declared=b"11", chunked=False).read(LIMIT)


@pytest.mark.parametrize("declared", [b"1", b"0", b"junk", b""])
async def test_the_limit_holds_whatever_length_is_declared(declared: bytes) -> None:
    with pytest.raises(Refused):
        await Intake(pieces(b"x" * 11), declared=declared, chunked=True).read(LIMIT)


async def test_a_client_that_leaves_early_has_no_body() -> None:
    with pytest.raises(Disconnected):
        await chunked(pieces(b"abc", whole=False)).read(LIMIT)


@pytest.mark.parametrize(
    ("declared", "is_chunked", "ended"),
    [(None, False, True), (b"0", False, True), (b"1", False, False), (None, True, False)],
)
def test_a_request_without_a_body_has_none_to_wait_for(declared: bytes | None, is_chunked: bool, ended: bool) -> None:
    assert Intake(never, declared=declared, chunked=is_chunked).ended is ended


async def test_a_body_that_stalls_is_given_up() -> None:
    reader = BodyReader(LIMIT, seconds=0.02, sweep_seconds=0.01)
    with pytest.raises(Refused) as refused:
        async with asyncio.timeout(10):
            await reader.read(chunked(never))
    assert refused.value.problem.code is ErrorCode.BODY_TIMEOUT
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_stalled_body_does_not_end_the_wait_for_one_that_began_later() -> None:
    reader = BodyReader(LIMIT, seconds=1.5, sweep_seconds=0.01)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> Message:
        begun.set()
        await go_on.wait()
        return {"type": "http.request", "body": b"late", "more_body": False}

    stalled = asyncio.create_task(reader.read(chunked(never)))
    async with asyncio.timeout(10):
        await asyncio.wait([stalled], timeout=1.2)  # it is about to be given up
        in_time = asyncio.create_task(reader.read(chunked(slow)))
        await begun.wait()
        with pytest.raises(Refused):
            await stalled
        go_on.set()
        assert await in_time == b"late"


async def test_a_read_that_is_cancelled_from_outside_stays_cancelled() -> None:
    reading = asyncio.create_task(BodyReader(LIMIT).read(chunked(never)))
    await asyncio.wait([reading], timeout=0.01)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_an_answer_to_a_request_that_was_read_keeps_the_connection() -> None:
    intake, sent = chunked(pieces(b"abc")), Sent()
    await intake.read(LIMIT)
    await send_answer(Answer(202, b"application/json", b"{}"), intake, sent)
    assert [message["type"] for message in sent.messages] == ["http.response.start", "http.response.body"]
    assert sent.header(b"connection") is None
    assert sent.header(b"content-length") == b"2"


async def test_an_answer_before_the_body_has_ended_goes_out_whole_and_closes_the_connection() -> None:
    intake, sent = chunked(pieces(b"a", b"b")), Sent()
    await send_answer(Answer(415, b"application/json", b"{}"), intake, sent)
    assert sent.header(b"connection") == b"close"
    assert [(message.get("body"), message.get("more_body", False)) for message in sent.messages[1:]] == [
        (b"{}", True),
        (b"", False),
    ]
    assert intake.ended


async def test_a_client_that_goes_on_for_ever_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "DISCARD_SECONDS", 0.01)
    sent = Sent()
    async with asyncio.timeout(10):
        await send_answer(Answer(415, b"application/json", b"{}"), chunked(never), sent)
    assert sent.messages[-1] == {"type": "http.response.body", "body": b""}


async def test_a_flood_after_the_answer_is_cut_off() -> None:
    asked = 0

    async def flood() -> Message:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b"x" * 1_000_000, "more_body": True}

    await send_answer(Answer(415, b"application/json", b"{}"), chunked(flood), Sent())
    assert asked == exchange.DISCARD_BYTES // 1_000_000 + 1


@pytest.mark.parametrize("declared", [b"14 ", b"0014", b"1, 4", b"what"])
async def test_a_length_that_cannot_be_read_is_no_missing_body(declared: bytes) -> None:
    intake = Intake(pieces(b"abc"), declared=declared, chunked=False)
    assert not intake.ended


@pytest.mark.parametrize("declared", [None, b"0", b"00"])
async def test_a_request_that_declares_no_body_has_ended(declared: bytes | None) -> None:
    assert Intake(never, declared=declared, chunked=False).ended


def slow(*parts: bytes) -> tuple[Receive, asyncio.Event]:
    """A client that sends these pieces and the last one only when the event is set."""
    go_on = asyncio.Event()
    left = iter(parts)
    waiting = len(parts)

    async def receive() -> Message:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            await go_on.wait()
        return {"type": "http.request", "body": next(left), "more_body": waiting > 0}

    return receive, go_on


async def test_all_bodies_under_read_together_have_a_bound_and_what_ended_makes_room() -> None:
    heap = Heap(most=LIMIT)
    reader = BodyReader(LIMIT, heap=heap)
    first, go_on = slow(b"abcdef", b"g")
    reading = asyncio.create_task(reader.read(chunked(first)))
    await asyncio.sleep(0)
    with pytest.raises(Refused) as refused:
        await reader.read(chunked(pieces(b"abc", b"defg", b"h")))
    assert refused.value.problem.code is ErrorCode.OVERLOADED
    assert await reader.read(chunked(pieces(b"0123456789"))) == b"0123456789", "what comes in one piece is not kept"
    go_on.set()
    assert await reading == b"abcdefg"
    assert heap.bytes == 0
    assert await reader.read(chunked(pieces(b"abc", b"defg", b"h"))) == b"abcdefgh"


async def test_a_body_that_is_alone_may_be_as_large_as_its_own_limit() -> None:
    heap = Heap(most=3)
    assert await BodyReader(LIMIT, heap=heap).read(chunked(pieces(b"abcd", b"efg", b"h"))) == b"abcdefgh"
    assert heap.bytes == 0


@pytest.mark.parametrize("whole", [True, False])
async def test_a_body_that_is_given_up_makes_room(whole: bool) -> None:
    heap = Heap()
    parts = (b"abcdef", b"ghijklm") if whole else (b"abc",)
    with pytest.raises((Refused, Disconnected)):
        await BodyReader(LIMIT, heap=heap).read(chunked(pieces(*parts, whole=whole)))
    assert heap.bytes == 0
