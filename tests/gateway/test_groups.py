"""Claims about what shares an append, and who is told what."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from relay.domain.envelope import Envelope, JournalPosition
from relay.domain.routing import Rule, RuleSet
from relay.gateway.groups import MOST_BYTES, MOST_ROWS, REUSED, Group, take_group, verdicts
from relay.gateway.routes import Routes
from relay.gateway.submission import Line, Outcome, Replayed, Stored, Submission
from relay.store.barrier import Durability
from relay.store.journal import Appended, AppendResult, Versions
from relay.store.rules import Snapshot
from relay.store.schemas import Catalogue
from relay.web.credentials import ANONYMOUS, Caller
from tests.gateway.world import TENANT, new_id

NOW = datetime(2026, 1, 31, 9, 5, tzinfo=UTC)


def submission(
    event_type: str = "a", *, key: str | None = None, body: bytes = b"{}", source: str = "anonymous"
) -> Submission:
    """An accepted event; its fingerprint is its body."""
    future: asyncio.Future[Outcome] = asyncio.Future(loop=asyncio.new_event_loop())
    future.get_loop().close()
    envelope = Envelope(
        receipt_id=new_id(),
        event_id=key or "evt_1",
        type=event_type,
        schema=None,
        tenant=TENANT,
        source=source,
        received_at=NOW,
        content_type="application/json",
        payload=body,
        payload_sha256=b"",
    )
    return Submission(envelope, replace(ANONYMOUS, version=1), key, body if key else None, 0.0, future)


def routes(*subscriptions: str) -> Routes:
    """A snapshot with one endpoint for each of these patterns."""
    rules = tuple(
        Rule(endpoint_id=new_id(), consumer=f"consumer {n}", tenant=TENANT, patterns=(pattern,))
        for n, pattern in enumerate(subscriptions)
    )
    return Routes(Snapshot(Versions(1, 1, 1), RuleSet(1, rules), {TENANT: 6}), Catalogue(1, {}, frozenset()))


def line_of(submissions: Iterable[Submission]) -> Line:
    line = Line()
    for each in submissions:
        line.join(each)
    return line


def _holds(_: Caller) -> None:
    raise AssertionError("they were identified by the newest credentials")


def take(line: Line, snapshot: Routes) -> Group:
    return take_group(line, snapshot, Durability(1, 1), os.urandom, _holds)


def test_events_of_a_refused_group_share_what_they_may_and_with_nobody_else() -> None:
    waiting = [submission() for _ in range(6)]
    for each in waiting[:3]:
        each.company = 2
    line = line_of(waiting)
    snapshot = routes("*")
    assert [list(take(line, snapshot).submissions) for _ in range(3)] == [waiting[:2], waiting[2:3], waiting[3:]]


def told(group: Group, results: Sequence[Appended]) -> dict[Submission, Outcome | None]:
    pairs = [verdicts(member, result) for member, result in zip(group.members, results, strict=True)]
    return {who: what for verdict in pairs for who, what in verdict}


def test_a_group_holds_who_waits_in_their_order() -> None:
    waiting = [submission() for _ in range(5)]
    line = line_of(waiting)
    group = take(line, routes("*"))
    assert list(group.submissions) == waiting
    assert [member.submission for member in group.members] == waiting
    assert (len(line), line.payload_bytes) == (0, 0)


def test_the_events_of_a_batch_are_one_request_of_their_group() -> None:
    waiting = [submission() for _ in range(7)]
    for each, batch in zip(waiting, ("a", "a", None, "b", "b", None, None), strict=True):
        each.batch = batch
    assert take(line_of(waiting), routes("*")).requests == 5


def test_a_group_ends_before_it_has_too_many_deliveries() -> None:
    line = line_of(submission() for _ in range(10))
    group = take(line, routes(*["*"] * (MOST_ROWS // 4)))
    assert len(group.members) == 4
    assert len(line) == 6


def test_events_that_go_nowhere_count_too() -> None:
    line = line_of(submission() for _ in range(MOST_ROWS + 1))
    assert len(take(line, routes()).members) == MOST_ROWS


def test_a_group_ends_before_it_has_too_many_bytes() -> None:
    line = line_of(submission(body=b"x" * (MOST_BYTES // 3)) for _ in range(5))
    assert len(take(line, routes()).members) == 3
    assert line.payload_bytes == 2 * (MOST_BYTES // 3)


@pytest.mark.parametrize("body", [b"{}", b"x" * (MOST_BYTES + 1)])
def test_an_event_that_passes_every_bound_goes_alone(body: bytes) -> None:
    line = line_of([submission(body=body), submission()])
    assert len(take(line, routes(*["*"] * (MOST_ROWS + 1))).members) == 1


def test_a_fault_in_the_making_of_a_group_loses_nobody() -> None:
    line = line_of([submission(), submission()])
    with pytest.raises(RuntimeError):
        take_group(line, routes("*"), Durability(1, 1), _no_entropy, _holds)
    assert len(line) == 2


def _no_entropy(count: int) -> bytes:
    raise RuntimeError("no chance")


def test_who_is_put_back_is_first_again() -> None:
    first, second, third = submission(body=b"1"), submission(body=b"22"), submission(body=b"333")
    line = line_of([third])
    line.put_back([first, second])
    assert list(line) == [first, second, third]
    assert line.payload_bytes == 6


def test_the_fan_out_pairs_each_delivery_with_its_endpoint() -> None:
    snapshot = routes("a", "b", "a")
    (member,) = take(line_of([submission("a")]), snapshot).members
    assert [endpoint for _, endpoint in member.addition.fan_out] == list(snapshot.route(TENANT, "a").endpoints)
    assert len({delivery for delivery, _ in member.addition.fan_out}) == 2
    assert member.addition.partition == 6


def test_requests_of_one_name_meet_in_one_event() -> None:
    waiting = [submission(key="k"), submission(key="other"), submission(key="k"), submission(), submission()]
    group = take(line_of(waiting), routes())
    assert [member.submission for member in group.members] == [waiting[0], waiting[1], waiting[3], waiting[4]]
    assert group.members[0].followers == [waiting[2]]
    assert set(group.submissions) == set(waiting)


def test_one_key_of_two_sources_names_two_requests() -> None:
    group = take(line_of([submission(key="k", source="one"), submission(key="k", source="two")]), routes())
    assert [member.followers for member in group.members] == [[], []]


def test_followers_do_not_count_against_the_bounds() -> None:
    line = line_of([submission(key="k", body=b"x" * (MOST_BYTES // 2)) for _ in range(10)])
    assert len(take(line, routes()).submissions) == 10


def test_the_second_request_of_a_name_is_told_what_the_first_one_got() -> None:
    first, same, other = submission(key="k"), submission(key="k"), submission(key="k", body=b"[]")
    group = take(line_of([first, same, other]), routes())
    outcomes = told(group, [Appended(AppendResult.APPENDED, JournalPosition(6, 41), None)])
    stored = outcomes[first]
    assert isinstance(stored, Stored)
    assert b'"journal_pos":"p06:41"' in stored.body
    assert outcomes[same] == Replayed(stored.body)
    assert type(outcomes[same]) is Replayed
    assert outcomes[other] == REUSED


def test_a_name_that_was_used_before_is_answered_as_it_was() -> None:
    first, same, other = submission(key="k"), submission(key="k"), submission(key="k", body=b"[]")
    group = take(line_of([first, same, other]), routes())
    outcomes = told(group, [Appended(AppendResult.REPLAYED, JournalPosition(6, 1), b"as before")])
    assert (outcomes[first], outcomes[same], outcomes[other]) == (
        Replayed(b"as before"),
        Replayed(b"as before"),
        REUSED,
    )


def test_a_request_behind_a_refused_one_is_asked_anew_unless_it_is_the_same() -> None:
    first, same, other = submission(key="k"), submission(key="k"), submission(key="k", body=b"[]")
    group = take(line_of([first, same, other]), routes())
    outcomes = told(group, [Appended(AppendResult.CONFLICT, None, None)])
    assert (outcomes[first], outcomes[same], outcomes[other]) == (REUSED, REUSED, None)


def test_what_is_stored_for_a_name_is_what_its_first_request_is_answered() -> None:
    (member,) = take(line_of([submission(key='a"\\b')]), routes("*", "*")).members
    key = member.addition.key
    assert key is not None
    (pair,) = verdicts(member, Appended(AppendResult.APPENDED, JournalPosition(0, 7), None))
    assert pair[1] == Stored(key.answer_head + b"p00:7" + key.answer_tail)
