"""The tap with which the tests of the whole stop a conversation at one exact place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from tests.support.installation import eventually
from tests.support.tap import Moment, Tap

DEADLINE = 30.0
INSERT = "insert into notes values ($1)"


@pytest.fixture
def tap(database_dsn: str) -> Iterator[Tap]:
    with Tap(database_dsn) as running:
        yield running


@pytest.fixture
async def beside(database_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection that goes straight to the server."""
    connection = await asyncpg.connect(database_dsn)
    await connection.execute("create table notes (number int)")
    yield connection
    await connection.close()


@pytest.fixture
async def client(tap: Tap, beside: asyncpg.Connection) -> AsyncIterator[asyncpg.Connection]:
    """A connection that goes through the tap and calls itself `writer`."""
    connection = await asyncpg.connect(tap.dsn, server_settings={"application_name": "writer"})
    yield connection
    connection.terminate()


async def numbers(connection: asyncpg.Connection) -> list[int]:
    return [row["number"] for row in await connection.fetch("select number from notes order by 1")]


async def test_a_statement_that_is_about_to_be_sent_has_done_nothing_until_it_is_passed_on(
    tap: Tap, client: asyncpg.Connection, beside: asyncpg.Connection
) -> None:
    place = tap.at(Moment.SENT, connection="writer", statement=INSERT)
    writing = asyncio.create_task(client.execute(INSERT, 1))
    await place.reached(DEADLINE)
    assert await numbers(beside) == []
    place.pass_on()
    assert await writing == "INSERT 0 1"
    assert await numbers(beside) == [1]


async def test_what_a_client_sent_before_it_died_still_arrives_or_never_does(
    tap: Tap, client: asyncpg.Connection, beside: asyncpg.Connection
) -> None:
    other = await asyncpg.connect(tap.dsn, server_settings={"application_name": "other"})
    late = tap.at(Moment.SENT, connection="writer", statement=INSERT)
    lost = tap.at(Moment.SENT, connection="other", statement=INSERT)
    writing = [asyncio.create_task(client.execute(INSERT, 1)), asyncio.create_task(other.execute(INSERT, 2))]
    await late.reached(DEADLINE)
    await lost.reached(DEADLINE)
    client.terminate()
    other.terminate()
    late.pass_on()
    lost.cut_off()
    await asyncio.gather(*writing, return_exceptions=True)

    async def it_arrived() -> bool:
        return await numbers(beside) == [1]

    await eventually(it_arrived, DEADLINE, "the statement of the dead client is carried out")


async def test_an_answer_is_held_back_when_its_statement_is_done(
    tap: Tap, client: asyncpg.Connection, beside: asyncpg.Connection
) -> None:
    place = tap.at(Moment.ANSWERED, connection="writer", statement=INSERT)
    writing = asyncio.create_task(client.execute(INSERT, 1))
    await place.reached(DEADLINE)
    assert await numbers(beside) == [1]
    assert not writing.done()
    place.cut_off()
    with pytest.raises(asyncpg.ConnectionDoesNotExistError):
        await writing


async def test_the_answer_to_a_commit_is_held_back_when_the_transaction_is_done(
    tap: Tap, client: asyncpg.Connection, beside: asyncpg.Connection
) -> None:
    place = tap.at(Moment.COMMITTED, connection="writer", statement=INSERT)

    async def write() -> None:
        async with client.transaction():
            await client.execute(INSERT, 1)
            assert not place.is_reached
            await client.execute(INSERT, 2)

    writing = asyncio.create_task(write())
    await place.reached(DEADLINE)
    assert await numbers(beside) == [1, 2]
    place.pass_on()
    await writing


async def test_a_place_stops_one_statement_with_that_argument_on_a_connection_of_that_name_once(
    tap: Tap, client: asyncpg.Connection, beside: asyncpg.Connection
) -> None:
    insert = "insert into notes select length($1)"
    place = tap.at(Moment.SENT, connection="writer", statement=insert, about=b"marked")
    other = await asyncpg.connect(tap.dsn, server_settings={"application_name": "other"})
    await other.execute(insert, "marked")
    await client.execute(insert, "plain")
    assert not place.is_reached
    writing = asyncio.create_task(client.execute(insert, "marked"))
    await place.reached(DEADLINE)
    place.pass_on()
    await writing
    assert await client.execute(insert, "marked") == "INSERT 0 1"
    await other.close()
