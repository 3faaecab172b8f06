"""The sender: requests in, facts out, in batches, on the event loop's own thread.

Owns what happens to a request from its hand-over until its facts are delivered: judged, resolved, given its place on
the wire, swept for silence. Leaves HTTP to libcurl (`transfer`, `wire`) and decides nothing about the outcome. There is
no future and no task per request.

Invariants: every submitted request comes back exactly once, whatever breaks in here, and within its total timeout and
half a second as long as the loop has its turns; `deliver` is never called from inside `submit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Generic, TypeVar

import pycurl

from relay.domain.egress import EgressPolicy, Refusal, judge_all
from relay.domain.sending import ErrorClass, OutboundRequest, SendFacts
from relay.sender import authorities, failure, progress
from relay.sender.limits import SendLimits
from relay.sender.places import Places
from relay.sender.request import Unsendable
from relay.sender.resolver import Answer, Resolver
from relay.sender.route import Routes
from relay.sender.transfer import Setting, Transfer
from relay.sender.wire import Finished, OnFault, Wire

Token = TypeVar("Token")

SWEEP_SECONDS = 0.5
LEAST_SECONDS = 0.05
"""A request that has less than this left when a place becomes free is not worth beginning."""

STALL_SECONDS = 1.0
"""How late the sweep may come before it shows that the loop had no turns. Time that this process lost is nobody's
fault but its own: an answer may have been there all the while."""

SILENT = (
    "nothing came and nothing was taken for {:g} s: RELAY_READ_TIMEOUT_SECS, or a longer timeout_seconds of the"
    " endpoint, allows more"
)

ON_OUR_CLOCK = frozenset({ErrorClass.DNS_TIMEOUT, ErrorClass.CONNECT_TIMEOUT, ErrorClass.TOTAL_TIMEOUT})
"""Bounds that are measured by this process's clock alone, whether it does its part or not."""

Deliver = Callable[[list[tuple[Token, SendFacts]]], None]


class HttpSender(Generic[Token]):
    """Sends requests and delivers their facts; `start` it inside the loop it is to run on.

    `deliver` gets everything that finished since the last time, once per turn of the loop. `clock` counts seconds and
    never goes back. `on_fault` hears of bugs, with a sentence; without it they go to the loop's exception handler.
    """

    def __init__(
        self,
        *,
        policy: EgressPolicy,
        limits: SendLimits,
        clock: Callable[[], float],
        deliver: Deliver[Token],
        on_fault: OnFault | None = None,
    ) -> None:
        self._policy = policy
        self._limits = limits
        self._clock = clock
        self._deliver = deliver
        self._on_fault = on_fault or self._tell_loop
        self._routes = Routes(policy)
        self._live: dict[pycurl.Curl, Transfer[Token]] = {}
        self._free: list[Transfer[Token]] = []
        self._all: list[Transfer[Token]] = []
        self._places: Places[Transfer[Token]] = Places(total=limits.connections, per_origin=limits.connections_per_host)
        self._finished: list[tuple[Token, SendFacts]] = []
        self._flushing = False
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._sweep_due = inf
        self._open = False
        self._empty = asyncio.Event()

    async def start(self) -> None:
        """Make ready for `submit`. Raises `NoAuthorities` without certificates to verify with; nothing is open then."""
        bundle = authorities.find(self._limits.ca_file)
        loop = self._loop = asyncio.get_running_loop()
        self._wire = Wire(
            loop,
            connections=self._limits.connections,
            clock=self._clock,
            collected=self._collected,
            lively=self._look_at_lively,
            on_fault=self._on_fault,
        )
        try:
            self._resolver = Resolver(
                loop,
                limits=self._limits.resolver,
                judge=partial(judge_all, self._policy),
                clock=self._clock,
                on_fault=self._on_fault,
            )
        except BaseException:
            self._wire.close()
            raise
        self._setting = Setting(self._policy, self._limits, bundle, self._wire.forget_idle, self._on_fault)
        self._open = True

    async def close(self, within: float) -> None:
        """Wait up to `within` seconds for what is in flight, report the rest, and let go of everything.

        What was on the wire by then is CUT_SHORT, what certainly was not is LOCAL.
        """
        if not self._open:
            return
        self._open = False
        try:
            async with asyncio.timeout(within):
                while self.in_flight:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            now = self._clock()
            for transfer in list(self._live.values()):
                self._guarded(transfer, self._abandon, now)
            self._flush()
        finally:
            self._let_go()

    def _abandon(self, transfer: Transfer[Token], now: float) -> None:
        self._cut_short(transfer, ErrorClass.LOCAL, "the sender was closed before the answer came", now)

    def _let_go(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._resolver.close()
        self._wire.close()
        for transfer in self._all:
            transfer.curl.close()

    @property
    def in_flight(self) -> int:
        """Requests that were submitted and whose facts were not yet delivered."""
        return len(self._live) + len(self._finished)

    def submit(self, batch: Sequence[tuple[Token, OutboundRequest]]) -> None:
        """Take requests. Never blocks; each comes back through `deliver`.

        Raises `RuntimeError` unless started, and takes none then: whoever hears of it may count on nothing being sent.
        """
        if not self._open:
            raise RuntimeError("the sender is not open")
        now = self._clock()
        if self._sweep_timer is None:
            self._arm_sweep(now)
        for token, request in batch:
            self._take(token, request, now)
        try:
            self._wire.run()
        except Exception as fault:  # noqa: BLE001 - they were taken: what the sweep finds of them comes back
            self._on_fault("the requests could not be begun at once", fault)

    # -- one request's way --------------------------------------------------------------------------------------------

    def _take(self, token: Token, request: OutboundRequest, now: float) -> None:
        try:
            transfer = self._begun(token, request, now)
        except Exception as fault:  # noqa: BLE001 - one request's bug must not keep the others from leaving
            fault.add_note(str(token))
            self._on_fault("a request could not be begun", fault)
            self._finish(token, SendFacts(error_class=ErrorClass.LOCAL, detail="the request could not be begun"))
            return
        if transfer is not None:
            self._guarded(transfer, self._proceed, now)

    def _begun(self, token: Token, request: OutboundRequest, now: float) -> Transfer[Token] | None:
        """A live transfer for the request; None for one that was refused, and so has its facts already."""
        route = self._routes.find(request.url)
        if isinstance(route, Refusal):
            self._finish(token, SendFacts(error_class=failure.refused_class(route.reason), detail=route.detail))
            return None
        transfer = self._free.pop() if self._free else self._make_transfer()
        transfer.begin(token, request, route, now)
        self._live[transfer.curl] = transfer
        return transfer

    def _guarded(self, transfer: Transfer[Token], step: Callable[[Transfer[Token], float], object], now: float) -> None:
        """Take a step of a live transfer; a bug in it ends that transfer, and none but that one."""
        turn = transfer.turn
        try:
            step(transfer, now)
        except Exception as fault:  # noqa: BLE001 - every request comes back, whatever breaks
            self._broke(transfer, turn, fault)

    def _broke(self, transfer: Transfer[Token], turn: int, fault: Exception) -> None:
        """End the request that a transfer had in that `turn`, if it did not end before the bug showed."""
        is_under_way = transfer.turn == turn and transfer.curl in self._live
        if is_under_way:
            fault.add_note(str(transfer.token))
        self._on_fault("a request could not go on", fault)
        if is_under_way:
            # Nothing is asked of the transfer or of libcurl for these facts: it may be they that broke.
            sent = transfer.has_left or transfer.on_wire_at is not None
            error = ErrorClass.CUT_SHORT if sent else ErrorClass.LOCAL
            self._end(transfer, SendFacts(error_class=error, detail="the request could not go on"))

    def _make_transfer(self) -> Transfer[Token]:
        transfer: Transfer[Token] = Transfer(self._setting)
        # Handles live as long as the sender: kept connections refer to those that opened them.
        self._all.append(transfer)
        return transfer

    def _proceed(self, transfer: Transfer[Token], now: float) -> None:
        if transfer.route.fresh_until > now:
            self._launch(transfer, now)
        else:
            self._look_up(transfer, now)

    def _look_up(self, transfer: Transfer[Token], now: float) -> None:
        name = transfer.route.target.host
        answer = self._resolver.known(name)
        if answer is not None:
            self._resolved(transfer, answer)
            return
        left = min(self._limits.connect_seconds, transfer.deadline - now)
        self._resolver.resolve(name, partial(self._resolved_later, transfer, transfer.turn), left)

    def _resolved_later(self, transfer: Transfer[Token], turn: int, answer: Answer) -> None:
        if transfer.turn != turn:
            return  # the request that waited came to its end, and another may have its transfer
        self._guarded(transfer, lambda waiting, _: self._resolved(waiting, answer), self._clock())
        self._wire.run()

    def _resolved(self, transfer: Transfer[Token], answer: Answer) -> None:
        now = self._clock()
        if answer.refusal is not None:
            refusal = answer.refusal
            self._end(transfer, transfer.cut_short(failure.refused_class(refusal.reason), refusal.detail, now))
        elif answer.error is not None:
            self._end(transfer, transfer.cut_short(answer.error, answer.detail, now))
        else:
            transfer.route.take(answer)
            self._launch(transfer, now)

    def _launch(self, transfer: Transfer[Token], now: float) -> None:
        """Put a transfer on the wire, or in the queue while there is no place."""
        if not self._places.has_room(transfer.route.origin):
            transfer.had_to_wait = True
            self._places.wait(transfer.route.origin, transfer)
            return
        try:
            transfer.prepare(now)
        except Unsendable as fault:
            self._end(transfer, transfer.cut_short(ErrorClass.REFUSED_URL, f"the request cannot be sent: {fault}", now))
            return
        transfer.moved_at = now
        self._put_on_wire(transfer, now)

    def _put_on_wire(self, transfer: Transfer[Token], since: float) -> None:
        self._wire.add(transfer.curl)
        transfer.on_wire_at = since
        self._places.take(transfer.route.origin)

    def _take_off_wire(self, transfer: Transfer[Token]) -> None:
        """Give its place back; nothing to do for one that has none."""
        if transfer.on_wire_at is None:
            return
        transfer.on_wire_at = None
        self._places.give_back(transfer.route.origin)
        self._wire.drop(transfer.curl)

    def _collected(self, finished: list[Finished]) -> None:
        now = self._clock()
        for curl, code, text in finished:
            transfer = self._live.get(curl)
            if transfer is None:
                continue  # a bug has ended it before libcurl did
            turn = transfer.turn
            try:
                self._conclude(transfer, code, text, now)
            except Exception as fault:  # noqa: BLE001 - one request's bug must not keep the others' facts
                self._broke(transfer, turn, fault)
        self._launch_waiting(now)

    def _conclude(self, transfer: Transfer[Token], code: int, text: str, now: float) -> None:
        """End a transfer that libcurl has finished, or repeat it."""
        if code and transfer.died_with_its_connection(code):
            self._try_again(transfer, now)
            return
        if transfer.is_new_connection:
            self._wire.note(progress.socket_of(transfer.curl), multiplexed=transfer.is_multiplexed)
        self._end(transfer, transfer.facts(code, text, now))

    def _try_again(self, transfer: Transfer[Token], now: float) -> None:
        """Repeat, once and at once, what a dead kept connection spoiled. It keeps its place."""
        since = transfer.on_wire_at
        assert since is not None, "only a transfer that libcurl had can have died"
        transfer.has_left = True
        self._take_off_wire(transfer)
        transfer.renew(now)
        self._put_on_wire(transfer, since)
        self._loop.call_soon(self._run)

    def _run(self) -> None:
        if self._open or self._live:
            self._wire.run()

    def _launch_waiting(self, now: float) -> None:
        """Give the places that became free to those that waited longest."""
        if not self._places.anyone_waits:
            return
        while (transfer := self._places.next()) is not None:
            transfer.connecting_since = now
            self._guarded(transfer, self._give_up if _is_late(transfer, now) else self._proceed, now)
        self._loop.call_soon(self._run)

    def _give_up(self, transfer: Transfer[Token], now: float) -> None:
        """A request that found no place in its time says nothing about its endpoint."""
        self._cut_short(transfer, ErrorClass.LOCAL, "no connection became free in time", now)

    def _end(self, transfer: Transfer[Token], facts: SendFacts) -> None:
        """Deliver the facts of a live transfer, once, and make it free for another request."""
        facts = self._fairly(transfer, facts)
        del self._live[transfer.curl]
        self._finish(transfer.token, facts)
        try:
            self._take_off_wire(transfer)
            transfer.clear()
        except Exception as fault:  # noqa: BLE001 - its facts are under way; only its handle is not used again
            self._on_fault("a request's handle could not be cleared", fault)
        else:
            self._free.append(transfer)

    def _fairly(self, transfer: Transfer[Token], facts: SendFacts) -> SendFacts:
        """The facts without a timeout that this process may have caused by having had no turns meanwhile."""
        if facts.error_class not in ON_OUR_CLOCK or facts.status_code is not None:
            return facts
        if not (transfer.held_up or self._is_stalled(self._clock())):
            return facts
        detail = "this process was held up, so the time says nothing about the endpoint"
        return facts._replace(error_class=transfer.owned(ErrorClass.LOCAL), detail=detail)

    def _is_stalled(self, now: float) -> bool:
        """Whether the loop's turns have just come back after they were missing for long."""
        return now - self._sweep_due > STALL_SECONDS

    def _cut_short(self, transfer: Transfer[Token], error: ErrorClass, detail: str, now: float) -> None:
        self._end(transfer, transfer.cut_short(error, detail, now))

    # -- facts out ----------------------------------------------------------------------------------------------------

    def _finish(self, token: Token, facts: SendFacts) -> None:
        self._finished.append((token, facts))
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        finished, self._finished = self._finished, []
        if finished:
            try:
                self._deliver(finished)
            except Exception as fault:  # noqa: BLE001 - the others' facts still have to come
                self._on_fault("facts could not be delivered", fault)
        if not self.in_flight:
            self._empty.set()

    # -- the sweep ----------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Twice a second while anything is in flight: end what is silent, floods us, or waited too long for a place."""
        self._sweep_timer = None
        try:
            now = self._clock()
            if self._is_stalled(now):
                self._excuse(now)
            self._sweep_due = inf
            self._sweep_silent(now)
            self._sweep_waiting(now)
            self._wire.run()
        except Exception as fault:  # noqa: BLE001 - the next sweep must come, whatever breaks
            self._on_fault("a sweep was broken off", fault)
        finally:
            if self._live:
                self._arm_sweep(self._clock())

    def _arm_sweep(self, now: float) -> None:
        self._sweep_due = now + SWEEP_SECONDS
        self._sweep_timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def _excuse(self, now: float) -> None:
        """After a stall, in which the endpoints may have waited for us: silence is counted anew, and of what the other
        bounds end later none is blamed."""
        for transfer in self._live.values():
            transfer.held_up = True
            transfer.moved_at = now

    def _sweep_silent(self, now: float) -> None:
        began_before = now - SWEEP_SECONDS
        slow = [each for each in self._live.values() if (each.on_wire_at or now) < began_before]
        fds = [progress.socket_of(transfer.curl) for transfer in slow]
        shared = progress.shared(fds)
        for transfer, fd in zip(slow, fds, strict=True):
            self._guarded(transfer, partial(self._look_at, fd, alone=fd not in shared), now)

    def _look_at(self, fd: int, transfer: Transfer[Token], now: float, *, alone: bool) -> None:
        """End a transfer whose connection (that it may have `alone`) moved no byte for too long since it was there,
        or far too many.
        """
        self._wire.watch_again(fd)
        if self._end_flooding(fd, transfer, now):
            return
        moved = progress.bytes_moved(transfer.curl, fd, alone=alone)
        if moved != transfer.moved or not transfer.is_connected:
            transfer.moved, transfer.moved_at = moved, now
            return
        allowed = max(self._limits.silence_seconds, transfer.request.silence_seconds)
        if now - transfer.moved_at >= allowed:
            self._cut_short(transfer, ErrorClass.SILENCE_TIMEOUT, SILENT.format(allowed), now)

    def _look_at_lively(self, fds: set[int]) -> None:
        """End the transfers on such sockets that flood us: by the next sweep they would have taken much time."""
        now = self._clock()
        for transfer in list(self._live.values()):
            if transfer.on_wire_at is not None and (fd := progress.socket_of(transfer.curl)) in fds:
                self._guarded(transfer, partial(self._end_flooding, fd), now)
        self._launch_waiting(now)

    def _end_flooding(self, fd: int, transfer: Transfer[Token], now: float) -> bool:
        """End a transfer whose connection brought far more than an answer has; answers whether it did."""
        flooded = transfer.is_flooded(fd)
        if flooded:
            self._cut_short(transfer, ErrorClass.PROTOCOL, "far more came than an answer has", now)
        return flooded

    def _sweep_waiting(self, now: float) -> None:
        for transfer in self._places.take_out(partial(_is_late, now=now)):
            self._guarded(transfer, self._give_up, now)
        self._launch_waiting(now)  # what the sweep ended may have left places

    def _tell_loop(self, sentence: str, fault: BaseException) -> None:
        self._loop.call_exception_handler({"message": sentence, "exception": fault})


def _is_late(transfer: Transfer[Token], now: float) -> bool:
    return transfer.deadline - now < LEAST_SECONDS
