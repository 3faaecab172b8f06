"""What goes into one append, and what becomes of each event of it: values in, values out.

Owns the cut (how much shares a commit), the deliveries' ids, and what requests of one name that meet in one group are
told. An event for one endpoint alone that is gone by now is not appended at all: a dead letter without a route is
routed anew when it is re-driven, and others would get it. Invariant: no two events of a group have the same name, as
the append demands; the second waits for what becomes of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from relay.domain import ids
from relay.gateway import answers
from relay.gateway.routes import Route, Routes
from relay.gateway.submission import Line, Outcome, Replayed, Stored, Submission
from relay.store.barrier import Durability
from relay.store.journal import Addition, Appended, AppendResult, IdempotencyKey
from relay.web.credentials import Caller
from relay.web.problems import ErrorCode, Problem

MOST_ROWS = 2_000
"""Deliveries of one append, an event without any counted as one: past this a group only makes others wait longer."""

MOST_BYTES = 8 * 1024 * 1024
"""Payload bytes of one append."""

MOST_BATCH_ROWS = 20_000
MOST_BATCH_BYTES = 32 * 1024 * 1024
"""What an append may grow to before a batch is parted."""

REUSED = Problem(
    ErrorCode.IDEMPOTENCY_KEY_REUSED,
    "an earlier request with this Idempotency-Key had another type or body; give a new request a new key",
)

NO_ENDPOINT = Problem(ErrorCode.NOT_FOUND, "there is no endpoint of that id any more")

Entropy = Callable[[int], bytes]

StillHolds = Callable[[Caller], Problem | None]
"""Why a caller that was identified by other credentials is refused by those of now; None if it is not."""


class Member(NamedTuple):
    """One event of a group: what is appended, and the body of its 202 around the position.

    `followers` are requests of the same name, in the order in which they came. A tuple, since one is made per event.
    """

    submission: Submission
    addition: Addition
    head: bytes
    tail: bytes
    followers: list[Submission]


@dataclass(frozen=True, slots=True)
class Group:
    """What one append writes, and everybody who waits for it, in the order in which they came.

    `lost` are those taken from the line for which nothing can be written, `refused` those whose credential has ended,
    with what they are told.
    """

    members: Sequence[Member]
    submissions: Sequence[Submission]
    lost: Sequence[Submission] = ()
    refused: Sequence[tuple[Submission, Problem]] = ()

    @property
    def requests(self) -> int:
        """How many requests it serves: the events of a batch, which stand together, are one."""
        count, last = 0, None
        for member in self.members:
            batch = member.submission.batch
            count += batch is None or batch is not last
            last = batch
        return count


def take_group(line: Line, routes: Routes, durability: Durability, entropy: Entropy, still_holds: StillHolds) -> Group:
    """Take from the front of the line what shares the next append, at least one event if anybody waits.

    A batch shares one append, but where that would keep everybody else waiting for too long. Events from a group that
    was refused keep to themselves, so that no other is drawn into what they may be guilty of.
    """
    members: list[Member] = []
    lost: list[Submission] = []
    refused: list[tuple[Submission, Problem]] = []
    credentials = routes.versions.credentials
    named: dict[tuple[str, str, str], Member] = {}
    count = rows = size = 0
    company: int | None = None
    for submission in line:
        if not members:
            company = submission.company
        elif submission.company != company:
            break
        if submission.caller.version != credentials and (problem := still_holds(submission.caller)) is not None:
            refused.append((submission, problem))
            count += 1
            continue
        name = submission.name
        if name is not None and name in named:
            named[name].followers.append(submission)
            count += 1
            continue
        envelope = submission.envelope
        only = submission.only
        route = routes.route(envelope.tenant, envelope.type) if only is None else routes.only(envelope.tenant, only)
        if only is not None and not route.endpoints:
            lost.append(submission)
            count += 1
            continue
        rows += len(route.endpoints) or 1
        size += len(envelope.payload)
        if members and (
            len(members) == company
            or ((rows > MOST_ROWS or size > MOST_BYTES) and _may_part(members[-1].submission, submission, rows, size))
        ):
            break
        member = _member(submission, route, routes.partition(envelope.tenant), durability, entropy)
        members.append(member)
        count += 1
        if name is not None:
            named[name] = member
    # taken last, so that nobody is lost if anything above fails
    return Group(members, _without(line.take(count), refused), lost, refused)


def verdicts(member: Member, appended: Appended) -> Iterator[tuple[Submission, Outcome | None]]:
    """What each one who waits for this event is told; None for a request that has to be appended on its own.

    That is a follower whose leader turned out to be refused itself: what it must be compared with was never read.
    """
    leader = member.submission
    body: bytes | None
    match appended.result:
        case AppendResult.APPENDED:
            body = b"%b%b%b" % (member.head, str(appended.position).encode(), member.tail)
            yield leader, Stored(body)
        case AppendResult.REVIVED:
            body = appended.answer or b""
            yield leader, Stored(body)
        case AppendResult.REPLAYED:
            body = appended.answer or b""
            yield leader, Replayed(body)
        case AppendResult.CONFLICT:
            body = None
            yield leader, REUSED
        case _:
            assert_never(appended.result)
    for follower in member.followers:
        same = follower.fingerprint == leader.fingerprint
        if body is None:
            yield follower, REUSED if same else None
        else:
            yield follower, Replayed(body) if same else REUSED


def _without(taken: list[Submission], refused: list[tuple[Submission, Problem]]) -> list[Submission]:
    if not refused:
        return taken
    gone = {submission for submission, _ in refused}
    return [submission for submission in taken if submission not in gone]


def _may_part(last: Submission, following: Submission, rows: int, size: int) -> bool:
    """Whether a full group may end between these two, if it would have so many rows and bytes with the second."""
    is_within_a_batch = following.batch is not None and following.batch is last.batch
    return not is_within_a_batch or rows > MOST_BATCH_ROWS or size > MOST_BATCH_BYTES


def _is_signed(submission: Submission) -> bool:
    return submission.caller.proofs.signed is not None


def _member(submission: Submission, route: Route, partition: int, durability: Durability, entropy: Entropy) -> Member:
    envelope = submission.envelope
    deliveries = ids.delivery_ids(envelope.receipt_id, len(route.endpoints), entropy)
    head = answers.head(envelope)
    tail = answers.tail(envelope.received_at, durability, zip(deliveries, route.targets, strict=True))
    key = None
    if submission.key is not None and submission.fingerprint is not None:
        key = IdempotencyKey(submission.key, submission.fingerprint, head, tail, signed=_is_signed(submission))
    fan_out = tuple(zip(deliveries, route.endpoints, strict=True))
    return Member(submission, Addition(envelope, partition, key, fan_out), head, tail, [])
