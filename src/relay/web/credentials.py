"""Who calls: what the HTTP rooms know of whoever made a request.

Owns the one shape of that knowledge, the credentials that this process identifies by, and how the judgement of a
request's proofs becomes a caller or a refusal. How proofs are read off a request is each room's. Invariants: whatever a
request reads or changes belongs to its caller's tenant; and nobody is refused by credentials older than the request.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import assert_never

from relay.domain.credentials import (
    KEY_ACTOR,
    NOTHING,
    OPERATOR_SOURCE,
    CredentialFault,
    Credentials,
    Identity,
    Proofs,
    Scope,
    Unproven,
    digest_of,
    held,
)
from relay.store.faults import StoreUnavailable
from relay.web.problems import ErrorCode, Problem, refuse

_BEARER = re.compile(rb"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
"""RFC 6750, 2.1."""

Read = Callable[[int | None], Awaitable[Credentials | None]]
"""The credentials in force, None if they are still those of that version."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever made a request: the source and the tenant that it belongs to, and what it may do there.

    `actor` names the credential in words, for records of who changed what: `key:<name>`, `source:<name>` or
    `anonymous`. `scopes` are those that the credential holds, with all that they include. `proofs` are what it was
    identified by, and `version` is that of the credentials which did it. `home` is the tenant of an operator's
    credential that is in another one.
    """

    tenant: str
    source: str
    actor: str
    scopes: frozenset[Scope]
    proofs: Proofs = NOTHING
    version: int = 0
    home: str | None = None

    @property
    def actors_tenant(self) -> str:
        """The tenant that the credential is of, wherever the caller is."""
        return self.home or self.tenant


ANONYMOUS = Caller("acct_default", "anonymous", "anonymous", held({Scope.OPERATOR}))
"""Everybody, as long as no credential is configured. The first migration writes both names."""


class Register:
    """The credentials that this process knows. `monotonic` is its clock, in seconds.

    `is_private` says that only this machine can connect, so that without any credential everybody is anonymous.
    """

    def __init__(self, read: Read, *, monotonic: Callable[[], float], is_private: bool) -> None:
        self._read = read
        self._monotonic = monotonic
        self._is_private = is_private
        self._known: Credentials | None = None
        self._by_key: dict[bytes, Caller] = {}
        self._anonymous = ANONYMOUS
        self._reading = asyncio.Lock()
        self.changing = asyncio.Lock()
        """For whoever changes credentials: those of one process need not come before each other."""
        self._asked = self._answered = 0
        self._failed: StoreUnavailable | None = None

    async def known(self) -> Credentials:
        """Those known here, read once if there are none yet. Raises `StoreUnavailable`."""
        return self._known or await self.newest()

    async def newest(self) -> Credentials:
        """Those in force at this moment or later. Raises `StoreUnavailable`.

        However many ask, one question is under way; who comes meanwhile shares the next one, since the answer that is
        on its way may be older than what they saw.
        """
        self._asked += 1
        mine = self._asked
        async with self._reading:
            if self._answered < mine:
                await self._look()
            if self._failed is not None:
                raise self._failed
            assert self._known is not None, "a look that did not fail has found some"
            return self._known

    async def _look(self) -> None:
        answers, self._failed = self._asked, None
        try:
            newer = await self._read(None if self._known is None else self._known.version)
        except StoreUnavailable as fault:
            self._failed = fault
        else:
            if newer is not None:
                self._known = newer
                self._by_key = {}
                self._anonymous = replace(ANONYMOUS, version=newer.version)
        self._answered = answers

    def by_key(self, bearer: bytes) -> Caller | None:
        """The caller whom this secret alone was found to prove, as often as it comes."""
        return self._by_key.get(bearer)

    def judge(self, credentials: Credentials, proofs: Proofs) -> Caller | Problem:
        """Whose a request is that proves this, by these credentials."""
        if credentials.is_empty and self._is_private:
            return self._anonymous
        judged = credentials.judge(proofs, self._monotonic())
        match judged:
            case Identity(tenant, source, actor, scopes):
                caller = Caller(tenant, source, actor, scopes, proofs, credentials.version)
                bearer = proofs.bearer
                # a source's own secret may go out of force by itself
                lasts = proofs == Proofs(bearer) and actor.startswith(KEY_ACTOR) and credentials is self._known
                if bearer is not None and lasts:
                    self._by_key[bearer] = caller
                return caller
            case Unproven():
                return _refusal(judged)
            case _:
                assert_never(judged)

    def still_holds(self, credentials: Credentials, caller: Caller) -> Problem | None:
        """Why a caller that was identified by other credentials is refused by these; None if it is not."""
        judged = self.judge(credentials, caller.proofs)
        if isinstance(judged, Problem):
            return judged
        if caller.home is not None:
            inside = in_tenant(judged, credentials, caller.tenant)
            if isinstance(inside, Problem):
                return REVOKED
            judged = inside
        same = (judged.source, judged.actor, judged.scopes) == (caller.source, caller.actor, caller.scopes)
        if not same or caller.tenant not in credentials.tenants:
            return REVOKED
        return None


REVOKED = Problem(ErrorCode.CREDENTIAL_INVALID, "the credential is unknown, revoked or expired")
MISSING = Problem(
    ErrorCode.CREDENTIAL_MISSING,
    "send a key as `Authorization: Bearer <secret>`, sign the request as its source, or show its client certificate",
)
ELSEWHERE = Problem(ErrorCode.SCOPE_MISSING, "the credential is not for that tenant")
UNSIGNED = Problem(ErrorCode.SIGNATURE_INVALID, "the signature is not that of this source over this timestamp and body")


def _refusal(judged: Unproven) -> Problem:
    match judged.fault:
        case CredentialFault.INVALID:
            return REVOKED
        case CredentialFault.UNSIGNED:
            return UNSIGNED
        case CredentialFault.MISSING if judged.lacking:
            lacking = " and ".join(sorted(judged.lacking))
            return Problem(ErrorCode.CREDENTIAL_MISSING, f"this source has to be proved by {lacking} as well")
        case CredentialFault.MISSING:
            return MISSING
        case _:
            assert_never(judged.fault)


def read_bearer(authorization: bytes | None) -> bytes | None:
    """The SHA-256 of the bearer secret in the header, None without one. Raises `Refused` (`credential_invalid`).

    Any other scheme is as good as no credential.
    """
    if authorization is None or authorization[:6].lower() != b"bearer":
        return None
    found = _BEARER.fullmatch(authorization.strip())
    if found is None:
        raise refuse(ErrorCode.CREDENTIAL_INVALID, "the header is `Authorization: Bearer <secret>`, and comes once")
    return digest_of(found[1])


def in_tenant(caller: Caller, credentials: Credentials, wanted: str | None) -> Caller | Problem:
    """The caller inside the tenant that it names, its own without one; or why it may not be there."""
    if wanted is None or wanted == caller.tenant:
        return caller
    if Scope.OPERATOR not in caller.scopes or wanted not in credentials.tenants:
        return ELSEWHERE
    source = caller.source
    if source.startswith(KEY_ACTOR):
        source = OPERATOR_SOURCE + source.removeprefix(KEY_ACTOR)
    return replace(caller, tenant=wanted, source=source, home=caller.tenant)


def require(caller: Caller, scope: Scope) -> None:
    """Raises `Refused` (`scope_missing`) unless the caller has the scope."""
    if scope not in caller.scopes:
        raise refuse(ErrorCode.SCOPE_MISSING, f"the credential lacks the scope {scope}", scope=str(scope))
