"""What the broker's tests have in common: real servers, one of each kind per worker, and the loop of production."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest
import uvloop

from relay.broker import RedisStreams, read_address
from relay.domain.telemetry import Listener
from tests.broker.grounds import Ground, MemoryGround, RedisGround
from tests.support.memory_broker import MemoryStream
from tests.support.stream_server import KINDS, StreamServer, find_stream_program


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def servers(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], StreamServer]]:
    """Gives the server of a kind, which is started by the first test that asks for it and ends with the worker."""
    running: dict[str, StreamServer] = {}
    with ExitStack() as stack:

        def server(kind: str) -> StreamServer:
            if kind not in running:
                program = find_stream_program(kind, pytestconfig, tmp_path_factory)
                running[kind] = stack.enter_context(StreamServer(program, tmp_path_factory.mktemp(kind)))
            return running[kind]

        yield server


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, servers: Callable[[str], StreamServer]) -> StreamServer:
    """A running server of each kind in turn, empty."""
    running = servers(request.param)
    running.client.flushall()
    return running


OwnServer = Callable[..., StreamServer]


@pytest.fixture(params=KINDS)
def own_server(
    request: pytest.FixtureRequest,
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
) -> Iterator[OwnServer]:
    """Starts servers of each kind in turn for one test alone, with options of their own."""
    program = find_stream_program(request.param, pytestconfig, tmp_path_factory)
    with ExitStack() as stack:

        def start(*options: str, sentinel: bool = False) -> StreamServer:
            return stack.enter_context(StreamServer(program, tmp_path, *options, sentinel=sentinel))

        yield start


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., RedisStreams]]:
    """Makes consumers by url, which are closed with the test."""
    async with AsyncExitStack() as stack:

        def made(url: str, consumer: str = "a", emit: Listener = lambda _: None) -> RedisStreams:
            broker = RedisStreams(read_address(url), consumer=consumer, emit=emit)
            stack.push_async_callback(broker.close)
            return broker

        yield made


@pytest.fixture
async def redis_ground(server: StreamServer) -> AsyncIterator[RedisGround]:
    """A real server of each kind, with consumers as they are asked for."""
    ground = RedisGround(server)
    yield ground
    await ground.close()


@pytest.fixture(params=["memory", *KINDS])
async def ground(request: pytest.FixtureRequest, servers: Callable[[str], StreamServer]) -> AsyncIterator[Ground]:
    """Every transport in turn."""
    made: Ground
    if request.param == "memory":
        made = MemoryGround(MemoryStream())
    else:
        running = servers(request.param)
        running.client.flushall()
        made = RedisGround(running)
    yield made
    await made.close()
