"""Claims about turns: tenant by tenant, and none is lost."""

from __future__ import annotations

import asyncio

from relay.web.turns import Turns


async def test_tenants_take_turns_however_many_wait_of_one() -> None:
    turns, order = Turns(), []

    async def once(tenant: str, number: int) -> None:
        async with turns.turn(tenant):
            order.append(f"{tenant}{number}")

    async with turns.turn("x"):
        asked = [
            asyncio.create_task(once(*who)) for who in [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("b", 1)]
        ]
        await asyncio.sleep(0)
    await asyncio.gather(*asked)
    assert order == ["a0", "b0", "c0", "a1", "b1", "a2"]


async def test_whoever_leaves_keeps_nobody_from_a_turn() -> None:
    turns = Turns()

    async def once() -> None:
        async with turns.turn("a"):
            pass

    await turns.take("x")
    waiting = [asyncio.create_task(once()) for _ in range(4)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    turns.give()
    # the turn is the first one's by now, which leaves before it has begun
    waiting[0].cancel()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 2 + [type(None)] * 2
    async with asyncio.timeout(1), turns.turn("b"):
        pass
