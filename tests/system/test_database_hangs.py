"""The database's processes stop in their tracks, and go on later: connections stay open, and nothing is ever said.

Everybody gets an answer within its bound meanwhile, that answer does not claim that nothing happened, and whoever asks
again under the same key has one event.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from relay.embedded import EmbeddedServer
from tests.support.installation import Installation, Service, add_endpoint, api, children, eventually, kill
from tests.support.postgres import throwaway_server
from tests.support.receiver import Receiver
from tests.system.conftest import ended

DEADLINE = 60.0
POSTS = 100
INGEST_SECONDS, READY_SECONDS, CALL_SECONDS = 20.0, 20.0, 30.0
"""The bounds of the documentation (5, 2 and 8), with room for a machine that is busy with other tests. Without bounds
nobody would be answered: the database goes on only afterwards. To the second they are claimed by the gateway's own
tests, with a clock that stands still."""


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    """A server of this test alone."""
    with throwaway_server() as running:
        yield running


@pytest.fixture
def installation(server: EmbeddedServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Installation]:
    """An installation on that server."""
    yield from ended(Installation(tmp_path, server.dsn), request)


@asynccontextmanager
async def stopped_in_its_tracks(server: EmbeddedServer) -> AsyncIterator[None]:
    """Inside the block no process of the server does anything."""
    stopped = [server.pid, *children(server.pid)]
    for pid in stopped:
        kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            kill(pid, signal.SIGCONT)


async def timed(ask: Callable[[], httpx.Response]) -> tuple[float, httpx.Response]:
    began = time.monotonic()
    answer = await asyncio.to_thread(ask)
    return time.monotonic() - began, answer


async def post(client: httpx.AsyncClient, number: int) -> tuple[float, httpx.Response]:
    began = time.monotonic()
    headers = {"idempotency-key": f"key-{number}"}
    answer = await client.post("/v1/events", json={"type": "load.posted", "number": number}, headers=headers)
    return time.monotonic() - began, answer


async def test_a_database_that_hangs_keeps_nobody_waiting_and_a_keyed_retry_is_one_event(
    installation: Installation, server: EmbeddedServer, receiver: Receiver
) -> None:
    assert installation.run("migrate").returncode == 0
    gateway, dispatcher = installation.gateway(), installation.dispatcher()
    dispatcher.worker()
    add_endpoint(gateway, receiver.url("/ok"))
    limits = httpx.Limits(max_connections=POSTS)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=DEADLINE, limits=limits) as client:
        assert (await post(client, 0))[1].status_code == 202
        async with stopped_in_its_tracks(server):
            posts = [asyncio.create_task(post(client, number)) for number in range(POSTS)]
            with api(gateway) as other:
                took, answer = await timed(lambda: other.get("/readyz"))
                assert (answer.status_code, took < READY_SECONDS) == (503, True)
                took, answer = await timed(lambda: other.get("/v1/endpoints"))
                assert (answer.status_code, took < CALL_SECONDS) == (503, True)
            for took, answer in await asyncio.gather(*posts):
                assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
                assert "retry-after" in answer.headers
                assert took < INGEST_SECONDS
        await ready(gateway)
        again = [await post(client, number) for number in range(POSTS)]
    assert {answer.status_code for _, answer in again} == {202}
    assert await installation.value("select count(*) from journal") == POSTS
    await installation.all_closed(POSTS, DEADLINE)


async def test_a_database_that_hangs_keeps_nobody_from_stopping_within_the_bound(
    installation: Installation, server: EmbeddedServer, receiver: Receiver
) -> None:
    assert installation.run("migrate").returncode == 0
    gateway, dispatcher = installation.gateway(), installation.dispatcher()
    dispatcher.worker()
    add_endpoint(gateway, receiver.url("/slow?ms=500"))
    async with httpx.AsyncClient(base_url=gateway.url, timeout=DEADLINE) as client:
        assert (await post(client, 0))[1].status_code == 202
        async with stopped_in_its_tracks(server):
            waiting = asyncio.create_task(post(client, 1))
            await asyncio.sleep(0)  # it goes out first, on the connection that is there
            assert (await client.get("/healthz")).status_code == 200
            codes = await asyncio.gather(asyncio.to_thread(gateway.stop), asyncio.to_thread(dispatcher.stop))
            assert (await waiting)[1].status_code == 503
    assert list(codes) == [0, 0]
    for service in (gateway, dispatcher):
        assert '"process_stopped"' in service.log_tail()
        assert "killed" not in service.log_tail()


async def ready(gateway: Service) -> None:
    async def is_ready() -> bool:
        with api(gateway) as client:
            return (await asyncio.to_thread(client.get, "/readyz")).status_code == 200

    await eventually(is_ready, DEADLINE, "the gateway is ready again")
