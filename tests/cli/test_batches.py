"""Claims about changes of many dead letters: batches, names, lost answers, and where they stop."""

from __future__ import annotations

import time
from typing import Any

import pytest

from relay.cli import naming
from relay.cli.client import NotReached, Unanswered, connect
from relay.settings import read
from tests.cli.conftest import Shell, on_a_terminal, only_line
from tests.cli.scripted_api import LOSE_THE_ANSWER, Answer, Call, scripted
from tests.support.installation import LOOPBACK, free_port


class DeadLetters:
    """So many dead letters, of which each re-drive takes as many as it may; `again` of them die at once."""

    def __init__(self, count: int, *, again: int = 0) -> None:
        self.count = count
        self.again = again
        self.new = 0
        self.kept: dict[str, Any] = {}
        self.lose: list[int] = []
        self.refuse: list[Answer] = []

    def __call__(self, call: Call) -> Answer:
        if call.method == "GET":
            return 200, {"data": [{"receipt_id": "rcp_1", "dead_at": "2026-01-31T09:05:00.123Z"}], "next_cursor": "x"}
        limit = call.body["limit"]
        if call.body.get("dry_run"):
            count = self.new if call.body.get("since") == "2026-01-31T09:05:00.124000+00:00" else self.count
            return 202, {"dry_run": True, "count": min(count, limit), "more": count > limit}
        assert call.key is not None
        if call.key in self.kept:
            return 202, self.kept[call.key]
        if self.refuse:
            return self.refuse.pop(0)
        taken = min(self.count, limit)
        self.count += min(taken, self.again) - taken
        self.new += min(taken, self.again)
        self.kept[call.key] = {"dry_run": False, "count": taken, "more": self.count > 0}
        return LOSE_THE_ANSWER if len(self.kept) in self.lose else (202, self.kept[call.key])


def changes(calls: list[Call]) -> list[Call]:
    return [call for call in calls if call.method == "POST" and not call.body.get("dry_run")]


def test_many_are_changed_in_batches_each_under_a_name_of_its_own(lonely: Shell) -> None:
    with scripted(DeadLetters(2_500)) as api:
        lonely.environment["RELAY_URL"] = api.url
        assert lonely.document("dlq", "redrive", "--reason", "exhausted") == {"dry_run": False, "count": 2_500}
    made = changes(api.calls)
    assert [call.body["limit"] for call in made] == [1_000, 1_000, 500]
    assert {call.body["reason"] for call in api.calls} == {"exhausted"}
    assert len({call.key for call in made}) == 3


def test_an_answer_that_got_lost_is_asked_for_again_under_the_same_name(lonely: Shell) -> None:
    letters = DeadLetters(1_500)
    letters.lose = [1]
    with scripted(letters) as api:
        lonely.environment["RELAY_URL"] = api.url
        assert lonely.document("dlq", "discard", "--yes")["count"] == 1_500
    keys = [call.key for call in changes(api.calls)]
    assert keys[0] == keys[1] != keys[2]
    assert len(keys) == 3


def test_letters_that_die_again_at_once_are_not_sent_in_a_circle(lonely: Shell) -> None:
    with scripted(DeadLetters(1_200, again=1_000)) as api:
        lonely.environment["RELAY_URL"] = api.url
        assert lonely.document("dlq", "redrive")["count"] == 1_200
    assert [call.body["limit"] for call in changes(api.calls)] == [1_000, 200]


def test_more_than_one_call_counts_are_told_as_that_and_not_counted_by_their_list(lonely: Shell) -> None:
    with scripted(DeadLetters(10_300)) as api:
        lonely.environment["RELAY_URL"] = api.url
        counted = [
            lonely.document("dlq", "redrive", "--dry-run", *words)
            for words in ((), ("--limit", "10200"), ("--limit", "10000"), ("--limit", "7"))
        ]
        assert "more than 10000 would be discarded" in on_a_terminal(lonely, "dlq", "discard", "--dry-run")
    assert [(each["count"], each["more"]) for each in counted] == [
        (10_000, True),
        (10_000, True),
        (10_000, False),
        (7, False),
    ]
    assert len(api.calls) == 5


def test_more_than_one_call_counts_are_changed_without_those_that_die_again_meanwhile(lonely: Shell) -> None:
    with scripted(DeadLetters(23_400, again=100)) as api:
        lonely.environment["RELAY_URL"] = api.url
        assert lonely.document("dlq", "redrive")["count"] == 23_400
    assert len([call for call in api.calls if call.method == "GET"]) == 1


def test_where_all_die_again_a_run_ends_and_says_so(lonely: Shell) -> None:
    with scripted(DeadLetters(10_300, again=1_000)) as api:
        lonely.environment["RELAY_URL"] = api.url
        done = lonely.run("dlq", "redrive")
    assert (done.returncode, len(changes(api.calls))) == (0, 10)
    assert only_line(done.stderr) == "10000 have died meanwhile; run it again for what was dead before"


def test_a_limit_beyond_what_one_call_counts_is_kept(lonely: Shell) -> None:
    with scripted(DeadLetters(23_400)) as api:
        lonely.environment["RELAY_URL"] = api.url
        assert lonely.document("dlq", "redrive", "--limit", "12300")["count"] == 12_300
    assert changes(api.calls)[-1].body["limit"] == 300


def test_a_relay_that_is_overloaded_is_asked_again(lonely: Shell) -> None:
    letters = DeadLetters(1)
    letters.refuse = [(503, {"code": "overloaded", "title": "later"})]
    with scripted(letters) as api:
        lonely.environment["RELAY_URL"] = api.url
        assert lonely.document("dlq", "redrive")["count"] == 1
    assert len({call.key for call in changes(api.calls)}) == 1


def test_a_refusal_in_the_middle_tells_how_far_it_came(lonely: Shell) -> None:
    letters = DeadLetters(1_500)

    def answer(call: Call) -> Answer:
        if letters.count == 500 and call.key:
            return 409, {"code": "idempotency_key_reused", "detail": "no"}
        return letters(call)

    with scripted(answer) as api:
        lonely.environment["RELAY_URL"] = api.url
        done = lonely.run("dlq", "redrive")
    assert done.returncode == 1
    says = only_line(done.stderr)
    assert says == "1000 of 1500 are re-driven, then: no (idempotency_key_reused); run it again"
    assert len(changes(api.calls)) == 2


def test_others_who_are_at_the_same_letters_do_not_keep_it_going_for_ever(lonely: Shell) -> None:
    def answer(call: Call) -> Answer:
        count = 5 if call.body.get("dry_run") else 0
        return 202, {"dry_run": False, "count": count, "more": True} if call.key else {"count": 5, "more": False}

    with scripted(answer) as api:
        lonely.environment["RELAY_URL"] = api.url
        assert lonely.document("dlq", "redrive")["count"] == 0
    assert len(changes(api.calls)) == 3


def test_a_batch_goes_on_where_the_one_before_ended_even_if_that_found_nothing(lonely: Shell) -> None:
    answers = [(0, "a"), (0, "b"), (0, "c"), (0, "d"), (5, None)]

    def answer(call: Call) -> Answer:
        if call.body.get("dry_run"):
            return 202, {"dry_run": True, "count": 5, "more": False, "next_cursor": None}
        count, cursor = answers.pop(0)
        return 202, {"dry_run": False, "count": count, "more": cursor is not None, "next_cursor": cursor}

    with scripted(answer) as api:
        lonely.environment["RELAY_URL"] = api.url
        assert lonely.document("dlq", "redrive")["count"] == 5
    assert [call.body.get("cursor") for call in changes(api.calls)] == [None, "a", "b", "c", "d"]


def test_a_person_sees_how_far_it_is(lonely: Shell) -> None:
    with scripted(DeadLetters(2_500)) as api:
        lonely.environment["RELAY_URL"] = api.url
        shown = on_a_terminal(lonely, "dlq", "redrive", "--yes")
    assert "1000/2500" in shown
    assert "2500 re-driven" in shown


@pytest.mark.parametrize("what", ["redrive", "discard"])
def test_without_dead_letters_nothing_is_asked_and_nothing_sent(lonely: Shell, what: str) -> None:
    with scripted(DeadLetters(0)) as api:
        lonely.environment["RELAY_URL"] = api.url
        assert lonely.document("dlq", what) == {"dry_run": False, "count": 0}
    assert changes(api.calls) == []


def test_a_relay_that_is_not_there_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with connect(read({"RELAY_URL": f"http://{LOOPBACK}:{free_port()}"})) as relay, pytest.raises(NotReached):
        naming.call_once(relay, "/v1/receipts/rcp_1/redrive", {})
    assert pauses == []


def test_a_relay_that_went_away_is_waited_for_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with (
        scripted(lambda _: LOSE_THE_ANSWER) as api,
        connect(read({"RELAY_URL": api.url})) as relay,
        pytest.raises(Unanswered),
    ):
        naming.call_once(relay, "/v1/receipts/rcp_1/redrive", {})
    assert tuple(pauses) == naming.PAUSES_SECONDS
    assert len({call.key for call in api.calls}) == 1
