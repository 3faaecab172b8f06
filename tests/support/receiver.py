"""The real testkit receiver on a free loopback port, for tests to send to.

It runs in a thread with an event loop of its own, so it goes on answering whatever the test's own loop does, and a
test can look at what arrived without asking over HTTP. Every wait has a deadline.
"""

import asyncio
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import uvloop

from relay.domain.secret import Secret
from relay.testkit.app import ReceivingApp, create_app
from relay.testkit.arrivals import Arrival
from relay.testkit.keyring import Keyring
from relay.testkit.serving import Tls, listen, serve
from tests.support.certificates import ServerCertificate, issue

START_SECONDS = 10.0
STOP_SECONDS = 15.0


class Receiver:
    """A running receiver; use it as a context manager.

    Bodies are kept. `secret` is what `/verify` accepts from the start (see also `trust`); `relay_url` and `api_key`
    are for `/ack-later`; with `tls` it serves HTTPS under the authority in `ca_file`.
    """

    def __init__(
        self,
        *,
        secret: str | None = None,
        relay_url: str = "http://127.0.0.1:8080",
        api_key: str | None = None,
        tls: bool = False,
        host: str = "127.0.0.1",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secret = None if secret is None else Secret(secret)
        self._relay_url = relay_url
        self._api_key = None if api_key is None else Secret(api_key)
        self._host = host
        self._clock = clock
        self._with_tls = tls
        self._certificate: ServerCertificate | None = None
        self._stack = ExitStack()
        self._changed = threading.Condition()
        self._arrived: list[Arrival] = []
        self._arrived_at: defaultdict[str, list[Arrival]] = defaultdict(list)
        self._port: int | None = None
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._app: ReceivingApp | None = None
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)

    def __enter__(self) -> Self:
        if self._with_tls:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="receiver-"))
            self._certificate = issue(Path(folder), "localhost", "127.0.0.1", "::1")
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._port is not None or self._failure is not None, START_SECONDS)
        if self._port is None:
            self.close()
            raise RuntimeError("the receiver did not start") from self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop it, whatever it holds open, and free its port. Raises what its thread died of."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_SECONDS)
        self._stack.close()
        if self._thread.is_alive():
            raise RuntimeError("the receiver did not stop")
        if self._failure is not None:
            raise RuntimeError("the receiver died") from self._failure

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._port is not None
        return self._port

    @property
    def ca_file(self) -> Path:
        """The authority to trust, where it was started with `tls`."""
        assert self._certificate is not None
        return self._certificate.authority

    def url(self, path: str = "/ok") -> str:
        """The url of a mode, for example `url("/slow/ledger-writer?ms=20")`."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._with_tls else 'http'}://{host}:{self.port}{path}"

    def received(self, path: str | None = None) -> list[Arrival]:
        """What has arrived so far, in order; only at this path if one is given."""
        with self._changed:
            return list(self._at(path))

    def bodies(self, path: str | None = None) -> list[bytes]:
        """The bytes of the bodies that have arrived so far, in order."""
        return [arrival.body for arrival in self.received(path) if arrival.body is not None]

    def wait_for(self, count: int, within: float, path: str | None = None) -> list[Arrival]:
        """Wait until that many have arrived, and return all that have. Raises `AssertionError` after `within` seconds.

        It blocks the thread; where the test's own loop has work to do, await `arrive` instead.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._at(path)) >= count, within):
                where = "" if path is None else f" at {path}"
                raise AssertionError(f"{len(self._at(path))} of {count} arrived{where} within {within} s")
            return list(self._at(path))

    async def arrive(self, count: int, within: float, path: str | None = None) -> list[Arrival]:
        """`wait_for`, but for coroutines."""
        return await asyncio.to_thread(self.wait_for, count, within, path)

    def trust(self, secret: str, name: str = "") -> None:
        """Let `/verify` accept this secret too, or `/verify/<name>` alone."""
        assert self._loop is not None
        assert self._app is not None
        added = threading.Event()
        keyring = self._app.keyring

        def add() -> None:
            keyring.add(Secret(secret), name)
            added.set()

        self._loop.call_soon_threadsafe(add)
        if not added.wait(START_SECONDS):
            raise RuntimeError("the receiver does not react")

    def clear(self) -> None:
        """Forget what has arrived so far."""
        with self._changed:
            self._arrived.clear()
            self._arrived_at.clear()

    def _at(self, path: str | None) -> list[Arrival]:
        return self._arrived if path is None else self._arrived_at.get(path, [])

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as failure:  # noqa: BLE001 - handed over to the thread that waits for the start or the stop
            self._failure = failure
            with self._changed:
                self._changed.notify_all()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._app = create_app(
            clock=self._clock,
            keyring=Keyring(*(() if self._secret is None else (self._secret,))),
            relay_url=self._relay_url,
            api_key=self._api_key,
            keep_bodies=True,
            on_arrival=self._note,
        )
        certificate = self._certificate
        tls = None if certificate is None else Tls(certificate.certificate, certificate.key)
        await serve(self._app, listen(self._host, 0), stop=self._stop, ready=self._listening, tls=tls)

    def _listening(self, address: tuple[str, int]) -> None:
        with self._changed:
            self._port = address[1]
            self._changed.notify_all()

    def _note(self, arrival: Arrival) -> None:
        with self._changed:
            self._arrived.append(arrival)
            self._arrived_at[arrival.path].append(arrival)
            self._changed.notify_all()
