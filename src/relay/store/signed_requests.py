"""Signed requests that were taken in, by what they were signed over.

Owns the claim. Invariant: of all requests that are signed alike while a timestamp is fresh, every claim answers with
the fingerprint of the first. A claim need not wait for the disk: it comes before the append of what it is for, so
whenever that is durable it is as well.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from relay.domain.signed import KEPT_SECONDS
from relay.store import statements
from relay.store.database import Database


class SignedRequest(NamedTuple):
    """What requests that are signed alike have in common: whose they are, and timestamp and body."""

    tenant: str
    source: str
    digest: bytes


class SignedRequests:
    """The signed requests of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(
        self, requests: Sequence[tuple[SignedRequest, bytes]], names: Collection[tuple[str, str, str]] = ()
    ) -> dict[SignedRequest, bytes]:
        """Take these for good, each with its fingerprint, no two of them alike; answers whose fingerprint each has.

        Of the `names` that they bear, each of a tenant and a source, those that are remembered are remembered as long
        as the requests: nothing that is signed alike finds one free. Raises `StoreUnavailable`.
        """
        arguments = [[*column] for column in zip(*((*request, mark) for request, mark in requests), strict=True)]
        kept = [[*column] for column in zip(*names, strict=True)] or [[], [], []]
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                statements.text("claim_signed_requests"), *arguments, float(KEPT_SECONDS), *kept
            )
        return {SignedRequest(tenant, source, digest): mark for tenant, source, digest, mark in rows}
