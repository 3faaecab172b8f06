"""Who sends: the tenant and the source that a request belongs to, and whether it may send at all.

Owns the order of these checks for events, and that a signed request counts once. Invariant: nothing below the gateway
learns of a sender in any other way, and a request that was refused here has stored nothing.
"""

from __future__ import annotations

import asyncio

from relay.domain.credentials import Scope
from relay.domain.signed import fingerprint, name_of
from relay.gateway.headers import Headers
from relay.store.faults import StoreUnavailable
from relay.store.signed_requests import SignedRequest, SignedRequests
from relay.web.certificates import Peer
from relay.web.credentials import Caller, Register, require
from relay.web.exchange import BodyReader, Intake
from relay.web.problems import ErrorCode, Problem, Refused
from relay.web.proving import Proven, Prover

AWAY = Problem(ErrorCode.DATABASE_UNAVAILABLE, "the database did not answer; send the event again in a moment")
REPEATED = Problem(
    ErrorCode.SIGNATURE_INVALID,
    "a request that was signed alike had another Idempotency-Key, type or path: sign each request anew",
)


class Senders:
    """Identifies the senders of one process's events."""

    def __init__(self, *, prover: Prover, requests: SignedRequests) -> None:
        self._prover = prover
        self._claims = _Claims(requests)

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

    async def take_once(self, proven: Proven, path: str, name: str | None, event_type: str | None) -> None:
        """Let a signed request count once; any other one passes. Raises `Refused` (`signature_invalid`)."""
        if proven.digest is None:
            return
        request = SignedRequest(proven.caller.tenant, proven.caller.source, proven.digest)
        mark = fingerprint(path, name, event_type)
        try:
            first = await self._claims.claim(request, mark)
        except StoreUnavailable:
            raise Refused(AWAY) from None
        if first != mark:
            raise Refused(REPEATED)


def named(proven: Proven, name: str | None, place: int | None = None) -> str | None:
    """What a request, or one event of it, is known by: its sender's name for it, else the signature's if it has one."""
    if name is not None or proven.digest is None:
        return name
    return name_of(proven.digest, place)


class _Claims:
    """Claims of signed requests: those that come while a claim is under way share the next one."""

    def __init__(self, requests: SignedRequests) -> None:
        self._requests = requests
        self._waiting: dict[SignedRequest, tuple[bytes, asyncio.Future[bytes]]] = {}
        self._claiming: asyncio.Task[None] | None = None

    async def claim(self, request: SignedRequest, mark: bytes) -> bytes:
        """Whose fingerprint the request has: its own, or that of one before it. Raises `StoreUnavailable`."""
        _, first = self._waiting.setdefault(request, (mark, asyncio.get_running_loop().create_future()))
        if self._claiming is None:
            self._claiming = asyncio.create_task(self._claim_all(), name="claiming signed requests")
        return await asyncio.shield(first)

    async def _claim_all(self) -> None:
        try:
            while self._waiting:
                taken, self._waiting = self._waiting, {}
                try:
                    found = await self._requests.claim([(request, mark) for request, (mark, _) in taken.items()])
                except Exception as fault:  # noqa: BLE001 - it is raised again for each who waits
                    for _, first in taken.values():
                        first.set_exception(fault)
                        first.exception()  # whoever waited may have left
                else:
                    for request, (_, first) in taken.items():
                        first.set_result(found[request])
        finally:
            self._claiming = None
