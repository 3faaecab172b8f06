"""Claims about sharing a listening socket among workers."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from relay.app import accepting
from relay.app.accepting import Acceptor
from relay.app.listening import listen
from relay.settings import Bind

PATIENCE_SECONDS = 20.0


class Counted(asyncio.Protocol):
    """A connection that says whose it is."""

    def __init__(self, name: str) -> None:
        self._name = name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self._name.encode())
        transport.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with listen(Bind("127.0.0.1", 0), "RELAY_BIND") as bound:
        yield bound


async def owner(address: tuple[str, int]) -> bytes:
    async with asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await asyncio.open_connection(*address)
        try:
            return await reader.read()
        finally:
            writer.close()


async def test_a_burst_of_connections_is_not_all_one_workers(listener: socket.socket) -> None:
    with listener.dup() as of_the_other:
        workers = [
            Acceptor(each, partial(Counted, name), None, 1.0) for name, each in (("a", listener), ("b", of_the_other))
        ]
        whose = Counter(await asyncio.gather(*(owner(listener.getsockname()) for _ in range(40))))
        for worker in workers:
            worker.close()
            await worker.wait_closed()
    assert min(whose[b"a"], whose[b"b"]) >= 10


async def test_a_socket_that_another_worker_emptied_is_no_trouble(listener: socket.socket) -> None:
    acceptor = Acceptor(listener, partial(Counted, "a"), None, 1.0)
    acceptor._accept()
    assert await owner(listener.getsockname()) == b"a"
    acceptor.close()


class Exhausted:
    """A listening socket of a system that has no descriptor left, the first time."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.asked = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        if self.asked == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listener.accept()

    def setblocking(self, flag: bool) -> None:
        self._listener.setblocking(flag)

    def fileno(self) -> int:
        return self._listener.fileno()


async def test_a_system_without_descriptors_is_given_a_moment(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "PAUSE_SECONDS", 0.01)
    exhausted = Exhausted(listener)
    acceptor = Acceptor(exhausted, partial(Counted, "a"), None, 1.0)  # type: ignore[arg-type]  # what it uses of a socket
    assert await owner(listener.getsockname()) == b"a"
    assert exhausted.asked == 2
    acceptor.close()
