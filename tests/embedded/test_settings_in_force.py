"""What the running server says about its own settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from relay.embedded import EmbeddedServer
from tests.embedded.conftest import fetch


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("data_checksums", "on"),
        ("wal_level", "replica"),
        ("listen_addresses", ""),
        ("server_encoding", "UTF8"),
        ("TimeZone", "UTC"),
        ("jit", "off"),
        ("autovacuum", "on"),
    ],
)
async def test_the_product_s_server_is_durable_and_local(shared: EmbeddedServer, name: str, value: str) -> None:
    assert await fetch(shared.dsn, f"SHOW {name}") == [(value,)]


async def test_every_setting_that_relay_writes_is_in_force(shared: EmbeddedServer) -> None:
    rows = await fetch(
        shared.superuser_dsn,
        "SELECT name, error FROM pg_file_settings"
        " WHERE sourcefile LIKE '%relay.conf' AND (NOT applied OR error IS NOT NULL)",
    )
    assert rows == []


async def test_text_sorts_by_code_point_and_knows_the_case_of_all_letters(shared: EmbeddedServer) -> None:
    assert await fetch(shared.dsn, "SELECT 'Z' < 'a', lower('GRÖSSE')") == [(True, "grösse")]


async def test_the_owner_is_no_superuser_but_owns_the_database_and_may_watch(shared: EmbeddedServer) -> None:
    rows = await fetch(
        shared.dsn,
        "SELECT rolsuper, rolcreaterole, rolcreatedb, rolreplication, pg_get_userbyid(datdba),"
        " pg_has_role('pg_monitor', 'MEMBER') FROM pg_roles, pg_database"
        " WHERE rolname = current_user AND datname = current_database()",
    )
    assert rows == [(False, False, False, False, "relay", True)]


async def test_what_a_person_sets_below_relay_s_settings_wins(
    used: Path, make_server: Callable[..., EmbeddedServer]
) -> None:
    server = make_server(used)
    server.start()
    server.stop()
    with (used / "pg" / "r1" / "postgresql.conf").open("a") as file:
        file.write("work_mem = '7MB'\nmax_wal_size = '5GB'\n")
    server.start()
    assert await fetch(server.dsn, "SELECT current_setting('work_mem'), current_setting('max_wal_size')") == [
        ("7MB", "5GB")
    ]


async def test_relay_s_settings_are_written_anew_at_each_start(
    used: Path, make_server: Callable[..., EmbeddedServer]
) -> None:
    server = make_server(used)
    server.start()
    server.stop()
    (used / "pg" / "r1" / "relay.conf").write_text("fsync = off\n")
    (used / "pg" / "r1" / "pg_hba.conf").write_text("local all all trust\n")
    server.start()
    assert await fetch(server.dsn, "SHOW fsync") == [("on",)]
    assert "trust" not in (used / "pg" / "r1" / "pg_hba.conf").read_text()
