"""Claims about `relay verify` as a command: what it prints of a Relay that runs, its exit code, what a person sees."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import httpx
import pytest

from relay.embedded import running_dsn
from tests.cli.conftest import Shell, on_a_terminal, only_line
from tests.support.installation import Service, eventually

ORPHAN = "0197c0de-0000-7000-8000-000000000000"
CONTRACT = {"ok", "events", "partitions", "gapless", "hash_mismatches", "unaccounted"}


@pytest.fixture
def data(relay: Service) -> str:
    """The data folder of the Relay that runs."""
    return str(relay.started["data_dir"])


@contextmanager
def orphan(data: str) -> Iterator[None]:
    """A receipt of an event that there never was, inside the block."""

    async def run(sql: str, *arguments: str) -> None:
        dsn = running_dsn(Path(data))
        assert dsn is not None
        connection = await asyncpg.connect(dsn)
        await connection.execute(sql, *arguments)
        await connection.close()

    asyncio.run(
        run(
            "insert into receipts (id, tenant, journal_day, event_id, type, rules_version, expected)"
            " values ($1, 'acct_default', '2025-06-30', 'x', 'x', 1, 1)",
            ORPHAN,
        )
    )
    try:
        yield
    finally:
        asyncio.run(run("delete from receipts where id = $1", ORPHAN))


def test_a_relay_that_runs_is_right_and_says_how_much_of_everything_there_is(shell: Shell, data: str) -> None:
    shell.document("send", "verified.now", stdin=b"{}")
    found = shell.document("verify", "--data", data)
    assert set(found) >= CONTRACT
    assert (found["ok"], found["gapless"], found["hash_mismatches"], found["unaccounted"]) == (True, True, 0, 0)
    assert found["faults"] == []
    (partition,) = found["partitions"]
    assert set(partition) >= {"partition", "first", "last", "gaps"}
    assert (partition["first"], partition["last"], partition["gaps"]) == (1, found["events"], 0)
    assert found["matched"] == found["delivered"] + found["waiting"] + found["dead"]


def test_the_folder_may_be_named_by_the_environment(shell: Shell, data: str) -> None:
    shell.environment["RELAY_DATA_DIR"] = data
    assert shell.document("verify")["ok"] is True


def test_a_person_reads_what_was_proved(shell: Shell, data: str) -> None:
    shown = on_a_terminal(shell, "verify", "--data", data)
    assert "Everything is there, whole and accounted for." in shown
    assert re.search(r"positions +gapless \(p06:1-[0-9]+\)", shown)
    assert re.search(r"unaccounted +0", shown)


def test_a_fault_is_1_and_named(shell: Shell, data: str) -> None:
    with orphan(data):
        done = shell.run("verify", "--data", data)
        shown = on_a_terminal(shell, "verify", "--data", data)
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"], found["unaccounted"]) == (1, False, 1)
    receipt = "rcp_" + ORPHAN.replace("-", "")
    assert found["faults"] == [{"fault": "receipt_without_event", "count": 1, "first": [receipt]}]
    assert only_line(done.stderr) == "not everything is right and accounted for: receipt_without_event 1"
    assert "relay: not everything is right and accounted for" in shown
    assert "Everything is there" not in shown
    assert receipt in shown


def test_what_was_found_last_is_a_gauge(shell: Shell, relay: Service, data: str) -> None:
    def gauge() -> float:
        text = httpx.get(relay.started["metrics"][1], trust_env=False).text
        return float(re.search(r"^relay_unaccounted_deliveries(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE)[1])  # type: ignore[index]  # it is always exported

    async def shows(number: float) -> None:
        async def ask() -> bool:
            return gauge() == number

        await eventually(ask, 30, f"the gauge is {number}")

    with orphan(data):
        assert shell.run("verify", "--data", data).returncode == 1
        asyncio.run(shows(1.0))
    assert shell.document("verify", "--data", data)["ok"] is True
    asyncio.run(shows(0.0))


def test_no_database_is_told_in_a_line(lonely: Shell, tmp_path: Path) -> None:
    done = lonely.run("verify", "--data", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, b"")
    assert "no embedded server runs in" in only_line(done.stderr)


def test_a_database_that_is_away_is_told_in_a_line(lonely: Shell) -> None:
    lonely.environment |= {
        "DATABASE_URL": "postgresql://relay:x@127.0.0.1:1/relay",
        "RELAY_SECRET_KEYS": "kfZbZCwrqZg0cxyVZxVGmOn9KdVsz8jzbz8BPzrWmv8=",
    }
    done = lonely.run("verify")
    assert (done.returncode, done.stdout) == (1, b"")
    assert "the database is away" in only_line(done.stderr)
