"""Names to judged addresses, on c-ares' own thread.

Owns the lookups and their answers: one lookup per name at a time, for IPv4 and IPv6 side by side, bounded in time and
number, answers and failures remembered for a short while. What the addresses may be is the policy's to judge, handed in
as `judge`; an answer carries that judgement, so an address that was not judged never leaves this module.

libcurl's own resolver is not used: it has twenty threads, and ten dead names are enough to clog them. c-ares honours
the hosts file and answers `localhost` itself. Invariant: whoever waits for a name hears within the limit, whatever
becomes of other names, and no bug leaves a lookup behind that never ends.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pycares
import pycares.errno as ares

from relay.domain.egress import Refusal
from relay.domain.sending import ErrorClass
from relay.sender.limits import ResolverLimits
from relay.sender.wire import OnFault

FIRST_TRY_SECONDS = 1.0
TRIES = 4
"""c-ares waits a second for a server it does not know and, for one it knows as quick, a quarter of one, doubling with
each try. Four tries leave a name that takes its servers a second to find the time it needs."""

ADDRESSES_PER_FAMILY = 8

Judge = Callable[[Iterable[str]], Refusal | None]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a name led to, until `fresh_until` (the sender's clock).

    Exactly one of these: `addresses` (canonical text, at least one, every one judged), a `refusal`, or an `error`.
    """

    fresh_until: float
    addresses: tuple[str, ...] = ()
    refusal: Refusal | None = None
    error: ErrorClass | None = None
    detail: str = ""


Wait = Callable[[Answer], None]

_FAMILIES = (socket.AF_INET6, socket.AF_INET)

_LOCAL_TROUBLE = frozenset(
    {ares.ARES_ECONNREFUSED, ares.ARES_ENOMEM, ares.ARES_EFILE, ares.ARES_ECANCELLED, ares.ARES_EDESTRUCTION}
)
"""No server could be asked at all, so nothing was learned about the name."""

_SENTENCES = {
    ares.ARES_ENOTFOUND: "the name does not exist",
    ares.ARES_ENODATA: "the name has no address",
    ares.ARES_ESERVFAIL: "the name's servers failed",
    ares.ARES_EREFUSED: "the name server refused to answer",
    ares.ARES_EBADNAME: "the name cannot be asked for",
    ares.ARES_ETIMEOUT: "no name server answered in time",
    ares.ARES_ECONNREFUSED: "no name server can be reached from here",
}


@dataclass(slots=True)
class _Lookup:
    """A name under way: who waits for it (with the timer that ends the wait), and what each family came to."""

    name: str
    waiting: list[tuple[Wait, asyncio.TimerHandle]] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    shortest_ttl: float = float("inf")
    errors: list[int] = field(default_factory=list)
    families_left: int = len(_FAMILIES)
    grace: asyncio.TimerHandle | None = None


class Resolver:
    """The names of one sender. All methods belong to the thread of `loop`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        limits: ResolverLimits,
        judge: Judge,
        clock: Callable[[], float],
        on_fault: OnFault,
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._judge = judge
        self._clock = clock
        self._on_fault = on_fault
        self._closed = False
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self._lookups: dict[str, _Lookup] = {}
        self._channel = pycares.Channel(
            timeout=FIRST_TRY_SECONDS, tries=TRIES, servers=list(limits.servers) if limits.servers else None
        )

    def known(self, name: str) -> Answer | None:
        """The remembered answer, if it is still fresh."""
        answer = self._answers.get(name)
        return answer if answer is not None and answer.fresh_until > self._clock() else None

    def resolve(self, name: str, wait: Wait, within: float) -> None:
        """Look a name up and call `wait` once: never before this returns, at most `within` seconds later.

        If it raises, `wait` is not called.
        """
        lookup = self._lookups.get(name)
        begins = lookup is None
        if lookup is None:
            if len(self._lookups) >= self._limits.lookups:
                self._loop.call_soon(wait, self._failure(ErrorClass.LOCAL, "too many names are being looked up"))
                return
            lookup = self._lookups[name] = _Lookup(name)
        seconds = min(within, self._limits.answer_seconds)
        lookup.waiting.append((wait, self._loop.call_later(seconds, self._give_up, lookup, wait)))
        if begins:
            self._begin(lookup)

    def _begin(self, lookup: _Lookup) -> None:
        try:
            for family in _FAMILIES:
                self._ask(lookup, family)
        except BaseException:
            self._take_out(lookup)
            raise

    def _take_out(self, lookup: _Lookup) -> None:
        """Let go of a lookup, before those who wait for it are told."""
        del self._lookups[lookup.name]
        if lookup.grace is not None:
            lookup.grace.cancel()
        for _, timer in lookup.waiting:
            timer.cancel()

    def close(self) -> None:
        """Stop; whoever still waits is not called any more."""
        self._closed = True
        for lookup in list(self._lookups.values()):
            self._take_out(lookup)
        self._channel.close()

    def _ask(self, lookup: _Lookup, family: int) -> None:
        def answered(result: pycares.AddrInfoResult | None, error: int | None) -> None:
            # On c-ares' thread, or on this one if the answer was at hand. Too late after the end of the loop.
            if not self._closed:
                try:
                    self._loop.call_soon_threadsafe(self._answered, lookup, result, error)
                except RuntimeError:
                    if not self._loop.is_closed():
                        raise

        try:
            self._channel.getaddrinfo(
                lookup.name, None, family=socket.AddressFamily(family), type=socket.SOCK_STREAM, callback=answered
            )
        except (pycares.AresError, UnicodeError, ValueError):
            self._loop.call_soon(self._answered, lookup, None, ares.ARES_EBADNAME)

    def _answered(self, lookup: _Lookup, result: pycares.AddrInfoResult | None, error: int | None) -> None:
        if self._closed or self._lookups.get(lookup.name) is not lookup:
            return
        try:
            self._take(lookup, result, error)
        except Exception as fault:  # noqa: BLE001 - whoever waits hears, whatever breaks
            self._fail(lookup, fault)

    def _take(self, lookup: _Lookup, result: pycares.AddrInfoResult | None, error: int | None) -> None:
        lookup.families_left -= 1
        if result is None:
            lookup.errors.append(ares.ARES_ENODATA if error is None else error)
        else:
            self._take_nodes(lookup, result)
        if not lookup.families_left:
            self._finish(lookup)
        elif lookup.addresses and lookup.grace is None:
            # RFC 8305, 3: some servers never answer for one of the families; the other need not wait for it long.
            lookup.grace = self._loop.call_later(self._limits.second_family_seconds, self._finish, lookup)

    def _take_nodes(self, lookup: _Lookup, result: pycares.AddrInfoResult) -> None:
        ttls = [node.ttl for node in result.nodes] + [cname.ttl for cname in result.cnames]
        lookup.shortest_ttl = min([lookup.shortest_ttl, *ttls])
        lookup.addresses += [node.addr[0].decode("ascii") for node in result.nodes[:ADDRESSES_PER_FAMILY]]

    def _finish(self, lookup: _Lookup) -> None:
        """Conclude from what came. Later answers find the lookup gone."""
        try:
            answer = self._conclude(lookup)
        except Exception as fault:  # noqa: BLE001 - whoever waits hears, whatever breaks
            self._fail(lookup, fault)
        else:
            self._settle(lookup, answer)

    def _fail(self, lookup: _Lookup, fault: Exception) -> None:
        self._on_fault("a name's answer could not be understood", fault)
        self._settle(lookup, self._failure(ErrorClass.LOCAL, "the name's answer could not be understood"))

    def _settle(self, lookup: _Lookup, answer: Answer) -> None:
        """Remember the answer and tell those who wait."""
        self._take_out(lookup)
        self._remember(lookup.name, answer)
        for wait, _ in lookup.waiting:
            try:
                wait(answer)
            except Exception as fault:  # noqa: BLE001 - one's bug must not keep the others waiting
                self._on_fault("an answer could not be told", fault)

    def _conclude(self, lookup: _Lookup) -> Answer:
        if not lookup.addresses:
            error = next((each for each in lookup.errors if each != ares.ARES_ENODATA), ares.ARES_ENODATA)
            return self._failure(_class_of(error), _SENTENCES.get(error, "the name cannot be resolved"))
        refusal = self._judge(lookup.addresses)
        limits = self._limits
        fresh_until = self._clock() + min(max(lookup.shortest_ttl, limits.shortest_ttl), limits.longest_ttl)
        if refusal is not None:
            return Answer(fresh_until, refusal=refusal)
        return Answer(fresh_until, addresses=tuple(dict.fromkeys(lookup.addresses)))

    def _give_up(self, lookup: _Lookup, wait: Wait) -> None:
        """End one wait. The lookup goes on: its late answer serves the next attempt."""
        lookup.waiting = [each for each in lookup.waiting if each[0] is not wait]
        wait(self._failure(ErrorClass.DNS_TIMEOUT, _SENTENCES[ares.ARES_ETIMEOUT]))

    def _failure(self, error: ErrorClass, detail: str) -> Answer:
        return Answer(self._clock() + self._limits.failure_seconds, error=error, detail=detail)

    def _remember(self, name: str, answer: Answer) -> None:
        self._answers[name] = answer
        self._answers.move_to_end(name)
        if len(self._answers) > self._limits.names:
            self._answers.popitem(last=False)


def _class_of(error: int) -> ErrorClass:
    if error == ares.ARES_ETIMEOUT:
        return ErrorClass.DNS_TIMEOUT
    return ErrorClass.LOCAL if error in _LOCAL_TROUBLE else ErrorClass.DNS_FAILED
