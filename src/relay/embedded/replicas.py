"""The embedded servers of an installation, one or three, as one database.

Owns their common start and stop, and their care while they run: who is started again, who becomes the primary, who is
built anew. Leaves each step to its module. Invariants: one Relay process cares for all servers of a folder, so nobody
has to be asked for consent; no data folder is replaced but by a complete copy of a primary that runs; a standby becomes
the primary only when the old primary's folder is gone, its process has ended, and the other standby has no more.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

from relay.embedded import cluster
from relay.embedded.account import account_for
from relay.embedded.configuration import CONNECTIONS
from relay.embedded.control import connections_of
from relay.embedded.faults import DataFolderRefused, EmbeddedFault, StartFailed
from relay.embedded.following import Follower, Patience, Remedy, followers, make_slots, position
from relay.embedded.launching import Waiting, end_strays
from relay.embedded.layout import Layout, told_in_words
from relay.embedded.lock import Lock
from relay.embedded.programs import Programs, find_programs
from relay.embedded.promotion import final_positions, furthest, promote
from relay.embedded.query import NoAnswer
from relay.embedded.replication import REPLICAS, Group, is_standby
from relay.embedded.server import EmbeddedServer, silently
from relay.embedded.standing import Standing, caught_up, check_alone, check_promotable, is_gone, look_at

WATCH_SECONDS = 5.0
"""How often the primary is asked about its standbys."""

STREAM_SECONDS = 15.0
"""How long a start waits for the standbys to stream, before it goes on without them."""

_LOOK_SECONDS = 0.1


class EmbeddedReplicas:
    """`count` servers (1 or 3) in ``DIR/pg``, of which one takes writes, and `quorum` of which must have a commit.

    `connections` may be open at once. Nothing happens before `start`. Not for several threads at once.
    """

    def __init__(self, data_dir: Path, count: int = 1, *, quorum: int = 1, connections: int = CONNECTIONS) -> None:
        self._data_dir = data_dir
        self._layout = Layout(data_dir)
        self._names = REPLICAS[:count]
        self._group = Group(self._names, quorum) if count > 1 else None
        self._connections = connections
        self._programs: Programs | None = None
        self._lock: Lock | None = None
        self._servers: dict[str, EmbeddedServer] = {}
        self._patience = {name: Patience() for name in self._names}
        self._watch_at = 0.0

    @property
    def pids(self) -> tuple[int, ...]:
        """The process numbers of the servers that were started, in the order of their names."""
        return tuple(self._servers[name].pid for name in self._names if name in self._servers)

    def superuser_dsn(self, name: str) -> str:
        """The address of one server for its superuser: for tests and repairs. Raises `EmbeddedFault` unless started."""
        return self._server(name).superuser_dsn

    def start(self, on_progress: Callable[[str], None] = silently, *, give_up: threading.Event | None = None) -> None:
        """Bring all of them up, and return when the primary takes writes; `on_progress` is told what takes time.

        Setting `give_up`, from another thread, ends it early. A standby that does not come up is told, and left to
        `mend`. Raises `EmbeddedFault`, and then nothing runs.
        """
        waiting = _waiting(_once_each(on_progress), give_up)
        with told_in_words(self._layout), contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            self._take(find_programs())
            standing = self._standing()
            if standing.primary is None and not standing.standbys:
                self._start_again(self._names[0], waiting)  # which makes a new database
                standing = self._standing()
            self._bring_up(standing, waiting)
            self._await_followers(waiting)
            undo.pop_all()

    def mend(self, on_progress: Callable[[str], None] = silently, *, give_up: threading.Event | None = None) -> bool:
        """Look at all of them once, and set right what is wrong; return whether all is well.

        Raises `EmbeddedFault` if there is no primary after it, which another call may change.
        """
        waiting = _waiting(on_progress, give_up)
        with told_in_words(self._layout):
            return self._bring_up(self._standing(), waiting)

    def stop(self) -> None:
        """Stop all of them, the primary first, so that the standbys get all that it has. Does nothing if none runs.

        Raises `EmbeddedFault` if one does not end, after the others were stopped.
        """
        servers, self._servers = self._servers, {}
        lock, self._lock = self._lock, None
        with told_in_words(self._layout), contextlib.ExitStack() as steps:
            if lock is not None:
                steps.callback(lock.release)
            for name in sorted(servers, key=self._is_standby, reverse=True):
                steps.callback(servers[name].stop)  # the last is called first

    def _take(self, programs: Programs) -> None:
        """Find out whether the folders can be used, and become the one who does. Raises `EmbeddedFault`, `OSError`."""
        there = [name for name in REPLICAS if cluster.exists(Layout(self._data_dir, name).cluster, programs.major)]
        accounts = {account_for(Layout(self._data_dir, name).cluster) for name in there or self._names[:1]}
        if len(accounts) > 1:
            raise DataFolderRefused(
                f"{' and '.join(there)} in {self._layout.home} belong to different accounts; give them to one, with"
                " chown -R"
            )
        self._layout.make_folders(passable=not accounts.pop().is_us)
        self._lock = Lock(self._layout.supervisor_lock)
        if self._group is None:
            check_alone(self._data_dir)
        self._programs = programs
        if len(there) > 1 or self._group is not None:
            # Once there are standbys this number only grows: they refuse to follow a primary that allows more.
            known = [connections_of(programs, Layout(self._data_dir, name).cluster) for name in there]
            self._connections = max(self._connections, *known) if known else self._connections

    def _standing(self) -> Standing:
        assert self._programs is not None
        return look_at(self._data_dir, self._names, self._programs)

    def _server(self, name: str) -> EmbeddedServer:
        if name not in self._servers:
            self._servers[name] = EmbeddedServer(self._data_dir, name, connections=self._connections, group=self._group)
        return self._servers[name]

    def _bring_up(self, standing: Standing, waiting: Waiting) -> bool:
        name = standing.primary if standing.primary is not None else self._fail_over(standing, waiting)
        primary = self._server(name)
        if not primary.alive():
            self._start_again(name, waiting)
        if self._group is None:
            return True
        others = self._group.others(name)
        beside = Waiting(waiting.report, lambda: waiting.given_up() or not self._sound(name))
        well = [self._bring_up_standby(other, primary, beside) for other in others]
        return all(well) and self._watch(primary, others, beside)

    def _start_again(self, name: str, waiting: Waiting) -> None:
        server = self._server(name)
        if server.started:
            waiting.report(f"the server {name} has died; starting it again")
        server.stop()  # what is left of it
        server.start_for(waiting)
        if self._group is not None:
            make_slots(server.line(), self._group.others(name))

    def _await_followers(self, waiting: Waiting) -> None:
        """Wait a little until the standbys stream, and tell who is what."""
        name = self._standing().primary
        if self._group is None or name is None:
            return
        others = self._group.others(name)
        deadline = time.monotonic() + STREAM_SECONDS
        while len(streaming := self._streaming(name, others)) < len(others) and time.monotonic() < deadline:
            waiting.check()
            time.sleep(_LOOK_SECONDS)
        waiting.report(f"{name} is the primary; its standbys that stream: {', '.join(streaming) or 'none yet'}")

    def _streaming(self, primary: str, others: tuple[str, ...]) -> list[str]:
        try:
            seen = followers(self._server(primary).line(), others)
        except NoAnswer:  # it may be busy with what it has to recover
            return []
        return [name for name, follower in seen.items() if follower.streams]

    def _fail_over(self, standing: Standing, waiting: Waiting) -> str:
        """Make the standby that has the most the primary. Raises `EmbeddedFault`."""
        home = self._layout.home
        if not standing.standbys:
            raise DataFolderRefused(f"all data folders in {home} are gone: stop Relay and put one back from a backup")
        check_promotable(self._data_dir, self._names, standing)
        for name in standing.gone:
            waiting.report(f"{name} in {home} is gone, and it was the primary")
            self._server(name).stop(hard=True)
            end_strays(Layout(self._data_dir, name), waiting.report)
        for name in standing.standbys:
            self._make_answer(name, waiting)
        positions = final_positions({name: self._server(name).line() for name in standing.standbys}, waiting)
        chosen = furthest(positions)
        told = ", ".join(f"{name} is at {at}" for name, at in positions.items())
        waiting.report(f"{told}: {chosen} becomes the primary")
        promote(self._server(chosen).line())
        return chosen

    def _make_answer(self, name: str, waiting: Waiting) -> None:
        server = self._server(name)
        if server.alive() and self._place_of(name) is None:
            waiting.report(f"{name} runs and does not answer: it gets a start anew")
            server.stop(hard=True)
        if not server.alive():
            self._start_again(name, waiting)

    def _bring_up_standby(self, name: str, primary: EmbeddedServer, waiting: Waiting) -> bool:
        server = self._server(name)
        gone = is_gone(Layout(self._data_dir, name).cluster)
        if server.alive() and not gone:
            return True
        try:
            if gone:
                self._build(name, primary, waiting)
            else:
                self._start_or_build(name, primary, waiting)
        except EmbeddedFault as fault:
            waiting.report(f"the standby {name} does not come up: {_one_line(fault)}")
            return False
        return True

    def _start_or_build(self, name: str, primary: EmbeddedServer, waiting: Waiting) -> None:
        try:
            self._start_again(name, waiting)
        except StartFailed as fault:
            waiting.check()
            waiting.report(f"the standby {name} does not start, and is built anew: {_one_line(fault)}")
            self._build(name, primary, waiting)

    def _build(self, name: str, primary: EmbeddedServer, waiting: Waiting) -> None:
        assert self._group is not None
        server = self._server(name)
        server.stop(hard=True)
        server.start_for(waiting, model=primary, anew=True)
        make_slots(server.line(), self._group.others(name))

    def _watch(self, primary: EmbeddedServer, others: tuple[str, ...], waiting: Waiting) -> bool:
        """Ask the primary about its standbys now and then, and help those that do not follow."""
        now = time.monotonic()
        if now < self._watch_at:
            return True
        self._watch_at = now + WATCH_SECONDS
        try:
            seen = followers(primary.line(), others)
        except NoAnswer as fault:
            waiting.report(f"the primary does not say who follows it: {_one_line(fault)}")
            return True
        if all(follower.streams for follower in seen.values()):
            caught_up(self._data_dir)
        helped = [self._help(name, follower, primary, waiting) for name, follower in seen.items()]
        return all(helped)

    def _help(self, name: str, follower: Follower, primary: EmbeddedServer, waiting: Waiting) -> bool:
        place = None if follower.connected else self._place_of(name)
        remedy = self._patience[name].judge(time.monotonic(), follower, place)
        if remedy is Remedy.NONE:
            return True
        why = "lacks what its primary has no more" if follower.lost else "does not follow its primary"
        waiting.report(f"the standby {name} {why}: it gets {remedy.value}")
        try:
            if remedy is Remedy.RESTART:
                self._server(name).stop(hard=True)
                self._start_again(name, waiting)
            else:
                self._build(name, primary, waiting)
        except EmbeddedFault as fault:
            waiting.report(f"the standby {name} does not come up: {_one_line(fault)}")
            return False
        return True

    def _place_of(self, name: str) -> str | None:
        try:
            return position(self._server(name).line())
        except EmbeddedFault:  # it says nothing, which its patience counts
            return None

    def _sound(self, name: str) -> bool:
        return self._server(name).alive() and not is_gone(Layout(self._data_dir, name).cluster)

    def _is_standby(self, name: str) -> bool:
        return is_standby(Layout(self._data_dir, name).cluster)


def _waiting(on_progress: Callable[[str], None], give_up: threading.Event | None) -> Waiting:
    return Waiting(on_progress, give_up.is_set if give_up is not None else bool)


def _once_each(report: Callable[[str], None]) -> Callable[[str], None]:
    """What is the same for all servers need be told once."""
    told: set[str] = set()

    def tell(line: str) -> None:
        if line not in told:
            told.add(line)
            report(line)

    return tell


def _one_line(fault: BaseException) -> str:
    return " ".join(str(fault).split())
