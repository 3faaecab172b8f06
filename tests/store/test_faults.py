"""Faults: the driver's troubles come out as this room's, and within their bounds."""

from __future__ import annotations

import asyncio
import socket
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg
import pytest

from relay.store import database as database_module
from relay.store import retention as retention_module
from relay.store.database import Commits, Database
from relay.store.faults import (
    CannotWrite,
    DataRefused,
    HostUnknown,
    LoginRefused,
    NoSuchDatabase,
    NotPermitted,
    StoreBusy,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    translated,
)
from relay.store.health import Health
from relay.store.migrate import migrate
from relay.store.retention import Retention
from tests.store.world import World
from tests.support.database import Server
from tests.support.link import Link

LIMIT_SECONDS = 30.0
LOOP_TURNS = 20
"""After so many, what was written to a socket of this machine has been read at its other end."""
GOODBYE_FIELDS = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
GOODBYE = b"E" + (len(GOODBYE_FIELDS) + 4).to_bytes(4, "big") + GOODBYE_FIELDS
NO_SERVER = "postgresql://nobody@127.0.0.1:1/none"


@pytest.fixture
async def silent_port() -> AsyncIterator[int]:
    """A port that takes connections and never says a word."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    for writer in writers:
        writer.close()
    server.close()
    await server.wait_closed()


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        await Database.connect(NO_SERVER, name="t", size=1)


async def test_a_database_that_does_not_exist_is_told_as_that(database_dsn: str) -> None:
    with pytest.raises(NoSuchDatabase, match=r'database "relay_nowhere_.*" does not exist'):
        await Database.connect(database_dsn.replace("/relay_test_", "/relay_nowhere_"), name="t", size=1)


@pytest.mark.parametrize("dsn", ["postgresql://u:s3cr@db:s3cr/x", "postgresql://u:s3cr@[::s3cr/x"])
async def test_an_address_that_the_driver_cannot_read_is_not_quoted(dsn: str) -> None:
    with pytest.raises(StoreUnavailable) as fault:
        await Database.connect(dsn, name="t", size=1)
    assert "s3cr" not in "".join(traceback.format_exception(fault.value))


async def test_a_password_that_is_wrong_is_told_as_that(database_dsn: str, database_server: Server) -> None:
    with pytest.raises(LoginRefused) as refused:
        await Database.connect(await as_a_guest(database_dsn, database_server, "not this"), name="t", size=1)
    assert "password" in str(refused.value)
    assert "not this" not in str(refused.value)


async def test_a_role_that_may_not_is_told_as_that(empty_dsn: str, database_server: Server) -> None:
    database = await Database.connect(await as_a_guest(empty_dsn, database_server, "guest"), name="t", size=1)
    with pytest.raises(NotPermitted, match="permission denied for schema public"):
        await migrate(database)
    await database.close()


async def as_a_guest(dsn: str, server: Server, password: str) -> str:
    """The same database for a role that owns nothing and whose password is `guest`."""
    await server.run(
        "do $$ begin create role relay_guest login password 'guest'; exception when duplicate_object then null; end $$"
    )
    parts = urlsplit(dsn)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"relay_guest:{quote(password)}@{place}"))


async def test_a_statement_of_the_shape_before_a_migration_is_busy(world: World, database_dsn: str) -> None:
    database = await Database.connect(database_dsn, name="t", size=1)

    async def look() -> None:
        async with database.transaction() as connection:
            await connection.fetch("select * from versions")

    await look()
    await world.sql("alter table versions add column of_today integer")
    with pytest.raises(StoreBusy):
        await look()
    await look()
    await database.close()


async def test_a_server_that_never_answers_is_unavailable_after_the_limit(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "CONNECT_TIMEOUT", 0.2)
    async with asyncio.timeout(LIMIT_SECONDS):
        with pytest.raises(StoreUnavailable):
            await Database.connect(f"postgresql://x@127.0.0.1:{silent_port}/x", name="t", size=1)


async def test_a_statement_that_takes_too_long_is_given_up(database_dsn: str) -> None:
    database = await Database.connect(database_dsn, name="t", size=1, within=1.0)
    async with asyncio.timeout(LIMIT_SECONDS):
        with pytest.raises(StoreUnavailable):
            async with database.connection() as connection:
                await connection.execute("select pg_sleep(60)")
        async with database.connection() as connection:
            assert await connection.fetchval("select 1") == 1
    await database.close()


async def test_a_full_pool_is_unavailable_after_the_limit(database_dsn: str) -> None:
    database = await Database.connect(database_dsn, name="t", size=1, within=1.0)
    async with database.kept_connection():
        with pytest.raises(StoreUnavailable):
            async with database.connection():
                pass
    await database.close()


async def read(database: Database) -> None:
    async with database.connection() as connection:
        await connection.fetchval("select 1")


async def write(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute("update versions set rules = rules + 1")


async def look(database: Database) -> None:
    async with database.snapshot() as connection:
        await connection.fetchval("select rules from versions")


async def keep(database: Database) -> None:
    async with database.kept_connection() as connection:
        await connection.fetchval("select 1")


async def report(database: Database) -> None:
    async with Health(database).reporting() as reporting:
        assert reporting is not None
        await reporting.measure()


PROMPT = 5.0
"""Seconds for what is bound by 1, on a machine that is busy with other tests: none of the driver's own waits (a cancel
request, a rollback, a reset) may come on top, and they are longer."""


@pytest.mark.parametrize("work", [read, write, look, keep, report])
async def test_a_server_that_hangs_holds_nobody_past_the_bound(
    database_dsn: str, work: Callable[[Database], Awaitable[None]]
) -> None:
    async with Link(database_dsn) as link:
        database = await Database.connect(link.dsn, name="t", size=1, within=1.0)
        await work(database)
        link.freeze()
        for _ in range(2):  # on the connection that was there, and on the new one that takes its place
            async with asyncio.timeout(PROMPT):
                with pytest.raises(StoreUnavailable):
                    await work(database)
        link.thaw()
        await work(database)
        await database.close()


async def several_at_once(database: Database, number: int) -> None:
    """Ask something on so many connections while all of them are borrowed."""
    async with AsyncExitStack() as stack:
        borrowed = [await stack.enter_async_context(database.connection()) for _ in range(number)]
        for connection in borrowed:
            await connection.execute("select 1")


async def test_a_link_that_died_without_a_word_costs_a_pool_one_bound_and_not_one_for_each_connection(
    database_dsn: str,
) -> None:
    async with Link(database_dsn) as link:
        database = await Database.connect(link.dsn, name="t", size=4, within=1.0)
        await several_at_once(database, 4)
        link.strand()
        with pytest.raises(StoreUnavailable):
            await read(database)
        async with asyncio.timeout(LIMIT_SECONDS):
            await several_at_once(database, 4)
        await database.close()


async def test_whoever_is_at_work_meanwhile_keeps_its_connection(database_dsn: str) -> None:
    database = await Database.connect(database_dsn, name="t", size=2, within=1.0)
    async with database.kept_connection() as working:
        with pytest.raises(StoreUnavailable):
            async with database.connection() as connection:
                await connection.execute("select pg_sleep(60)")
        assert await working.fetchval("select 1") == 1
    await database.close()


@pytest.mark.parametrize("work", [read, write, look, keep, report])
async def test_whoever_gives_up_on_a_server_that_hangs_is_free_at_once(
    database_dsn: str, work: Callable[[Database], Awaitable[None]]
) -> None:
    async with Link(database_dsn) as link:
        database = await Database.connect(link.dsn, name="t", size=1)
        await work(database)
        link.freeze()
        async with asyncio.timeout(PROMPT):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await work(database)
        link.thaw()
        await work(database)
        await database.close()


@pytest.mark.parametrize(
    "step",
    [
        lambda retention: retention.drop_day_of_attempts(30),
        lambda retention: retention.prune_idempotency_keys(batch=1),
        lambda retention: retention.days_to_sweep(),
    ],
    ids=["a day of attempts", "names", "days to sweep"],
)
async def test_a_step_of_the_retention_has_a_bound_of_its_own_whatever_a_look_at_a_day_may_take(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch, step: Callable[[Retention], Awaitable[object]]
) -> None:
    monkeypatch.setattr(retention_module, "STEP_SECONDS", 1.0)
    async with Link(database_dsn) as link:
        database = await Database.connect(link.dsn, name="t", size=1, within=900.0)
        link.strand()
        async with asyncio.timeout(PROMPT):
            with pytest.raises(StoreUnavailable):
                await step(Retention(database))
        await step(Retention(database))
        await database.close()


async def test_the_server_ends_by_itself_what_its_client_has_given_up(world: World, database_dsn: str) -> None:
    database = await Database.connect(database_dsn, name="gives up", size=1, within=0.5)
    with pytest.raises(StoreUnavailable):
        async with database.connection() as connection:
            await connection.execute("select pg_sleep(60)")
    async with asyncio.timeout(LIMIT_SECONDS):
        while await world.value("select count(*) from pg_stat_activity where application_name = 'gives up'"):
            pass
    await database.close()


async def test_a_bug_in_a_transaction_rolls_it_back_and_keeps_the_connection(world: World) -> None:
    async def fail() -> None:
        async with world.database.transaction() as connection:
            await connection.execute("update versions set rules = 99")
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert (await world.versions()).rules == 1


async def test_a_connection_that_is_cut_is_unavailable_and_the_next_one_is_new(world: World) -> None:
    async def cut() -> None:
        async with world.database.connection() as connection:
            own = await connection.fetchval("select pg_backend_pid()")
            await world.sql("select pg_terminate_backend($1)", own)
            await connection.fetchval("select 1")

    with pytest.raises(StoreUnavailable):
        await cut()
    await Health(world.database).writes()


async def test_a_transaction_that_is_cut_is_unavailable_and_leaves_nothing(world: World) -> None:
    async def cut() -> None:
        async with world.database.transaction() as connection:
            await connection.execute("update versions set rules = 99")
            own = await connection.fetchval("select pg_backend_pid()")
            await world.sql("select pg_terminate_backend($1)", own)

    with pytest.raises(StoreUnavailable):
        await cut()
    assert (await world.versions()).rules == 1


def say_goodbye(link: Link) -> None:
    link.interject(GOODBYE)


def say_goodbye_and_close(link: Link) -> None:
    link.interject(GOODBYE)
    link.cut()


def begin_a_goodbye_and_close(link: Link) -> None:
    link.interject(GOODBYE[:20])
    link.cut()


def reset(link: Link) -> None:
    link.cut(reset=True)


@pytest.mark.parametrize("noticed", [False, True], ids=["unnoticed", "noticed"])
@pytest.mark.parametrize("end", [say_goodbye, say_goodbye_and_close, begin_a_goodbye_and_close, Link.cut, reset])
async def test_however_a_servers_end_comes_through_a_commit_is_unavailable_and_the_next_statement_works(
    database_dsn: str, end: Callable[[Link], None], noticed: bool
) -> None:
    """How much of it the driver has seen when it commits is a matter of microseconds; here each way is taken."""

    async def cut_off(link: Link, database: Database) -> None:
        async with database.transaction() as connection:
            await connection.execute("select 1")
            end(link)
            for _ in range(LOOP_TURNS if noticed else 0):
                await asyncio.sleep(0)

    async with Link(database_dsn) as link:
        database = await Database.connect(link.dsn, name="t", size=1)
        async with asyncio.timeout(LIMIT_SECONDS):
            with pytest.raises(StoreUnavailable):
                await cut_off(link, database)
            async with database.connection() as connection:
                assert await connection.fetchval("select rules from versions") == 1
            await database.close()


async def test_a_closed_pool_is_unavailable(database_dsn: str) -> None:
    database = await Database.connect(database_dsn, name="t", size=1)
    await database.close()
    with pytest.raises(StoreUnavailable):
        await Health(database).writes()


async def test_closing_cuts_a_connection_that_is_not_given_back(database_dsn: str) -> None:
    database = await Database.connect(database_dsn, name="t", size=1)

    async def keep() -> None:
        async with database.connection() as connection:
            await database.close(within=0.1)
            await connection.fetchval("select 1")

    async with asyncio.timeout(LIMIT_SECONDS):
        with pytest.raises(StoreUnavailable):
            await keep()


@pytest.mark.parametrize(
    "statement",
    [
        "select 1 / 0",
        "select 'x'::text::integer",
        "update versions set rules = 99999999999999999999",
        "update versions set rules = null",
        "insert into versions (rules, credentials, schemas) values (1, 1, 1)",
        "insert into tenants (id, name, partition) values ('acct_x', 'x', 99)",
    ],
)
async def test_bad_data_is_refused(world: World, statement: str) -> None:
    with pytest.raises(StoreRefused):
        await world.sql(statement)


async def test_a_value_that_the_driver_cannot_send_is_refused(world: World) -> None:
    with pytest.raises(StoreRefused):
        await world.sql("select $1::integer", "a word")


@pytest.mark.parametrize(("statement", "value"), [("select $1::integer", "a word"), ("select $1::smallint", 10**6)])
async def test_a_value_that_no_column_takes_is_told_from_a_broken_rule(
    world: World, statement: str, value: object
) -> None:
    with pytest.raises(DataRefused):
        await world.sql(statement, value)
    with pytest.raises(StoreRefused) as broken:
        await world.sql("update versions set rules = null")
    assert type(broken.value) is StoreRefused


async def test_a_refusal_does_not_quote_the_row(world: World) -> None:
    with pytest.raises(StoreRefused) as refused:
        await world.sql("insert into tenants (id, name, partition) values ('acct_x', 'a private name', 99)")
    assert "private" not in str(refused.value)


async def test_text_that_postgresql_cannot_hold_is_refused(world: World) -> None:
    with pytest.raises(StoreRefused):
        await world.sql("select $1::text", "nul \x00")


@pytest.mark.parametrize("statement", ["select * from nowhere", "selec", "select nothing_of_the_kind()"])
async def test_a_bug_is_not_translated(world: World, statement: str) -> None:
    with pytest.raises(asyncpg.PostgresSyntaxError if statement == "selec" else asyncpg.SyntaxOrAccessError):
        await world.sql(statement)


async def test_a_driver_called_wrongly_is_a_bug_and_no_trouble_of_the_world(world: World) -> None:
    with pytest.raises(asyncpg.InterfaceError, match="expects 1 argument"):
        await world.sql("select $1::integer")


async def test_a_lock_that_is_not_to_be_had_is_busy(world: World) -> None:
    async with world.database.transaction() as holder:
        await holder.execute("update versions set rules = rules + 1")
        with pytest.raises(StoreBusy):
            await world.sql("select 1 from versions for update nowait")


async def test_a_deadlock_is_busy_and_changes_nothing(world: World) -> None:
    """Two transactions that lock each other out: one of them must give way."""
    first_locked, second_locked = asyncio.Event(), asyncio.Event()

    async def cross(one: int, other: int, mine: asyncio.Event, theirs: asyncio.Event) -> None:
        async with world.database.transaction() as connection:
            await connection.execute("set local deadlock_timeout = '50ms'")
            take = "update journal_heads set next_number = next_number + 1 where partition = $1"
            await connection.execute(take, one)
            mine.set()
            await theirs.wait()
            await connection.execute(take, other)

    async with asyncio.timeout(LIMIT_SECONDS):
        came = await asyncio.gather(
            cross(1, 2, first_locked, second_locked),
            cross(2, 1, second_locked, first_locked),
            return_exceptions=True,
        )
    assert [type(each) for each in came if each is not None] == [StoreBusy]
    assert await world.value("select sum(next_number) from journal_heads") == 16 + 2


@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        (asyncpg.TooManyConnectionsError("x"), StoreFull),
        (asyncpg.CannotConnectNowError("x"), StoreUnavailable),
        (asyncpg.AdminShutdownError("x"), StoreUnavailable),
        (asyncpg.DiskFullError("x"), CannotWrite),
        (asyncpg.PostgresIOError("x"), StoreUnavailable),
        (asyncpg.ReadOnlySQLTransactionError("x"), CannotWrite),
        (asyncpg.InvalidPasswordError("x"), LoginRefused),
        (asyncpg.InvalidAuthorizationSpecificationError("x"), LoginRefused),
        (asyncpg.InvalidCatalogNameError("x"), NoSuchDatabase),
        (asyncpg.InsufficientPrivilegeError("x"), NotPermitted),
        (socket.gaierror(-2, "Name or service not known"), HostUnknown),
        (asyncpg.InvalidCachedStatementError("x"), StoreBusy),
        (asyncpg.IdleInTransactionSessionTimeoutError("x"), StoreUnavailable),
        (asyncpg.ConnectionDoesNotExistError("x"), StoreUnavailable),
        (ConnectionResetError(), StoreUnavailable),
        (TimeoutError(), StoreUnavailable),
        (asyncpg.SerializationError("x"), StoreBusy),
        (asyncpg.UniqueViolationError("x"), StoreRefused),
        (asyncpg.ProgramLimitExceededError("x"), DataRefused),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else type(each).__name__,
)
def test_each_trouble_of_the_world_has_its_one_name(fault: Exception, shown: type[Exception]) -> None:
    with pytest.raises(Exception, match="the database") as raised, translated():
        raise fault
    assert type(raised.value) is shown
    assert type(fault).__name__ not in str(raised.value), "a person is told, who knows no classes"
    assert "Errno" not in str(raised.value)
    assert raised.value.__cause__ is fault


async def test_a_session_is_told_what_every_statement_counts_on(world: World) -> None:
    async with world.database.connection() as connection:
        told = {name: await connection.fetchval(f"show {name}") for name in ("jit", "timezone", "enable_seqscan")}
        assert told == {"jit": "off", "timezone": "UTC", "enable_seqscan": "off"}
        assert await connection.fetchval("show synchronous_commit") == "local"
        assert await connection.fetchval("show idle_in_transaction_session_timeout") == "10s"


async def test_only_a_pool_that_may_be_lazy_does_not_wait_for_the_disk(database_dsn: str) -> None:
    database = await Database.connect(database_dsn, name="lazy", size=1, commits=Commits.LAZY)
    async with database.connection() as connection:
        assert await connection.fetchval("show synchronous_commit") == "off"
    await database.close()
