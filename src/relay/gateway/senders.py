"""Who sends: the tenant and the source that a request belongs to, and whether it may send at all.

Owns the order of these checks for events, and the names of signed ones. Invariant: nothing below the gateway learns of
a sender in any other way, and a request that was refused here has stored nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from relay.domain.credentials import Scope
from relay.domain.signed import fingerprint, name_of
from relay.gateway.headers import Headers
from relay.store.faults import StoreUnavailable
from relay.store.signed_requests import SignedRequests
from relay.web.certificates import Peer
from relay.web.credentials import Caller, Register, require
from relay.web.exchange import BodyReader, Intake
from relay.web.once import Once
from relay.web.problems import ErrorCode, Problem, Refused
from relay.web.proving import Proven, Prover

AWAY = Problem(ErrorCode.DATABASE_UNAVAILABLE, "the database did not answer; send the event again in a moment")


class Senders:
    """Identifies the senders of one process's events."""

    def __init__(self, *, prover: Prover, requests: SignedRequests) -> None:
        self._prover = prover
        self._once = Once(requests)

    @property
    def register(self) -> Register:
        """The credentials by which it identifies."""
        return self._prover.register

    async def identify(self, peer: Peer | None, headers: Headers, intake: Intake, bodies: BodyReader) -> Proven:
        """The sender of a request that came from `peer`.

        Raises `Refused` where it is nobody's or may not send, and for its body's faults.
        """
        try:
            proven = await self._prover.prove(peer, headers, lambda: bodies.read(intake))
        except StoreUnavailable:
            raise Refused(AWAY) from None
        require(proven.caller, Scope.INGEST)
        return proven

    async def check_again(self, caller: Caller) -> None:
        """For a request of which nothing is appended: raises `Refused` if its credential has ended meanwhile."""
        try:
            refusal = self.register.still_holds(await self.register.newest(), caller)
        except StoreUnavailable:
            raise Refused(AWAY) from None
        if refusal is not None:
            raise Refused(refusal)

    async def take_once(
        self, proven: Proven, path: str, name: str | None, event_type: str | None, names: Sequence[str] = ()
    ) -> None:
        """Let a signed request count once; any other one passes. Raises `Refused` (`signature_invalid`).

        `names` are those of all its events, `name` is the request's own.
        """
        if proven.digest is None:
            return
        try:
            await self._once.take(proven, fingerprint(path, name, event_type), names)
        except StoreUnavailable:
            raise Refused(AWAY) from None


def named(proven: Proven, name: str | None, place: int | None = None) -> str | None:
    """What a request, or one event of it, is known by: its sender's name for it, else the signature's if it has one."""
    if name is not None or proven.digest is None:
        return name
    return name_of(proven.digest, place)
