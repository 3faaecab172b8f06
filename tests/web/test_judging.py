"""The judge beside the event loop: asked, ended when it takes too long, replaced when it is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from relay.web import judge as judge_process
from relay.web import judging
from relay.web.judging import BeyondBounds, Judge, Weighed
from relay.web.problems import ErrorCode, FieldFault, Refused
from tests.support.installation import eventually

BOMB = json.dumps({"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "type": "object"}).encode()
TENANT, OTHER = "acct_default", "acct_other"
DEEP = b'{"a":' * 60 + b"1" + b"}" * 60


@pytest.fixture
async def judge() -> AsyncIterator[Judge]:
    async with judging.judging() as made:
        yield made


def pid_of(judge: Judge) -> int:
    assert judge._first._process is not None
    return judge._first._process.pid


async def test_a_schema_is_weighed_and_payloads_are_looked_at(judge: Judge) -> None:
    assert await judge.weigh(TENANT, b'{"type":"object"}') == Weighed(2)
    assert await judge.weigh(TENANT, BOMB) == Weighed(None)
    assert await judge.weigh(TENANT, b'{"type":1}') != []
    assert await judge.look(TENANT, b'{"type":"object"}', b"{}") == []
    assert await judge.look(TENANT, b'{"type":"object"}', b"1") == [FieldFault("", 'the value is not of type "object"')]


async def test_a_look_without_end_is_ended_and_the_next_one_is_answered(judge: Judge) -> None:
    assert await judge.look(TENANT, BOMB, b"{}") == []
    first = pid_of(judge)
    with pytest.raises(BeyondBounds):
        await judge.look(TENANT, BOMB, DEEP)
    assert judge._first._process is None
    assert await judge.look(TENANT, BOMB, b"{}") == []
    assert await judge.look(OTHER, BOMB, b"{}") == []
    assert pid_of(judge) != first


async def test_a_judge_that_somebody_ended_is_replaced_without_anybody_noticing(judge: Judge) -> None:
    assert await judge.look(TENANT, b"{}", b"1") == []
    os.kill(pid_of(judge), signal.SIGKILL)
    assert await judge.look(TENANT, b"{}", b"1") == []


def _ended_between_questions(kill: signal.Signals) -> None:
    async def ask() -> None:
        async with judging.judging() as judge:
            for _ in range(3):
                assert await judge.look(TENANT, b"{}", b"1") == []
                process: Any = judge._first._process
                os.kill(process.pid, kill)
                await process.wait()
                for _ in range(3):  # what the loop has to say of its pipes
                    await asyncio.sleep(0)
            assert await judge.look(TENANT, b"{}", b"1") == []

    uvloop.run(ask())


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM, judge_process.OUT_OF_TIME])
async def test_a_judge_that_was_ended_between_two_questions_is_replaced_whatever_its_pipes_say(
    kill: signal.Signals,
) -> None:
    """On the product's own loop, whose pipes have words of their own for it."""
    await asyncio.to_thread(_ended_between_questions, kill)


async def test_what_takes_one_tenant_long_holds_no_other_one_up(judge: Judge) -> None:
    """Case C66: others wait for one such question at most, however many there are of it, and then for none."""
    assert await judge.look(OTHER, BOMB, b"{}") == []
    heavy = [asyncio.create_task(judge.look(OTHER, BOMB, DEEP)) for _ in range(8)]
    await asyncio.sleep(0)
    answered = 0
    while answered < 50:
        assert await judge.look(TENANT, b"{}", b"1") == []
        answered += 1
    assert sum(task.done() for task in heavy) <= 2
    outcomes = await asyncio.gather(*heavy, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {BeyondBounds, Refused}


async def test_a_tenant_that_took_long_is_among_the_others_again_after_so_many_ordinary_questions(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "WATCHED_QUESTIONS", 2)
    assert await judge.look(OTHER, BOMB, b"{}") == []
    with pytest.raises(BeyondBounds):
        await judge.look(OTHER, BOMB, DEEP)
    asked_first = []
    for _ in range(3):
        assert await judge.look(OTHER, b"{}", b"1") == []
        asked_first.append(judge._first._process is not None)
    assert asked_first == [False, False, True]


async def test_a_question_that_is_answered_and_takes_long_all_the_same_counts_as_one(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "LONG_SECONDS", -1.0)  # the timer counts in ticks of some milliseconds
    assert await judge.look(OTHER, b"{}", b"1") == []
    assert judge._second._process is None
    assert await judge.look(OTHER, b"{}", b"1") == []
    assert judge._second._process is not None


async def test_whoever_leaves_takes_no_answer_from_the_next_one(judge: Judge) -> None:
    assert await judge.look(TENANT, b"{}", b"1") == []
    leaving = asyncio.create_task(judge.look(TENANT, BOMB, DEEP))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await judge.look(TENANT, b"false", b"1") != []


async def test_many_ask_at_once_and_each_gets_its_own_answer(judge: Judge) -> None:
    asked = [judge.look(TENANT, b'{"const":%d}' % (n % 7), b"%d" % n) for n in range(60)]
    assert [not faults for faults in await asyncio.gather(*asked)] == [n < 7 for n in range(60)]


async def test_too_many_who_wait_are_turned_away(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "MOST_WAITING", 2)
    results = await asyncio.gather(*(judge.look(TENANT, b"{}", b"1") for _ in range(3)), return_exceptions=True)
    assert [isinstance(each, Refused) for each in results] == [False, False, True]
    assert isinstance(results[2], Refused)
    assert results[2].problem.code is ErrorCode.OVERLOADED


async def test_a_turn_that_does_not_come_in_time_is_refused(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "WAITING_SECONDS", 0.05)
    async with judge._first.turn("whoever"):
        with pytest.raises(Refused):
            await judge.look(TENANT, b"{}", b"1")


async def test_whoever_has_its_turn_is_answered_however_long_the_line_was(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each of a long line is begun when its time is nearly over, and none is answered any more."""
    monkeypatch.setattr(judging, "WAITING_SECONDS", 0.1)  # less than the look takes
    assert await judge.look(TENANT, BOMB, b"{}") == []
    first = pid_of(judge)
    looking = asyncio.create_task(judge.look(TENANT, BOMB, DEEP))
    await asyncio.sleep(0)
    with pytest.raises(Refused):
        await judge.look(TENANT, b"{}", b"1")
    assert pid_of(judge) == first
    with pytest.raises(BeyondBounds):
        await looking


async def test_a_judge_that_says_nothing_is_given_up_and_replaced(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await judge.look(TENANT, b"{}", b"1") == []
    monkeypatch.setattr(judging, "ANSWERING_SECONDS", 0.05)
    os.kill(pid_of(judge), signal.SIGSTOP)
    with pytest.raises(Refused):
        await judge.look(TENANT, b"{}", b"1")
    monkeypatch.undo()
    assert await judge.look(TENANT, b"{}", b"1") == []


async def test_the_process_is_told_none_of_relays_own(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAY_SECRET_KEYS", "s3cret")
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:s3cret@h/d")
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    assert await judge.look(TENANT, b"{}", b"1") == []
    environment = await asyncio.to_thread(Path(f"/proc/{pid_of(judge)}/environ").read_bytes)
    assert environment
    assert b"s3cret" not in environment


async def test_it_ends_with_its_pipe(judge: Judge) -> None:
    assert await judge.look(TENANT, b"{}", b"1") == []
    process: Any = judge._first._process
    process.stdin.close()
    await eventually(lambda: _is(process.returncode == 0), 10.0, "the judge has ended")


async def _is(holds: bool) -> bool:
    return holds


async def test_closing_ends_it_and_asking_starts_it_anew(judge: Judge) -> None:
    assert await judge.look(TENANT, b"{}", b"1") == []
    first: Any = judge._first._process
    await judge.close()
    assert first.returncode is not None
    assert await judge.look(TENANT, b"{}", b"1") == []


def spare_of(judge: Judge) -> Process:
    assert judge._first._spare is not None
    return judge._first._spare


async def test_what_replaces_a_judge_that_took_too_long_was_started_before(judge: Judge) -> None:
    await judge.look("quick", b"{}", b"{}")
    spare = spare_of(judge)
    with pytest.raises(BeyondBounds):
        await judge.look("slow", BOMB, DEEP)
    assert await judge.look("quick", b"{}", b"{}") == []
    assert judge._first._process is spare
    # and there is another one for the next time
    assert spare_of(judge).pid != spare.pid


async def test_a_spare_judge_that_somebody_ended_is_not_asked(judge: Judge) -> None:
    await judge.look("quick", b"{}", b"{}")
    spare = spare_of(judge)
    for each in (judge._first._process, spare):
        assert each is not None
        os.kill(each.pid, signal.SIGKILL)
        await each.wait()
    assert await judge.look("quick", b"{}", b"{}") == []
    assert pid_of(judge) != spare.pid


async def test_the_spare_judge_ends_with_the_others(judge: Judge) -> None:
    await judge.look("quick", b"{}", b"{}")
    spare = spare_of(judge)
    await judge.close()
    assert spare.returncode is not None
