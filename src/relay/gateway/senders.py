"""Who sends: the tenant and the source that a request belongs to, and whether it may send at all.

Owns what an event's request proves, the order of these checks, and that a signed request counts once. Invariant:
nothing below the gateway learns of a sender in any other way, and a request that was refused here has stored nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from relay.domain.ambient import Ambient
from relay.domain.credentials import Credentials, Proof, Proofs, Scope, Source
from relay.domain.endpoint import SignatureProfile
from relay.domain.secret import Secret
from relay.domain.signed import InvalidSignature, Signed, fingerprint, name_of, read_signature
from relay.domain.signing import Signer, prepare
from relay.gateway.headers import AUTHORIZATION, SIGNATURE, SOURCE, TENANT, TIMESTAMP, Headers
from relay.store.faults import StoreUnavailable
from relay.store.signed_requests import SignedRequest, SignedRequests
from relay.web.credentials import UNSIGNED, Caller, Register, in_tenant, read_bearer, require
from relay.web.exchange import BodyReader, Intake
from relay.web.problems import ErrorCode, Problem, Refused, refuse

Signers = Callable[[UUID], Signer | None]
"""What signs with the secret of that id, None if it is not in force."""

AWAY = Problem(ErrorCode.DATABASE_UNAVAILABLE, "the database did not answer; send the event again in a moment")
REPEATED = Problem(
    ErrorCode.SIGNATURE_INVALID,
    "a request that was signed alike had another Idempotency-Key, type or path: sign each request anew",
)

_NOBODY = prepare(SignatureProfile.RELAY, (Secret("whsec_" + "A" * 43 + "="),))
"""What signatures in the name of nobody are compared with, so that they take as long as others."""

_SIGNED = (SOURCE, TIMESTAMP, SIGNATURE)

_MOST_SECRETS = 2
"""A rotation keeps two, never three."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request whose sender is known. `body` is what was read for its signature, None where there is none to check;
    `digest` is what requests that are signed alike have in common with it.
    """

    caller: Caller
    body: bytes | None = None
    digest: bytes | None = None


class Senders:
    """Identifies the senders of one process's requests."""

    def __init__(self, *, register: Register, signers: Signers, requests: SignedRequests, ambient: Ambient) -> None:
        self.register = register
        self._signers = signers
        self._ambient = ambient
        self._claims = _Claims(requests)

    async def identify(self, headers: Headers, intake: Intake, bodies: BodyReader) -> Sent:
        """The sender of a request. Raises `Refused` where it is nobody's or may not send, and for its body's faults.

        The body is read only if a signature has to be checked, and no further than any other.
        """
        bearer = read_bearer(headers.get(AUTHORIZATION))
        if SOURCE not in headers or (await self._known()).is_empty:
            known = None if bearer is None else self.register.by_key(bearer)
            caller = known or await self._prove(Proofs(bearer=bearer))
            return Sent(await self._admit(caller, headers))
        signed = self._read_signature(headers)
        body = await bodies.read(intake)
        caller = await self._prove(Proofs(bearer=bearer), signed, body)
        is_signed = caller.proofs.signed is not None
        return Sent(await self._admit(caller, headers), body, signed.digest(body) if is_signed else None)

    async def check_again(self, caller: Caller) -> None:
        """For a request of which nothing is appended: raises `Refused` if its credential has ended meanwhile."""
        credentials = await self._newest()
        refusal = self.register.still_holds(credentials, caller)
        if refusal is not None:
            raise Refused(refusal)

    async def take_once(self, sent: Sent, path: str, name: str | None, event_type: str | None) -> None:
        """Let a signed request count once; any other one passes. Raises `Refused` (`signature_invalid`)."""
        if sent.digest is None:
            return
        request = SignedRequest(sent.caller.tenant, sent.caller.source, sent.digest)
        mark = fingerprint(path, name, event_type)
        try:
            first = await self._claims.claim(request, mark)
        except StoreUnavailable:
            raise Refused(AWAY) from None
        if first != mark:
            raise Refused(REPEATED)

    def _read_signature(self, headers: Headers) -> Signed:
        source, timestamp, signature = (headers.get(each, b"").decode("latin-1") for each in _SIGNED)
        try:
            return read_signature(source, timestamp, signature, self._ambient.now().timestamp())
        except InvalidSignature as fault:
            raise refuse(ErrorCode.SIGNATURE_INVALID, str(fault)) from None

    async def _prove(self, proofs: Proofs, signed: Signed | None = None, body: bytes = b"") -> Caller:
        """The caller of a request; a refusal is by credentials that are in force after it has come."""
        credentials = await self._known()
        judged = self._judge(credentials, proofs, signed, body)
        if isinstance(judged, Problem):
            newest = await self._newest()
            if newest is not credentials:
                judged = self._judge(newest, proofs, signed, body)
        if isinstance(judged, Problem):
            raise Refused(judged)
        return judged

    def _judge(self, credentials: Credentials, proofs: Proofs, signed: Signed | None, body: bytes) -> Caller | Problem:
        if signed is not None:
            secret_id = self._signing_secret(credentials.source(signed.source), signed, body)
            if secret_id is None:
                return UNSIGNED
            proofs = replace(proofs, signed=(signed.source, secret_id))
        return self.register.judge(credentials, proofs)

    def _signing_secret(self, source: Source | None, signed: Signed, body: bytes) -> UUID | None:
        """With which of the source's secrets the body was signed.

        Two are tried, whether the source has two, one, or is not there: none of that can be told by the time it takes.
        """
        secrets = () if source is None or Proof.HMAC not in source.auth else source.secrets
        ids = [secret.secret_id for secret in secrets]
        for secret_id in (*ids, None, None)[:_MOST_SECRETS]:
            signer = None if secret_id is None else self._signers(secret_id)
            if signed.holds(signer or _NOBODY, body) and signer is not None:
                return secret_id
        return None

    async def _admit(self, caller: Caller, headers: Headers) -> Caller:
        require(caller, Scope.INGEST)
        wanted = headers.get(TENANT)
        if wanted is None:
            return caller
        return in_tenant(caller, await self._known(), wanted.decode("latin-1"))

    async def _known(self) -> Credentials:
        try:
            return await self.register.known()
        except StoreUnavailable:
            raise Refused(AWAY) from None

    async def _newest(self) -> Credentials:
        try:
            return await self.register.newest()
        except StoreUnavailable:
            raise Refused(AWAY) from None


def named(sent: Sent, name: str | None, place: int | None = None) -> str | None:
    """What a request, or one event of it, is known by: its sender's name for it, else the signature's if it has one."""
    if name is not None or sent.digest is None:
        return name
    return name_of(sent.digest, place)


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
