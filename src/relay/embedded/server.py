"""One embedded server, as its user sees it.

Owns the handle: what is held between a start and the stop, and the server's addresses. The steps of a start are
`starting`'s. Invariant: a start that raises leaves nothing running that did not run before.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from relay.embedded.configuration import CONNECTIONS
from relay.embedded.faults import EmbeddedFault
from relay.embedded.launching import Waiting, abort, end
from relay.embedded.layout import Layout, told_in_words
from relay.embedded.query import Line
from relay.embedded.replication import Group
from relay.embedded.sockets import discard_sockets
from relay.embedded.starting import Model, Running, Start, Wish


def silently(_: str) -> None:
    """Report nothing."""


class EmbeddedServer:
    """One PostgreSQL server in ``DIR/pg/<replica>``, for the processes of this machine.

    `connections` may be open at once. `settings` are added to Relay's own, and win; tests use it, the product leaves it
    alone. `group` says with whom it replicates. Nothing happens before `start`. Not for several threads at once.
    """

    def __init__(
        self,
        data_dir: Path,
        replica: str = "r1",
        *,
        connections: int = CONNECTIONS,
        settings: Mapping[str, str] | None = None,
        group: Group | None = None,
    ) -> None:
        self._layout = Layout(data_dir, replica)
        self._wish = Wish(self._layout, connections, dict(settings or {}), group)
        self._running: Running | None = None

    @property
    def dsn(self) -> str:
        """The address of the database for its owner, password included. Raises `EmbeddedFault` unless started."""
        running = self._require()
        return running.credentials.url(running.sockets)

    @property
    def superuser_dsn(self) -> str:
        """The same for the superuser: for tests and repairs, never for Relay's own work."""
        running = self._require()
        return running.credentials.url(running.sockets, superuser=True)

    @property
    def pid(self) -> int:
        """The process number of the server. Raises `EmbeddedFault` unless started."""
        return self._require().postmaster.pid

    def line(self) -> Line:
        """The way to ask it something as its superuser. Raises `EmbeddedFault` unless started."""
        return self._require().line()

    def start(
        self,
        on_progress: Callable[[str], None] = silently,
        *,
        give_up: threading.Event | None = None,
        model: EmbeddedServer | None = None,
        anew: bool = False,
    ) -> None:
        """Bring the server up, and return when it takes queries; `on_progress` is told what takes time.

        Setting `give_up`, from another thread, ends a start that takes too long for somebody.

        A new folder gets a new database, or with `model`, a server that runs, a copy of its as a standby; `anew`
        replaces the folder that is there. A server that was killed recovers first, however long that takes within
        `cluster.RECOVERY_SECONDS`. A server that still runs, because only Relay was killed, is taken over. Does
        nothing if it is started already. Raises `EmbeddedFault`, and then nothing runs that did not run before.
        """
        self.start_for(Waiting(on_progress, give_up.is_set if give_up is not None else bool), model=model, anew=anew)

    def start_for(self, waiting: Waiting, *, model: EmbeddedServer | None = None, anew: bool = False) -> None:
        """The same for somebody who has a `Waiting` already."""
        if self._running is None:
            copied = None if model is None else Model(model._layout.cluster, model._require())
            with told_in_words(self._layout), contextlib.ExitStack() as undo:
                self._running = Start(self._wish, waiting, undo).run(copied, anew=anew)
                undo.pop_all()

    def stop(self, *, hard: bool = False) -> None:
        """Stop the server: in order, and if that takes too long, or with `hard`, as by a crash. Does nothing if it is
        not started.

        Raises `EmbeddedFault` if it does not end.
        """
        running, self._running = self._running, None
        if running is None:
            return
        with told_in_words(self._layout), contextlib.ExitStack() as last:
            last.callback(running.lock.release)
            running.trimmer.stop()
            (abort if hard else end)(running.postmaster)
            discard_sockets(running.sockets)

    @property
    def started(self) -> bool:
        """Whether it was started, and not stopped since; it may have died."""
        return self._running is not None

    def alive(self) -> bool:
        """Whether the server that was started still runs; False also if none was, or if it was stopped."""
        return self._running is not None and self._running.postmaster.alive()

    def _require(self) -> Running:
        if self._running is None:
            raise EmbeddedFault(f"the server in {self._layout.cluster} is not started")
        return self._running
