"""Taking connections from a socket that several workers share, one at a time.

Owns the accepting. A worker that takes all that wait, as event loops do, leaves none for its neighbours, and a burst of
long-lived connections is then one worker's for as long as they last. Invariant: between two connections the loop gets
its turn, in which the other workers get theirs.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from relay.app.listening import BACKLOG

PAUSE_SECONDS = 1.0
"""How long nothing is accepted after the system had no descriptor or memory for one more connection."""

logger = logging.getLogger(__name__)


class Acceptor:
    """Accepts for one worker until closed. `listener` stays its owner's.

    With `tls`, a client has `handshake_seconds` to come to terms.
    """

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        handshake_seconds: float,
    ) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._tls = tls
        self._handshake_seconds = handshake_seconds if tls is not None else None
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._resume()

    def take_rest(self) -> None:
        """Take all who wait, and nobody after them: whoever closes the socket right behind this resets no connection
        of which the client may have sent a request. Who would have to shake hands first has sent none."""
        self._rest()
        try:
            # as many as can have waited: whoever comes meanwhile must not hold up the stop for ever
            for _ in range(BACKLOG):
                if self._tls is not None or not self._take():
                    break
        except OSError as fault:
            _tell_of(fault)

    async def opened(self) -> None:
        """Wait until everybody who was taken has a protocol, but for who shakes hands."""
        if self._tls is None:
            await self.wait_closed()

    def close(self) -> None:
        """Accept no more; what was accepted lives on, but for who still owes the handshake and so has asked nothing."""
        self._rest()
        for handshake in self._opening:
            handshake.cancel()

    async def wait_closed(self) -> None:
        """Wait until each connection that had no protocol yet is gone."""
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _rest(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)

    def _accept(self) -> None:
        try:
            self._take()
        except OSError as fault:
            _tell_of(fault)
            self._rest()
            self._pause = self._loop.call_later(PAUSE_SECONDS, self._resume)

    def _take(self) -> bool:
        """Take one who waits; answers whether anybody did. Raises `OSError` if the system has no room for one more."""
        try:
            connection, _ = self._listener.accept()
        except (InterruptedError, ConnectionAbortedError):
            return True  # the client has left again
        except BlockingIOError:
            return False  # another worker was quicker
        task = self._loop.create_task(self._open(connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return True

    async def _open(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol, connection, ssl=self._tls, ssl_handshake_timeout=self._handshake_seconds
            )
        except OSError as fault:  # a client that left, that spoke no TLS, or whose certificate is none of the wanted
            logger.debug("connection_not_made", extra={"fields": {"detail": str(fault)}})
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise


def _tell_of(fault: OSError) -> None:
    """The system has no room for one more connection."""
    logger.error("connections_not_accepted", extra={"fields": {"detail": fault.strerror}})
