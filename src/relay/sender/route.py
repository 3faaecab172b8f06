"""Where a url leads: the judged target, the addresses it is pinned to, and the origin whose places it shares.

Owns the pin. libcurl resolves no name: it is told which judged addresses to connect to (and `transfer` stops it should
it ask for more), while the url keeps the name for the Host header, SNI and the certificate. Invariant: the pinned
addresses are part of what libcurl tells kept connections apart by, so a connection to an address that the name no
longer has is not used again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from relay.domain.egress import EgressPolicy, Refusal, Target, check_url
from relay.sender.places import Origin
from relay.sender.resolver import Answer

ROUTES = 16_384
"""How many urls are remembered; the oldest goes first, and is simply judged anew when it comes again."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A url tied to addresses, in the terms of libcurl's options. `addresses` are all that may be dialled for it."""

    url: str
    connect_to: list[str]
    resolve: list[str]
    addresses: frozenset[str]


def pin(target: Target, addresses: Sequence[str]) -> Pin:
    """Tie the target to addresses (at least one; canonical text).

    One address is connected to as it is. Several get a name of their own, made of all of them, and libcurl tries them
    as it would a resolved name's (RFC 8305); `+` lets such an entry age instead of staying for ever, so it has to be
    told again before each request.
    """
    if len(addresses) == 1:
        via, resolve = _in_brackets(addresses[0]), []
    else:
        via = "-".join(sorted(addresses)).replace(":", "_") + ".pinned.invalid"
        resolve = [f"+{via}:{target.port}:{','.join(map(_in_brackets, addresses))}"]
    return Pin(target.url, [f"::{via}:{target.port}"], resolve, frozenset(addresses))


def _in_brackets(address: str) -> str:
    return f"[{address}]" if ":" in address else address


class Route:
    """A url that may be requested. `pin` is None until its name was resolved, and stands until `fresh_until`."""

    __slots__ = ("fresh_until", "origin", "pin", "target")

    def __init__(self, target: Target, origin: Origin[Any]) -> None:
        self.target = target
        self.origin = origin
        self.pin: Pin | None = None
        self.fresh_until = 0.0
        if target.address is not None:
            self.pin = pin(target, [str(target.address)])
            self.fresh_until = inf

    def take(self, answer: Answer) -> None:
        """Follow a new answer to the target's name. The pin is kept if the addresses are the same."""
        if self.pin is None or self.pin.addresses != frozenset(answer.addresses):
            self.pin = pin(self.target, answer.addresses)
        self.fresh_until = answer.fresh_until


class Routes:
    """The judged urls of a sender, most recently made last."""

    def __init__(
        self, policy: EgressPolicy, check: Callable[[EgressPolicy, str], Target | Refusal] = check_url
    ) -> None:
        self._policy = policy
        self._check = check
        self._known: OrderedDict[str, Route | Refusal] = OrderedDict()
        self._origins: dict[tuple[str, int], Origin[Any]] = {}

    def find(self, url: str) -> Route | Refusal:
        """The route of a url, or why it may not be requested."""
        known = self._known.get(url)
        return self._judge(url) if known is None else known

    def _judge(self, url: str) -> Route | Refusal:
        target = self._check(self._policy, url)
        found = target if isinstance(target, Refusal) else Route(target, self._origin(target))
        if len(self._known) >= ROUTES:
            self._known.popitem(last=False)
        self._known[url] = found
        return found

    def _origin(self, target: Target) -> Origin[Any]:
        if len(self._origins) >= ROUTES:
            self._origins = {at: origin for at, origin in self._origins.items() if not origin.is_idle}
        return self._origins.setdefault((target.host, target.port), Origin())
