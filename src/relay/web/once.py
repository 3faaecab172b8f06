"""Signed requests count once: what was signed alike is the same request again, or refused.

Owns the claim of a request by what it was signed over, which is not its path, its name or its type. Invariant: of all
that are signed alike while their timestamp is fresh, those pass that are the first one again, whichever process takes
them, and no others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from relay.store.signed_requests import SignedRequest, SignedRequests
from relay.web.problems import ErrorCode, Problem, Refused
from relay.web.proving import Proven

REPEATED = Problem(
    ErrorCode.SIGNATURE_INVALID,
    "a request that was signed alike had another Idempotency-Key, type or path: sign each request anew",
)


class _Claim(NamedTuple):
    mark: bytes
    names: Sequence[str]
    first: asyncio.Future[bytes]


class Once:
    """Claims the signed requests of one process: those that come while a claim is under way share the next one."""

    def __init__(self, requests: SignedRequests) -> None:
        self._requests = requests
        self._waiting: dict[SignedRequest, _Claim] = {}
        self._claiming: asyncio.Task[None] | None = None

    async def take(self, proven: Proven, mark: bytes, names: Sequence[str] = ()) -> None:
        """Let a signed request pass that is the first of its like, or that one again by its `mark`; any other passes.

        Of its `names` those that were taken before stay taken as long as it is known again. Raises `Refused`
        (`signature_invalid`) and `StoreUnavailable`.
        """
        if proven.digest is None:
            return
        request = SignedRequest(proven.caller.tenant, proven.caller.source, proven.digest)
        if await self._claim(request, mark, names) != mark:
            raise Refused(REPEATED)

    async def _claim(self, request: SignedRequest, mark: bytes, names: Sequence[str]) -> bytes:
        """Whose mark the request has: its own, or that of one before it."""
        future = asyncio.get_running_loop().create_future()
        first = self._waiting.setdefault(request, _Claim(mark, names, future)).first
        if self._claiming is None:
            self._claiming = asyncio.create_task(self._claim_all(), name="claiming signed requests")
        return await asyncio.shield(first)

    async def _claim_all(self) -> None:
        try:
            while self._waiting:
                taken, self._waiting = self._waiting, {}
                try:
                    found = await self._requests.claim(
                        [(request, claim.mark) for request, claim in taken.items()],
                        {(each.tenant, each.source, name) for each, claim in taken.items() for name in claim.names},
                    )
                except Exception as fault:  # noqa: BLE001 - it is raised again for each who waits
                    for claim in taken.values():
                        claim.first.set_exception(fault)
                        claim.first.exception()  # whoever waited may have left
                else:
                    for request, claim in taken.items():
                        claim.first.set_result(found[request])
        finally:
            self._claiming = None
