"""The names of requests that re-drive or discard: what is asked for twice under one name is done once.

Owns the claim of a name and the answer that is kept with it. Invariant: name, change and answer are one transaction, so
a name stands exactly if its change was made.
"""

from __future__ import annotations

from dataclasses import dataclass

from relay.store import statements
from relay.store.database import Connection
from relay.store.faults import StoreBusy


@dataclass(frozen=True, slots=True)
class RequestKey:
    """A request's name, and a digest of what makes it this request: its method, its path and its body."""

    key: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """What a request was answered: every repetition gets these bytes."""

    status: int
    body: bytes


class RequestKeyReused(Exception):
    """The name belongs to another request."""


class RequestUnderWay(StoreBusy):
    """A request of that name is being carried out; its answer is to be had once it is done."""


async def claim(connection: Connection, tenant: str, key: RequestKey, seconds: float) -> KeptAnswer | None:
    """Take the name inside a transaction; None: it is ours, and `keep` must follow. Else an earlier request's answer.

    Waits for nobody: whoever waited here would keep a connection from those who have something to do. Raises
    `RequestKeyReused`, and `RequestUnderWay`.
    """
    if not await connection.fetchval(statements.text("try_request_key"), tenant, key.key):
        raise RequestUnderWay("a request of that name is under way")
    if await connection.fetch(statements.text("claim_request_key"), tenant, key.key, key.fingerprint, seconds):
        return None
    row = await connection.fetchrow(statements.text("read_request_key"), tenant, key.key)
    assert row is not None, "the claim has locked it"
    if row["fingerprint"] != key.fingerprint:
        raise RequestKeyReused("another request had that name")
    return KeptAnswer(row["status"], row["answer"])


async def keep(connection: Connection, tenant: str, key: RequestKey, answer: KeptAnswer) -> None:
    """Write down what the request is answered."""
    await connection.execute(statements.text("keep_answer"), tenant, key.key, answer.status, answer.body)
