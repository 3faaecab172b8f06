"""What a request proves about its sender: the look at its headers, at its body where it is signed, and the judgement.

Owns the headers in which credentials come. Whether the caller may do what it asks for is the rooms' question.
Invariant: a signature is checked over the body's exact bytes as they came in, in the same way whether its source exists
or not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from relay.domain.ambient import Ambient
from relay.domain.credentials import NOTHING, Credentials, Proof, Proofs, Source
from relay.domain.endpoint import SignatureProfile
from relay.domain.secret import Secret
from relay.domain.signed import InvalidSignature, Signed, read_signature
from relay.domain.signing import Signer, prepare
from relay.web.certificates import CLIENT_CERT, Peer, subjects_of
from relay.web.credentials import UNSIGNED, Caller, Register, in_tenant, read_bearer
from relay.web.problems import ErrorCode, Problem, Refused, refuse

AUTHORIZATION = b"authorization"
SOURCE = b"relay-source"
TIMESTAMP = b"relay-timestamp"
SIGNATURE = b"relay-signature"
TENANT = b"relay-tenant"

HEADERS = frozenset({AUTHORIZATION, SOURCE, TIMESTAMP, SIGNATURE, TENANT, CLIENT_CERT})
"""Every header that is looked at here, in lower case."""

Signers = Callable[[UUID], Signer | None]
"""What signs with the secret of that id, None if it is not in force."""

ReadBody = Callable[[], Awaitable[bytes]]

_NOBODY = prepare(SignatureProfile.RELAY, (Secret("whsec_" + "A" * 43 + "="),))
"""What signatures in the name of nobody are compared with, so that they take as long as others."""

_NOBODYS = UUID(int=0)
"""The id of no secret."""

_MTLS_ALONE = "; a source with mtls alone is known by its certificate, and needs no Relay-Source"

_MOST_SECRETS = 2
"""A rotation keeps two, never three."""


class Proven(NamedTuple):
    """A request whose caller is known. `body` is what was read for its signature, None where there was none to check;
    `digest` is what requests that are signed alike have in common with it.
    """

    caller: Caller
    body: bytes | None = None
    digest: bytes | None = None


class Prover:
    """Finds the callers of one process's requests."""

    def __init__(self, *, register: Register, signers: Signers, ambient: Ambient) -> None:
        self.register = register
        self._signers = signers
        self._ambient = ambient

    async def prove(self, peer: Peer | None, headers: Mapping[bytes, bytes], read_body: ReadBody) -> Proven:
        """Whose a request with these headers is, by credentials that may be a moment old: whoever changes something by
        them has them compared. Raises `Refused` by the newest ones only, and for a body's faults.

        `peer` is who sent it, where that tells anything. The body is read only if a signature has to be checked.
        """
        bearer = read_bearer(headers.get(AUTHORIZATION))
        subjects = () if peer is None else self._subjects(peer, headers)
        if bearer is not None and not subjects and SOURCE not in headers and TENANT not in headers:
            # the way of most events; with a certificate, what was found for the bearer alone would leave that out
            known = self.register.by_key(bearer)
            if known is not None:
                return Proven(known)
        return await self._prove(await self.register.known(), Proofs(bearer, None, subjects), headers, read_body)

    async def prove_anew(self, peer: Peer | None, headers: Mapping[bytes, bytes], read_body: ReadBody) -> Proven:
        """The same by the credentials that are in force now. Raises `Refused`."""
        bearer = read_bearer(headers.get(AUTHORIZATION))
        subjects = () if peer is None else self._subjects(peer, headers)
        return await self._prove(await self.register.newest(), Proofs(bearer, None, subjects), headers, read_body)

    def _subjects(self, peer: Peer, headers: Mapping[bytes, bytes]) -> tuple[str, ...]:
        return subjects_of(peer, headers, self._ambient.now().timestamp())

    async def _prove(
        self, credentials: Credentials, proofs: Proofs, headers: Mapping[bytes, bytes], read_body: ReadBody
    ) -> Proven:
        signed, body = None, None
        if credentials.is_empty and (proofs != NOTHING or SOURCE in headers):
            # whoever brings a credential may have been given it since
            credentials = await self.register.newest()
        if SOURCE in headers and not credentials.is_empty:
            signed = self._read_signature(headers, has_certificate=bool(proofs.subjects))
            body = await read_body()
        tenant = headers[TENANT].decode("latin-1") if TENANT in headers else None
        judged = self._judge(credentials, proofs, tenant, signed, body or b"")
        if isinstance(judged, Problem):
            newest = await self.register.newest()
            if newest is not credentials:
                judged = self._judge(newest, proofs, tenant, signed, body or b"")
        if isinstance(judged, Problem):
            raise Refused(judged)
        digest = None if signed is None or judged.proofs.signed is None else signed.digest(body or b"")
        return Proven(judged, body, digest)

    def _read_signature(self, headers: Mapping[bytes, bytes], *, has_certificate: bool) -> Signed:
        source, timestamp, signature = (headers.get(each, b"").decode("latin-1") for each in _SIGNED)
        try:
            return read_signature(source, timestamp, signature, self._ambient.now().timestamp())
        except InvalidSignature as fault:
            alone = _MTLS_ALONE if has_certificate and SIGNATURE not in headers else ""
            raise refuse(ErrorCode.SIGNATURE_INVALID, f"{fault}{alone}") from None

    def _judge(
        self, credentials: Credentials, proofs: Proofs, tenant: str | None, signed: Signed | None, body: bytes
    ) -> Caller | Problem:
        """Whose a request is by these credentials, in the tenant that it names."""
        if signed is not None:
            secret_id = self._signing_secret(credentials.source(signed.source), signed, body)
            if secret_id is None:
                return UNSIGNED
            proofs = replace(proofs, signed=(signed.source, secret_id))
        judged = self.register.judge(credentials, proofs)
        return judged if isinstance(judged, Problem) else in_tenant(judged, credentials, tenant)

    def _signing_secret(self, source: Source | None, signed: Signed, body: bytes) -> UUID | None:
        """With which of the source's secrets the body was signed.

        Two are tried, whether the source has two, one, or is not there: none of that can be told by the time it takes.
        """
        secrets = () if source is None or Proof.HMAC not in source.auth else source.secrets
        ids = [secret.secret_id or _NOBODYS for secret in secrets]
        for secret_id in (*ids, _NOBODYS, _NOBODYS)[:_MOST_SECRETS]:
            # asked for nobody's as well: a look of a microsecond or two is one that takes time
            signer = self._signers(secret_id)
            if signed.holds(signer or _NOBODY, body) and signer is not None:
                return secret_id
        return None


_SIGNED = (SOURCE, TIMESTAMP, SIGNATURE)
