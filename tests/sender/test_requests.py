"""What goes out: exactly the request that was handed over, and nothing from anywhere else."""

import asyncio

import pytest

from relay.domain.sending import ErrorClass
from tests.sender.conftest import request, sending
from tests.support.scripted_server import OK, ScriptedServer, answering


async def test_the_body_arrives_byte_for_byte_nul_bytes_included() -> None:
    body = bytes(range(256)) * 40
    with ScriptedServer(answering(OK)) as server:
        async with sending() as here:
            facts = await here.post(server.url(), body, ("Content-Type", "application/json"))
    assert (facts.status_code, facts.error_class, facts.snippet) == (200, None, b"ok")
    assert server.requests[0].body == body
    assert server.requests[0].values("content-length") == [str(len(body))]


async def test_a_handle_that_waits_for_its_next_request_holds_nothing_of_the_last() -> None:
    with ScriptedServer(answering(OK)) as server:
        async with sending() as here:
            assert (await here.post(server.url(), b"private", ("Authorization", "Bearer secret"))).status_code == 200
            (transfer,) = here.sender._free
            await asyncio.to_thread(transfer.curl.perform)
    told, left = server.requests
    assert (told.body, told.values("authorization")) == (b"private", ["Bearer secret"])
    assert (left.body, left.values("authorization")) == (b"", [])


async def test_an_empty_body_is_sent_with_length_zero() -> None:
    with ScriptedServer(answering(OK)) as server:
        async with sending() as here:
            assert (await here.post(server.url(), b"")).status_code == 200
    assert server.requests[0].values("content-length") == ["0"]
    assert server.requests[0].line.startswith("POST /hook HTTP/1.1")


async def test_an_empty_header_value_is_sent() -> None:
    with ScriptedServer(answering(OK)) as server:
        async with sending() as here:
            await here.post(server.url(), b"{}", ("X-Empty", ""), ("X-Full", "a"))
    assert server.requests[0].values("x-empty") == [""]
    assert server.requests[0].values("x-full") == ["a"]


async def test_no_header_is_sent_that_was_not_given_but_those_of_the_frame() -> None:
    """C05: those of the frame stand there once."""
    with ScriptedServer(answering(OK)) as server:
        async with sending() as here:
            await here.post(server.url(), b"x" * 2_000_000)
    names = sorted(name.lower() for name, _ in server.requests[0].headers)
    assert names == ["accept", "content-length", "host"]
    assert server.requests[0].values("accept") == ["*/*"]


async def test_the_path_is_sent_as_it_is() -> None:
    with ScriptedServer(answering(OK)) as server:
        async with sending() as here:
            await here.post(server.url("/a//b/;c=d/%7Euser?x=%2F&y=[1]"))
    assert server.requests[0].line == "POST /a//b/;c=d/%7Euser?x=%2F&y=[1] HTTP/1.1"


@pytest.mark.parametrize("value", ["a\r\nX-Injected: 1", "a\nb", "a\rb", "a\0b", "\u00e9"])
async def test_a_header_value_that_breaks_its_line_is_never_sent(value: str) -> None:
    with ScriptedServer(answering(OK)) as server:
        async with sending() as here:
            facts = await here.post(server.url(), b"{}", ("X-A", value))
    assert facts.error_class is ErrorClass.REFUSED_URL
    assert server.connections == 0


@pytest.mark.parametrize(
    "name", ["Host", "content-length", "Transfer-Encoding", "CONNECTION", "expect", "X A", "X:A", "", "X\r\nY", "Ü"]
)
async def test_a_header_that_would_change_the_frame_is_never_sent(name: str) -> None:
    with ScriptedServer(answering(OK)) as server:
        async with sending() as here:
            facts = await here.post(server.url(), b"{}", (name, "v"))
    assert facts.error_class is ErrorClass.REFUSED_URL
    assert "v" not in facts.detail.removeprefix("the request cannot be sent: ").split()
    assert server.connections == 0


async def test_one_connection_serves_one_request_after_the_other() -> None:
    with ScriptedServer(answering(OK)) as server:
        async with sending() as here:
            for number in range(20):
                facts = await here.post(server.url(), b"%d" % number)
                assert facts.status_code == 200
                assert facts.phases.connect_ms is not None
                assert (facts.phases.connect_ms == 0.0) is (number > 0)
    assert server.connections == 1
    assert [each.body for each in server.requests] == [b"%d" % number for number in range(20)]


async def test_many_results_come_back_in_few_batches() -> None:
    with ScriptedServer(answering(OK)) as server:
        async with sending() as here:
            for _ in range(5):
                results = await here.send_all(*[request(server.url(), b"%d" % n) for n in range(100)])
                assert {facts.status_code for facts in results} == {200}
            assert sum(here.batches) == 500
    assert len(here.batches) < 250
