"""Claims about what `relay keys reencrypt` and `relay secret-key --add` say, straight on a database."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from relay.domain.secret import Secret
from relay.store.database import Database
from relay.store.keys import agree_on_keys
from relay.store.vault import Vault, new_key
from tests.cli.conftest import Shell, on_a_terminal, only_line
from tests.store.world import WIDE, World

OLD, NEW, LOST = new_key(), new_key(), new_key()


def shell_with(dsn: str, *keys: Secret) -> Shell:
    return Shell(DATABASE_URL=dsn, RELAY_SECRET_KEYS=",".join(key.expose() for key in keys))


async def endpoints(database: Database, *keys: Secret, name: str) -> None:
    """An endpoint that a process with these keys makes."""
    vault = Vault(keys)
    await agree_on_keys(database, vault)
    await World.over(database, vault=vault).add_endpoint(replace(WIDE, name=name))


async def test_a_person_is_told_that_the_older_keys_are_not_needed(database_dsn: str, database: Database) -> None:
    await endpoints(database, OLD, name="ledger")
    shown = on_a_terminal(shell_with(database_dsn, NEW, OLD), "keys", "reencrypt")
    assert "1 secret re-encrypted" in shown
    assert "the older keys are not needed any more" in shown


async def test_a_person_who_waits_sees_how_far_it_has_come(database_dsn: str, database: Database) -> None:
    await agree_on_keys(database, Vault([OLD]))
    sealed = Vault([OLD]).seal(Secret("whsec_one"))
    async with database.connection() as connection:
        await connection.execute(
            "insert into secrets (id, ciphertext) select gen_random_uuid(), $1 from generate_series(1, 3000)", sealed
        )
    shown = on_a_terminal(shell_with(database_dsn, NEW, OLD), "keys", "reencrypt")
    assert "3000/3000" in shown
    assert "3,000 secrets re-encrypted" in shown
    piped = shell_with(database_dsn, NEW, OLD).run("keys", "reencrypt")
    assert (piped.returncode, piped.stderr) == (0, b"")


async def test_a_program_gets_numbers(database_dsn: str, database: Database) -> None:
    await endpoints(database, OLD, name="ledger")
    found = shell_with(database_dsn, NEW, OLD).document("keys", "reencrypt")
    assert found == {"reencrypted": 1, "unreadable": [], "unreadable_unused": 0, "lost_keys": 0}


async def test_a_secret_that_no_key_opens_is_a_failure_that_names_whose_it_is(
    database_dsn: str, database: Database
) -> None:
    await endpoints(database, OLD, name="ledger")
    await endpoints(database, LOST, OLD, name="forlorn")
    done = shell_with(database_dsn, NEW, OLD).run("keys", "reencrypt")
    assert done.returncode == 1
    assert "1 secret cannot be read by any key (endpoint forlorn of acct_default): add the key" in only_line(
        done.stderr
    )
    found = json.loads(done.stdout)
    assert (found["reencrypted"], found["lost_keys"]) == (1, 1)
    assert [(each["kind"], each["name"], each["secret"]) for each in found["unreadable"]] == [
        ("endpoint", "forlorn", "current")
    ]
    given_up = shell_with(database_dsn, NEW, OLD).run("keys", "reencrypt", "--give-up")
    assert given_up.returncode == 0
    assert "give each a new one" in only_line(given_up.stderr)


async def test_other_keys_are_refused_in_a_line(database_dsn: str, database: Database) -> None:
    await endpoints(database, OLD, name="ledger")
    done = shell_with(database_dsn, LOST).run("keys", "reencrypt")
    assert done.returncode == 1
    assert "none of the keys in RELAY_SECRET_KEYS" in only_line(done.stderr)


def test_a_key_is_added_in_front_of_a_key_file_that_is_there(tmp_path: Path) -> None:
    shell = Shell(RELAY_DATA_DIR=str(tmp_path))
    missing = shell.run("secret-key", "--add")
    assert (missing.returncode, "`relay up` makes it" in only_line(missing.stderr)) == (1, True)
    file = tmp_path / "secret-keys"
    file.write_text(f"{OLD.expose()}\n")
    done = shell.run("secret-key", "--add")
    assert done.returncode == 0
    newest, old = file.read_text().split()
    assert old == OLD.expose()
    assert newest.encode() not in done.stdout
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("setting", ["RELAY_SECRET_KEYS", "DATABASE_URL"])
def test_no_key_is_added_to_a_file_that_nobody_would_read(tmp_path: Path, setting: str) -> None:
    value = OLD.expose() if setting == "RELAY_SECRET_KEYS" else "postgresql://relay@db/relay"
    done = Shell(RELAY_DATA_DIR=str(tmp_path), **{setting: value}).run("secret-key", "--add")
    assert done.returncode == 2
    assert "the keys stand in RELAY_SECRET_KEYS alone" in only_line(done.stderr)
