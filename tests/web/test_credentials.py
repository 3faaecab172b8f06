"""Claims about the credentials that a process knows: how it asks for the newest ones, and for whom an answer counts."""

from __future__ import annotations

import asyncio

import pytest

from relay.domain.credentials import Credentials
from relay.store.faults import StoreUnavailable
from relay.web.credentials import Register


class Store:
    """Answers each question when it is let, with credentials that have changed by then."""

    def __init__(self) -> None:
        self.asked = 0
        self.faults: list[StoreUnavailable] = []
        self._let = asyncio.Semaphore(0)
        self._heard = asyncio.Semaphore(0)

    async def read(self, _known: int | None) -> Credentials:
        self.asked += 1
        version = self.asked
        self._heard.release()
        await self._let.acquire()
        if self.faults:
            raise self.faults.pop()
        return Credentials(version, (), {}, ())

    def answer(self) -> None:
        """Let the question under way, or the next one, be answered."""
        self._let.release()

    async def until_asked(self) -> None:
        """Return once a question, one more than before, is under way."""
        async with asyncio.timeout(10):
            await self._heard.acquire()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def register(store: Store) -> Register:
    return Register(store.read, monotonic=lambda: 0.0, is_private=True)


async def asking(register: Register, count: int = 1) -> list[asyncio.Task[Credentials]]:
    """So many who ask for the newest ones, all of whom have come by now."""
    tasks = [asyncio.create_task(register.newest()) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_whoever_comes_while_an_answer_is_on_its_way_shares_the_next_one(
    store: Store, register: Register
) -> None:
    """The answer may be older than what they saw."""
    (early,) = await asking(register)
    await store.until_asked()
    late = await asking(register, 20)
    store.answer()
    store.answer()
    assert (await early).version == 1
    assert {each.version for each in await asyncio.gather(*late)} == {2}
    assert store.asked == 2


async def test_a_question_that_fails_fails_whom_it_was_for_and_nobody_else(store: Store, register: Register) -> None:
    store.faults.append(StoreUnavailable("away"))
    (early,) = await asking(register)
    await store.until_asked()
    (late,) = await asking(register)
    store.answer()
    store.answer()
    with pytest.raises(StoreUnavailable):
        await early
    assert (await late).version == 2


async def test_whoever_leaves_with_a_question_under_way_leaves_the_next_one_to_the_others(
    store: Store, register: Register
) -> None:
    (leaving,) = await asking(register)
    await store.until_asked()
    (staying,) = await asking(register)
    leaving.cancel()
    await store.until_asked()
    store.answer()
    assert (await staying).version == 2
    with pytest.raises(asyncio.CancelledError):
        await leaving
