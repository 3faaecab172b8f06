"""Wake-ups: hints that reach whoever listens, and a loss that is not kept secret."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from relay.store import wakeups
from relay.store.faults import StoreUnavailable
from relay.store.wakeups import WakeupListener, WakeupSender
from tests.store.world import World
from tests.support.link import Link

LIMIT_SECONDS = 30.0


class Ear:
    """Counts wake-ups and lets a test wait for the next one."""

    def __init__(self) -> None:
        self.heard = 0
        self._changed = asyncio.Event()

    def __call__(self) -> None:
        self.heard += 1
        self._changed.set()

    async def hears(self, number: int) -> None:
        """Return when so many wake-ups were heard in all."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while self.heard < number:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def listening(dsn: str, ear: Ear) -> AsyncIterator[asyncio.Task[None]]:
    """A listener that has begun to listen (which it says by a first wake-up)."""
    task = asyncio.create_task(WakeupListener(dsn, name="ear").listen(ear))
    await ear.hears(1)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, StoreUnavailable):
            await task


async def test_who_begins_to_listen_is_woken_for_what_came_before(database_dsn: str) -> None:
    ear = Ear()
    async with listening(database_dsn, ear):
        assert ear.heard == 1


async def test_a_wake_up_reaches_every_listener(world: World, database_dsn: str) -> None:
    first, second = Ear(), Ear()
    async with listening(database_dsn, first), listening(database_dsn, second):
        await WakeupSender(world.database).send()
        await first.hears(2)
        await second.hears(2)


async def test_a_link_that_dies_without_a_word_is_noticed(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "QUIET_SECONDS", 0.1)
    monkeypatch.setattr(wakeups, "ANSWER_SECONDS", 0.5)
    async with Link(database_dsn) as link, listening(link.dsn, Ear()) as task:
        link.freeze()
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(LIMIT_SECONDS):
                await task


async def test_a_connection_on_which_nothing_happens_is_known_to_live(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "QUIET_SECONDS", 0.05)
    woken, answered = Ear(), Ear()
    task = asyncio.create_task(WakeupListener(database_dsn, name="ear").listen(woken, answered))
    await answered.hears(3)
    assert woken.heard == 1, "an answer is no wake-up"
    task.cancel()
    await asyncio.wait([task])


async def test_losing_the_connection_is_told(world: World, database_dsn: str) -> None:
    async with listening(database_dsn, Ear()) as task:
        await world.sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'ear'")
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(LIMIT_SECONDS):
                await task


async def test_a_listener_that_finds_no_server_says_so() -> None:
    with pytest.raises(StoreUnavailable):
        await WakeupListener("postgresql://nobody@127.0.0.1:1/none", name="ear").listen(Ear())


async def test_a_cancelled_listener_leaves_no_connection(world: World, database_dsn: str) -> None:
    async with listening(database_dsn, Ear()):
        pass
    there = "select count(*) from pg_stat_activity where application_name = 'ear'"
    async with asyncio.timeout(LIMIT_SECONDS):
        while await world.value(there):
            pass
