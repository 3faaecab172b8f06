"""Claims about the group commit, against a real database."""

from __future__ import annotations

import asyncio
import logging

import asyncpg
import pytest

from relay.domain.telemetry import AppendCommitted
from relay.gateway import appender, pacing
from relay.store.database import Database
from relay.store.faults import DataRefused, StoreUnavailable
from relay.store.journal import Journal
from relay.store.wakeups import CHANNEL, WakeupListener, WakeupSender
from tests.gateway.world import World, event
from tests.support.asgi import Reply
from tests.support.said import said


async def posted_while_held(
    world: World, count: int, **members: str
) -> tuple[asyncio.Task[Reply], list[asyncio.Task[Reply]]]:
    """One post whose append waits for a lock, and then so many more."""
    first = asyncio.create_task(world.post())
    await world.until_an_append_waits()
    more = [asyncio.create_task(world.post(event(**members))) for n in range(count)]
    await world.until_waiting(count, more)
    return first, more


async def test_what_arrives_while_an_append_is_under_way_shares_the_next_one(world: World) -> None:
    async with world.appends_held():
        first, more = await posted_while_held(world, 20)
    replies = [await each for each in (first, *more)]
    assert [reply.status for reply in replies] == [202] * 21
    assert [committed.events for committed in world.ear.of(AppendCommitted)] == [1, 20]


async def test_behind_an_append_for_many_the_next_one_lets_more_join(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "LONGEST_SECONDS", 2.0)
    now = world.gateway.ambient.monotonic()
    world.gateway.appender._pace.ended(now - 2.0, now, pacing.CROWD)
    posts = []
    for number in range(3):
        posts.append(asyncio.create_task(world.post()))
        await world.until_waiting(number + 1, posts)
    assert {(await each).status for each in posts} == {202}
    assert [committed.events for committed in world.ear.of(AppendCommitted)] == [3]


async def test_whoever_waits_for_more_when_the_time_to_stop_is_over_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "LONGEST_SECONDS", 60.0)
    now = world.gateway.ambient.monotonic()
    world.gateway.appender._pace.ended(now - 60.0, now, pacing.CROWD)
    post = asyncio.create_task(world.post())
    await world.until_waiting(1, [post])
    assert await world.gateway.appender.drain(0.1) == 1
    assert (await post).code == "draining"
    assert await world.count("journal") == 0


async def test_a_gateway_that_stops_lets_nobody_wait_for_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "LONGEST_SECONDS", 60.0)
    async with world.appends_held():
        first, more = await posted_while_held(world, 1)
        now = world.gateway.ambient.monotonic()
        stopping = asyncio.create_task(world.gateway.appender.drain(30.0))
        await asyncio.sleep(0)
        world.gateway.appender._pace.ended(now - 60.0, now, pacing.CROWD)
    assert await stopping == 0
    assert {(await each).status for each in (first, *more)} == {202}


async def test_positions_follow_the_order_in_which_events_came(world: World) -> None:
    async with world.appends_held():
        first, more = await posted_while_held(world, 5)
    positions = [(await each).json()["journal_pos"] for each in (first, *more)]
    assert positions == [f"p06:{n}" for n in range(1, 7)]


async def test_an_event_is_appended_though_its_sender_has_left(world: World) -> None:
    async with world.appends_held():
        first, (second,) = await posted_while_held(world, 1)
        first.cancel()
        second.cancel()
        await asyncio.wait([first, second])
    await world.gateway.appender.drain(10.0)
    assert await world.count("journal") == 2


async def test_past_its_bound_a_gateway_says_no_at_once(database_dsn: str) -> None:
    async with World.over(database_dsn, most_waiting=3) as world:
        async with world.appends_held():
            first, more = await posted_while_held(world, 5)
            turned_away = [each for each in more if each.done()]
            assert [(await each).code for each in turned_away] == ["overloaded"] * 2
            assert (await turned_away[0]).headers["retry-after"] == "1"
        replies = [await each for each in (first, *more) if each not in turned_away]
        assert [reply.status for reply in replies] == [202] * 4
        assert await world.count("journal") == 4


async def test_past_its_bytes_a_gateway_says_no_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender, "MOST_WAITING_BYTES", 1_000)
    async with world.appends_held():
        first, more = await posted_while_held(world, 3, x="x" * 600)
        assert sorted(each.done() for each in more) == [False, True, True]
    statuses = sorted([(await each).status for each in (first, *more)])
    assert statuses == [202, 202, 503, 503]


async def test_an_event_larger_than_what_may_wait_is_taken_when_nobody_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender, "MOST_WAITING_BYTES", 10)
    assert (await world.post()).status == 202


async def test_a_database_that_is_away_is_a_503_that_asks_to_come_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.gateway.start()
    await world.database.close()
    replies = await asyncio.gather(*[world.post() for _ in range(5)])
    assert {reply.code for reply in replies} == {"database_unavailable"}
    assert {reply.headers["retry-after"] for reply in replies} == {"1"}
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


async def test_without_its_rules_a_gateway_answers_503(world: World) -> None:
    await world.database.close()
    assert (await world.post()).code == "database_unavailable"


async def test_a_gateway_recovers_with_its_database(world: World) -> None:
    await world.post()
    await world.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where pid <> pg_backend_pid() and datname = current_database()"
    )
    replies = [await world.post(event(n=n)) for n in range(3)]
    assert {reply.status for reply in replies} <= {202, 503}
    assert replies[-1].status == 202


async def test_a_bug_in_an_append_is_answered_and_logged_and_the_next_one_works(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", broken)
        replies = await asyncio.gather(*[world.post() for _ in range(3)])
    assert {reply.code for reply in replies} == {"internal"}
    assert "a bug" in said(caplog)
    assert (await world.post()).status == 202


async def test_draining_finishes_what_was_taken_and_refuses_the_rest(world: World) -> None:
    async with world.appends_held():
        first, more = await posted_while_held(world, 3)
        draining = asyncio.create_task(world.gateway.drain(10.0))
        await asyncio.wait([draining], timeout=0.02)
        assert (await world.post()).code == "draining"
    assert await draining == 0
    assert [(await each).status for each in (first, *more)] == [202] * 4


async def test_a_drain_that_takes_too_long_gives_up_and_says_how_many(world: World) -> None:
    async with world.appends_held():
        first, more = await posted_while_held(world, 3)
        assert await world.gateway.drain(0.05) == 4
        codes = [(await each).code for each in (first, *more)]
    assert codes == ["database_unavailable", "draining", "draining", "draining"]


async def test_a_drain_with_nothing_to_do_is_over_at_once(world: World) -> None:
    assert await world.gateway.drain(0.0) == 0


async def test_dispatchers_are_told_that_there_is_work(world: World) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    await world.subscribe()
    async with world.database.connection() as connection:
        await connection.add_listener(CHANNEL, lambda *told: heard.put_nowait(str(told[-1])))
        try:
            await world.post()
            assert await asyncio.wait_for(heard.get(), 10) == ""
        finally:
            await connection.remove_listener(CHANNEL, lambda *_: None)
            await connection.reset(timeout=5)


async def test_an_event_that_goes_nowhere_wakes_nobody(world: World) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    listening = asyncio.create_task(
        WakeupListener(world.dsn, name="relay-tests").listen(lambda: heard.put_nowait("woken"))
    )
    try:
        assert await asyncio.wait_for(heard.get(), 10) == "woken", "every listener is woken once at its start"
        await world.post()
        await world.subscribe("order.*")
        await world.post()
        await world.gateway.wakeups.finish(10)
        assert heard.empty()
    finally:
        listening.cancel()
        await asyncio.wait([listening])


async def test_sixty_four_posts_pass_a_session_that_listens_and_sleeps_in_a_transaction(world: World) -> None:
    """Case C103: such a session keeps the server's queue of notifications from being emptied; no append notifies."""
    await world.subscribe()
    sleeper = await asyncpg.connect(world.dsn)
    try:
        await sleeper.execute(f"listen {CHANNEL}")
        async with sleeper.transaction():
            await sleeper.execute("select 1")
            async with asyncio.timeout(30):
                replies = await asyncio.gather(*(world.post() for _ in range(64)))
            await world.gateway.wakeups.finish(10)
    finally:
        await sleeper.close()
    assert {reply.status for reply in replies} == {202}
    assert await world.count("journal") == 64


FULL = DataRefused("the database refused a write: too many notifications in the NOTIFY queue")


@pytest.mark.parametrize("fault", [StoreUnavailable("the database is away"), FULL], ids=["away", "queue full"])
async def test_a_wake_up_that_fails_harms_no_event_and_the_next_one_is_sent(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    """Case C103. Refused is what a server says whose queue of notifications is full."""
    sent: list[int] = []

    async def send(_sender: WakeupSender) -> None:
        sent.append(len(sent))
        if len(sent) == 1:
            raise fault

    monkeypatch.setattr(WakeupSender, "send", send)
    await world.subscribe()
    for _ in range(2):
        assert (await world.post()).status == 202
        await world.gateway.wakeups.finish(10)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    assert "wakeup_not_sent" in said(caplog)
    assert len(sent) == 2


async def test_a_wake_up_that_fails_harms_no_event(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await world.subscribe()
    gone = await Database.connect(world.dsn, name="relay-tests", size=1)
    await gone.close()
    monkeypatch.setattr(world.gateway.wakeups._sender, "_database", gone)
    assert (await world.post()).status == 202
    await world.gateway.wakeups.finish(10)
    assert "wakeup_not_sent" in said(caplog)
