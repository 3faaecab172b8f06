"""What every change of credentials has in common.

Owns the tenant that a change is for, the repetition of one that others came before, and the refusals that they share.
Invariant: a change is made by a credential that is in force at the moment of the change, or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from relay.api.deps import By, Calling, Deps
from relay.api.requests import contradicts_header
from relay.domain.credentials import Scope
from relay.store.faults import NoSuchTenant
from relay.store.issuer import CredentialsChanged, LastKey, NoKeyYet, OperatorsKey, TenantInUse
from relay.web.credentials import require
from relay.web.problems import ErrorCode, FieldFault, Problem, Refused, invalid, pointer, refuse

T = TypeVar("T")

_TRIES = 10
"""How often other processes may come before a change."""

TURN_SECONDS = 5.0
"""How long a change waits for those of its own process that came before."""

CHANGING = Problem(ErrorCode.OVERLOADED, "credentials are being changed too often; try again in a moment")

_FIRST = "nobody has a credential yet: first make a key with the scope admin or operator"
_LAST = "nobody else could make a key for its tenant: make another key with the scope admin or operator first"
_OPERATORS = "a key of an operator is ended by operators only"
_IN_USE = "the tenant still has endpoints, sources or keys, or it is the one of anonymous requests"

CODES = (
    ErrorCode.JOURNAL_QUORUM,
    ErrorCode.MALFORMED,
    ErrorCode.BODY_TIMEOUT,
    ErrorCode.OVERLOADED,
    ErrorCode.PAYLOAD_TOO_LARGE,
    ErrorCode.CONTENT_TYPE,
    ErrorCode.INVALID,
)
"""What a call with a body is refused with."""


class _Change:
    """A change that a caller asks for."""

    def __init__(self, request: Request, deps: Deps, caller: Calling, author: By) -> None:
        self._request = request
        self.deps = deps
        self.caller = caller
        self.issuer = deps.issuer.by(author)

    @property
    def by_operator(self) -> bool:
        """Whether an operator asks."""
        return Scope.OPERATOR in self.caller.scopes

    def tenant(self, wanted: str | None) -> str:
        """The tenant that it is for. Raises `Refused`: `scope_missing` where the caller is not for that one, `invalid`
        where it names two.
        """
        if wanted is not None and wanted != self.caller.tenant:
            require(self.caller, Scope.OPERATOR)
        if contradicts_header(self._request, wanted):
            raise invalid([FieldFault(pointer("tenant"), "the header Relay-Tenant names another one; name one tenant")])
        return self.caller.tenant if wanted is None else wanted

    async def make(self, change: Callable[[int], Awaitable[T]]) -> T:
        """Make the change, by the version of the credentials that it is given. Raises `Refused`."""
        try:
            return await self._make(change)
        except NoKeyYet:
            raise refuse(ErrorCode.FIRST_KEY, _FIRST) from None
        except LastKey:
            raise refuse(ErrorCode.LAST_KEY, _LAST) from None
        except OperatorsKey:
            raise refuse(ErrorCode.SCOPE_MISSING, _OPERATORS, scope=str(Scope.OPERATOR)) from None
        except TenantInUse:
            raise refuse(ErrorCode.TENANT_IN_USE, _IN_USE) from None
        except NoSuchTenant:
            raise invalid([FieldFault(pointer("tenant"), "there is no tenant of that id")]) from None

    async def _make(self, change: Callable[[int], Awaitable[T]]) -> T:
        turn = self.deps.prover.register.changing
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await turn.acquire()
        except TimeoutError:
            raise Refused(CHANGING) from None
        try:
            return await self._in_turn(change)
        finally:
            turn.release()

    async def _in_turn(self, change: Callable[[int], Awaitable[T]]) -> T:
        register = self.deps.prover.register
        version = self.caller.version
        for _ in range(_TRIES):
            try:
                return await change(version)
            except CredentialsChanged:
                newest = await register.newest()
                refusal = register.still_holds(newest, self.caller)
                if refusal is not None:
                    raise Refused(refusal) from None
                version = newest.version
        raise Refused(CHANGING)


Change = Annotated[_Change, Depends()]
