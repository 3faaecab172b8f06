"""A link to the database that dies without a word, at any moment: whoever posts has an answer within the bound, and
whoever posts it again has one event."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.world import World, event
from tests.support.installation import eventually
from tests.support.link import Link

WITHIN_SECONDS = 1.0
PATIENCE_SECONDS = 15.0
"""Far more than the bound: a gateway without one would hang for ever, the server being none the wiser."""

STATEMENTS = {
    "the append": b"append_events",
    "the reading of the rules": b"rule_changes",
    "the reading of the catalogue": b"s)::text as types",
    "the reading of the credentials": b"credentials_in_force",
}


@pytest.mark.parametrize("about", STATEMENTS.values(), ids=STATEMENTS)
async def test_a_link_that_dies_in_the_middle_of_a_statement_is_a_503_and_the_retry_is_one_event(
    database_dsn: str, about: bytes
) -> None:
    """The server has carried the statement out, and its answer never comes."""
    async with Link(database_dsn) as link, World.over(link.dsn, within=WITHIN_SECONDS) as world:
        link.strand_next(about)
        async with asyncio.timeout(PATIENCE_SECONDS):
            reply = await world.post(event(), ("Idempotency-Key", "once"))
            assert (reply.status, reply.code) == (503, "database_unavailable")
            assert (await world.post(event(), ("Idempotency-Key", "once"))).status == 202
        assert link.strandings == 1
        assert await world.count("journal") == 1


async def test_a_link_that_dies_in_the_middle_of_a_wake_up_is_nothing_to_the_sender(database_dsn: str) -> None:
    async with Link(database_dsn) as link, World.over(link.dsn, within=WITHIN_SECONDS) as world:
        await world.subscribe("*")
        link.strand_next(b"pg_notify")

        async def stranded() -> bool:
            return link.strandings == 1

        async with asyncio.timeout(PATIENCE_SECONDS):
            assert [(await world.post(event())).status for _ in range(3)] == [202] * 3
            await eventually(stranded, PATIENCE_SECONDS, "the link has died while a wake-up was sent")
            assert (await world.post(event())).status == 202


async def test_after_all_links_have_died_one_request_is_turned_away_and_the_next_is_served(database_dsn: str) -> None:
    """Not one for each connection of the pool."""
    async with Link(database_dsn) as link, World.over(link.dsn, within=WITHIN_SECONDS) as world:
        # as many connections as the pool may have
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(use(world))
        assert (await world.post(event())).status == 202
        link.strand()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert [(await world.post(event())).status for _ in range(3)] == [503, 202, 202]


async def use(world: World) -> None:
    async with world.database.connection() as connection:
        await connection.execute("select pg_sleep(0.2)")
