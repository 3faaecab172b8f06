"""The wire: one libcurl multi handle whose sockets live in an epoll set of their own, and that set is one reader of the
event loop.

Owns readiness, libcurl's timer and the collecting of what finished. It knows nothing of requests. However many sockets
are ready, the loop wakes once and all of them are served, within a budget of time that keeps TLS handshakes from
holding up everything else. No thread, no future, no task. Why so: decision 0006.

Invariants: every call into libcurl is followed by a collection, since any of them may finish transfers; a socket that
libcurl closed is never taken for a registered one (see `forget_idle`).
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from contextlib import suppress

import pycurl

from relay.sender.progress import spoil

EVENTS_PER_WAKE_UP = 512
BUSY_SECONDS = 0.005
"""How long one wake-up may go on. epoll is level-triggered, so what is left is reported at the next one. Sockets
that always have more to read would be the only ones that are ever served, if they did not come last there."""

TURNS_BETWEEN_LOOKS = 8
"""How often a request's socket is served before somebody looks whether it pours. Hardly any needs so many turns."""

_READ, _WRITE, _BROKEN = select.EPOLLIN, select.EPOLLOUT, select.EPOLLERR | select.EPOLLHUP
_INTERESTS = {
    pycurl.POLL_NONE: 0,
    pycurl.POLL_IN: _READ,
    pycurl.POLL_OUT: _WRITE,
    pycurl.POLL_INOUT: _READ | _WRITE,
}
ACTIONS = tuple(
    (pycurl.CSELECT_IN if events & _READ else 0)
    | (pycurl.CSELECT_OUT if events & _WRITE else 0)
    | (pycurl.CSELECT_ERR if events & _BROKEN else 0)
    for events in range(32)
)
"""What to tell libcurl, by the five low bits of what epoll reports: in, pri, out, err, hup."""

Finished = tuple[pycurl.Curl, int, str]
"""A transfer that ended: its handle, which still has to be dropped, libcurl's error code (0 for none) and its text."""

OnFault = Callable[[str, BaseException], None]
"""Hears of what must never happen but did: a sentence, and the exception."""


class Wire:
    """A running multi handle. All methods belong to the thread of `loop`.

    `collected` is called with what finished, from inside any method that runs transfers and from the loop; `lively`
    from the loop alone, with the sockets that were served remarkably often for one request.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        connections: int,
        clock: Callable[[], float],
        collected: Callable[[list[Finished]], None],
        lively: Callable[[set[int]], None],
        on_fault: OnFault,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._collected = collected
        self._lively = lively
        self._on_fault = on_fault
        self._watched: dict[int, int] = {}
        self._idle: set[int] = set()
        self._multiplexed: set[int] = set()
        self._left_over: list[int] = []
        self._turns: dict[int, int] = {}
        self._due_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._epoll = select.epoll()
        self._multi = self._make_multi(connections)
        loop.add_reader(self._epoll.fileno(), self._pump)

    def _make_multi(self, connections: int) -> pycurl.CurlMulti:
        multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._schedule)
        # Requests on the wire are bounded by the sender to the same number, so libcurl makes room by dropping an idle
        # connection and never lets a request wait for one.
        multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, connections)
        multi.setopt(pycurl.M_MAXCONNECTS, connections)
        multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)
        return multi

    def add(self, curl: pycurl.Curl) -> None:
        """Take a prepared handle; it begins with the next `run`."""
        self._multi.add_handle(curl)

    def drop(self, curl: pycurl.Curl) -> None:
        """Take a handle off. A transfer that has not ended ends with that, and so does its connection."""
        self._multi.remove_handle(curl)

    def run(self) -> None:
        """Begin what was added and do what is due."""
        self._sift()
        self._act(pycurl.SOCKET_TIMEOUT, 0)
        self._collect()
        self._arm()

    def note(self, fd: int, *, multiplexed: bool) -> None:
        """Learn of a new connection whether it speaks HTTP/2, where bytes may come at any time."""
        if multiplexed:
            self._multiplexed.add(fd)
        else:
            self._multiplexed.discard(fd)

    def watch_again(self, fd: int) -> None:
        """Bring a socket's registration in line with what libcurl asked for, in case one was ever lost."""
        interest = self._watched.get(fd)
        if interest is not None:
            self._register(fd, interest)

    def forget_idle(self) -> None:
        """Stop watching the sockets of kept connections. To be called before each new socket is opened.

        They stay registered while they are idle, which saves two system calls per request. But libcurl may close one
        without a word, and the next socket may get its number: so none is believed once a socket opens.
        """
        for fd in self._idle:
            del self._watched[fd]
            with suppress(OSError):  # it may be closed, and closing took it out of the set
                self._epoll.unregister(fd)
        self._idle.clear()

    def close(self) -> None:
        """Drop every transfer and every connection. Nothing is reported any more."""
        self._loop.remove_reader(self._epoll.fileno())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._multi.close()
        self._epoll.close()

    def _pump(self) -> None:
        until = self._clock() + BUSY_SECONDS
        ready = self._epoll.poll(0, EVENTS_PER_WAKE_UP)
        self._distrust_idle(ready)
        if self._left_over:
            ready = self._in_turn(ready)
        lively = set()
        for place, (fd, events) in enumerate(ready, start=1):
            if fd in self._idle:
                continue  # since a moment ago; if there is more, it is reported again
            turn = self._turns[fd] = self._turns.get(fd, 0) + 1
            if not turn % TURNS_BETWEEN_LOOKS:
                lively.add(fd)
            self._act(fd, ACTIONS[events & 31])
            if self._clock() > until:
                self._left_over = [fd for fd, _ in ready[place:]]
                break
        if self._due_at is not None and self._due_at <= self._clock():
            self._due_at = None
            self._act(pycurl.SOCKET_TIMEOUT, 0)
        self._collect()
        if lively:
            self._lively(lively)
        self._arm()

    def _in_turn(self, ready: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """What is ready, in its order, but for sockets that were served often: they come last, and take turns."""
        left = {fd: place for place, fd in enumerate(self._left_over)}
        self._left_over = []
        turns = self._turns
        return sorted(
            ready,
            key=lambda each: left.get(each[0], len(left)) if turns.get(each[0], 0) >= TURNS_BETWEEN_LOOKS else -1,
        )

    def _sift(self) -> None:
        """Look at the idle connections before any of them may be used again.

        libcurl does so once a second at most, and would take bytes that strayed in for the next request's answer.
        """
        if self._idle:
            self._distrust_idle(self._epoll.poll(0, len(self._watched)))

    def _distrust_idle(self, ready: list[tuple[int, int]]) -> None:
        """Of the sockets that epoll just reported, see that the idle ones are not used again: their peer closed them,
        or talks out of turn.

        Nothing may come between the report and this, since a number stands for a socket of ours only as long as libcurl
        had no chance to close it.
        """
        for fd, _ in ready:
            if fd in self._idle:
                self._forget(fd)
                if fd not in self._multiplexed:
                    spoil(fd)

    def _act(self, fd: int, action: int) -> None:
        try:
            self._multi.socket_action(fd, action)
        except pycurl.error as fault:
            self._on_fault("libcurl refused to act on a socket", fault)

    def _collect(self) -> None:
        finished: list[Finished] = []
        queued = 1
        while queued:
            queued, done, failed = self._multi.info_read()
            finished += [(curl, 0, "") for curl in done]
            finished += failed
        if finished:
            self._collected(finished)

    # -- what libcurl calls: nothing may be raised from here ---------------------------------------------------------

    def _schedule(self, milliseconds: int) -> None:
        self._due_at = None if milliseconds < 0 else self._clock() + milliseconds / 1000

    def _watch(self, what: int, fd: int, _multi: object, _data: object) -> None:
        try:
            if what != pycurl.POLL_REMOVE:
                self._idle.discard(fd)
                interest = _INTERESTS[what]
                if self._watched.get(fd) != interest:
                    self._watched[fd] = interest
                    self._register(fd, interest)
                return
            self._turns.pop(fd, None)
            if fd in self._watched:
                self._watch_idle(fd)
        except Exception as fault:  # noqa: BLE001 - libcurl is written in C: an exception has nowhere to go
            self._on_fault("a socket cannot be watched", fault)

    def _watch_idle(self, fd: int) -> None:
        """Go on watching a socket that libcurl needs no more for now, for what may come on it in between.

        A transfer whose answer was there at once never came to wait for one.
        """
        if self._watched[fd] != _READ:
            try:
                self._epoll.modify(fd, _READ)
            except OSError:  # it is closed already
                self._forget(fd)
                return
            self._watched[fd] = _READ
        self._idle.add(fd)

    def _register(self, fd: int, interest: int) -> None:
        try:
            self._epoll.modify(fd, interest)
        except FileNotFoundError:
            self._epoll.register(fd, interest)

    def _forget(self, fd: int) -> None:
        self._idle.discard(fd)
        if self._watched.pop(fd, None) is not None:
            with suppress(OSError):  # it may be closed, and closing took it out of the set
                self._epoll.unregister(fd)

    # -- libcurl's timer, on one timer of the loop --------------------------------------------------------------------

    def _arm(self) -> None:
        """See that the loop wakes when libcurl's timer is due; a timer that is set for earlier simply looks again."""
        due_at = self._due_at
        if due_at is None or (self._timer is not None and self._timer_at <= due_at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due_at
        self._timer = self._loop.call_later(max(0.0, due_at - self._clock()), self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        if self._due_at is not None:
            self._pump()
