"""Signed requests that were taken in, by what they were signed over.

Owns the claim. Invariant: of all requests that are signed alike while a timestamp is fresh, every claim answers with
the fingerprint of the first. A claim need not wait for the disk: it comes before the append of what it is for, so
whenever that is durable it is as well.
"""

from __future__ import annotations

from collections.abc import Sequence
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

    async def claim(self, requests: Sequence[tuple[SignedRequest, bytes]]) -> dict[SignedRequest, bytes]:
        """Take these for good, each with its fingerprint, no two of them alike; answers whose fingerprint each has.

        Raises `StoreUnavailable`.
        """
        arguments = [[*column] for column in zip(*((*request, mark) for request, mark in requests), strict=True)]
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("claim_signed_requests"), *arguments, float(KEPT_SECONDS))
        return {SignedRequest(tenant, source, digest): mark for tenant, source, digest, mark in rows}
