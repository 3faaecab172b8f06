"""Events on their way into the journal, with their senders waiting.

Owns the shape of one, of what becomes of it, and the line in which they wait. Invariant: whoever takes a submission
from the line settles it or puts it back; a sender that has left meanwhile changes nothing about the event.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple
from uuid import UUID

from relay.domain.envelope import Envelope
from relay.domain.schema import SchemaName
from relay.web.credentials import Caller
from relay.web.problems import Problem


class Stored(NamedTuple):
    """The event is durable; `body` is its 202."""

    body: bytes


class Replayed(NamedTuple):
    """An earlier request of that name stored it; `body` is that one's 202."""

    body: bytes


Outcome = Stored | Replayed | Problem


class Checked(NamedTuple):
    """The payload may be taken: the schema that it fits, None where there is none to fit, by which catalogue's version.

    `by` is None for what no catalogue has a say in.
    """

    schema: str | None
    by: int | None


UNCHECKED = Checked(None, None)
"""An event of Relay's own."""


def _future() -> asyncio.Future[Outcome]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class Submission:
    """An accepted event. `key` and `fingerprint` are None where its sender did not name the request.

    `accepted_at` is in seconds of the process's monotonic clock. `company` is how many events may be in one append with
    it, itself included, None for as many as fit: after each refusal it is half as many. Events of one batch share their
    `batch`, which says nothing else. `only` names the endpoint of an event that is for that one alone. `wanted` is the
    schema that the sender named, `checked_by` the version of the catalogue that the payload was checked by, if by any.
    """

    envelope: Envelope
    caller: Caller
    key: str | None
    fingerprint: bytes | None
    accepted_at: float
    outcome: asyncio.Future[Outcome] = field(default_factory=_future)
    company: int | None = None
    batch: object | None = None
    only: UUID | None = None
    wanted: SchemaName | None = None
    checked_by: int | None = None

    @property
    def name(self) -> tuple[str, str, str] | None:
        """What another submission must share to be the same request."""
        return None if self.key is None else (self.envelope.tenant, self.envelope.source, self.key)

    def settle(self, outcome: Outcome) -> None:
        """Tell the sender, if it still waits."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class Line:
    """Submissions in the order in which they are to be appended, with the bytes of their payloads."""

    def __init__(self) -> None:
        self._submissions: deque[Submission] = deque()
        self.payload_bytes = 0

    def __len__(self) -> int:
        return len(self._submissions)

    def __iter__(self) -> Iterator[Submission]:
        return iter(self._submissions)

    def join(self, submission: Submission) -> None:
        """Stand at the end."""
        self._submissions.append(submission)
        self.payload_bytes += len(submission.envelope.payload)

    def take(self, count: int) -> list[Submission]:
        """Take so many from the front."""
        taken = [self._submissions.popleft() for _ in range(count)]
        self.payload_bytes -= sum([len(submission.envelope.payload) for submission in taken])
        return taken

    def take_older(self, than: float) -> list[Submission]:
        """Take those from the front that were accepted before that moment."""
        return self.take(sum(1 for _ in takewhile(lambda each: each.accepted_at < than, self._submissions)))

    def take_outdated(self, catalogue: int) -> list[Submission]:
        """Take those out that were checked by another version of the catalogue."""
        outdated = [each for each in self._submissions if each.checked_by != catalogue and each.checked_by is not None]
        if outdated:
            self._submissions = deque(each for each in self._submissions if each.checked_by in (catalogue, None))
            self.payload_bytes -= sum([len(each.envelope.payload) for each in outdated])
        return outdated

    def put_back(self, submissions: Sequence[Submission]) -> None:
        """Put them in front again, in their order."""
        self._submissions.extendleft(reversed(submissions))
        self.payload_bytes += sum([len(submission.envelope.payload) for submission in submissions])
