"""An address that names several servers: which one is taken, and that none is in the way of the others."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg
import pytest

from relay.store.address import connect, each_host
from relay.store.database import Database
from relay.store.faults import LoginRefused, StoreUnavailable
from tests.support.cluster import Cluster
from tests.support.link import Link

DEADLINE = 30.0


@pytest.fixture
def silent() -> Iterator[str]:
    """The folder of a server that takes connections and says nothing, as one that hangs does."""
    with tempfile.TemporaryDirectory(prefix="silent-") as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/.s.PGSQL.5432")
        listening.listen()
        yield folder


def among(dsn: str, *hosts: str) -> str:
    """The same address, with these hosts before or after its own, which is written as `-`."""
    parts = urlsplit(dsn)
    (own,) = parse_qs(parts.query)["host"]
    return urlunsplit(
        parts._replace(query=f"host={','.join(own if host == '-' else host for host in hosts)}&port=5432")
    )


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("postgresql://u:p@one/db", ["postgresql://u:p@one/db"]),
        ("postgresql://u:p@one:1,[::1]:2/db?a=b", ["postgresql://u:p@one:1/db?a=b", "postgresql://u:p@[::1]:2/db?a=b"]),
        ("postgresql:///db?host=/a", ["postgresql:///db?host=/a"]),
        ("postgresql:///db?host=/a,/b", ["postgresql:/db?host=%2Fa", "postgresql:/db?host=%2Fb"]),
        ("postgresql:///db?host=/a,b&port=7", ["postgresql:/db?host=%2Fa&port=7", "postgresql:/db?host=b&port=7"]),
        (
            "postgresql:///db?host=a,b&port=7,8&sslmode=require",
            ["postgresql:/db?host=a&port=7&sslmode=require", "postgresql:/db?host=b&port=8&sslmode=require"],
        ),
    ],
)
def test_an_address_of_several_hosts_is_one_address_for_each(address: str, hosts: list[str]) -> None:
    assert each_host(address) == hosts


async def test_a_host_that_hangs_is_in_the_way_of_no_other(database_dsn: str, silent: str) -> None:
    database = await Database.connect(among(database_dsn, silent, "-"), name="relay-tests", size=1, within=DEADLINE)
    async with database.connection() as connection:
        assert await connection.fetchval("select 1") == 1
    await database.close()


async def test_a_host_that_is_gone_is_in_the_way_of_no_other(database_dsn: str, tmp_path: Path) -> None:
    connection = await connect(among(database_dsn, str(tmp_path), "-"))
    assert await connection.fetchval("select 1") == 1
    await connection.close()


async def test_hosts_that_all_hang_are_given_up_in_time(database_dsn: str, silent: str) -> None:
    with pytest.raises(TimeoutError):
        await connect(among(database_dsn, silent, silent), timeout=0.5)


async def test_a_connection_that_is_given_up_leaves_no_attempt_behind(database_dsn: str, silent: str) -> None:
    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await connect(among(database_dsn, silent, silent))
    assert asyncio.all_tasks() == before


async def test_what_a_server_has_against_us_is_told_rather_than_that_another_is_gone(
    database_dsn: str, tmp_path: Path
) -> None:
    address = among(database_dsn, str(tmp_path), "-")
    parts = urlsplit(address)
    wrong = urlunsplit(parts._replace(netloc=f"nobody:wrong@{parts.netloc.rpartition('@')[2]}"))
    with pytest.raises(LoginRefused):
        await Database.connect(wrong, name="relay-tests", size=1)
    with pytest.raises(StoreUnavailable):
        await Database.connect(among(database_dsn, str(tmp_path), str(tmp_path)), name="relay-tests", size=1)


async def test_of_servers_that_follow_one_another_the_one_that_writes_is_taken(
    cluster: Cluster, cluster_database: str
) -> None:
    first, second = cluster.standbys
    address = cluster.dsn(cluster_database, only=cluster.primary)
    folders = [parse_qs(urlsplit(cluster.dsn(only=name)).query)["host"][0] for name in (first, second)]
    address = among(address, *folders, "-")
    for asked in ("", "&target_session_attrs=read-write"):
        connection = await connect(address + asked)
        assert not await connection.fetchval("select pg_is_in_recovery()")
        await connection.close()
    standby = await connect(f"{address}&target_session_attrs=standby")
    assert await standby.fetchval("select pg_is_in_recovery()")
    await standby.close()


async def test_none_of_several_is_taken_if_none_writes(cluster: Cluster, cluster_database: str) -> None:
    first, second = (cluster.dsn(cluster_database, only=name) for name in cluster.standbys)
    folder = parse_qs(urlsplit(second).query)["host"][0]
    with pytest.raises(asyncpg.TargetServerAttributeNotMatched):
        await connect(among(first.replace("&target_session_attrs=read-write", ""), "-", folder))


async def test_a_connection_to_a_machine_that_is_gone_fails_by_itself(database_dsn: str) -> None:
    """Within 25 seconds, whatever is waited for on it; by the systems' defaults it would be two hours."""
    async with Link(database_dsn) as link:
        connection = await connect(link.dsn)
        there = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined] # as in the room itself
        assert there.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        assert [there.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [10, 5, 3, 25_000]
        await connection.close()
