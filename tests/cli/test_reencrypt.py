"""Claims about what `relay keys reencrypt` and `relay secret-key --add` say, straight on a database."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from relay.app.key_notes import key_notes
from relay.domain.secret import Secret
from relay.store.database import Database
from relay.store.keys import agree_on_keys
from relay.store.vault import Vault, new_key
from tests.cli.conftest import Shell, on_a_terminal, only_line
from tests.store.world import TENANT, WIDE, World, new_id

OLD, NEW, LOST = new_key(), new_key(), new_key()


def shell_with(dsn: str, *keys: Secret) -> Shell:
    return Shell(DATABASE_URL=dsn, RELAY_SECRET_KEYS=",".join(key.expose() for key in keys))


async def endpoints(database: Database, *keys: Secret, name: str) -> None:
    """An endpoint that a process with these keys makes."""
    vault = Vault(keys)
    await agree_on_keys(database, vault)
    await World.over(database, vault=vault).add_endpoint(replace(WIDE, name=name))


def named(position: int, key: Secret) -> str:
    return f"key {position}, fingerprint {Vault([key]).newest.hex()[:8]},"


async def test_a_person_is_told_which_keys_are_not_needed_any_more(database_dsn: str, database: Database) -> None:
    await endpoints(database, OLD, name="ledger")
    shown = on_a_terminal(shell_with(database_dsn, NEW, OLD), "keys", "reencrypt")
    assert "1 secret re-encrypted" in shown
    assert f"{named(2, OLD)} is not needed any more" in " ".join(shown.split())


async def test_a_key_that_is_yet_to_come_is_never_called_one_that_can_be_removed(
    database_dsn: str, database: Database
) -> None:
    await endpoints(database, OLD, name="ledger")
    shell = shell_with(database_dsn, OLD, NEW)
    done = shell.run("keys", "reencrypt")
    assert done.returncode == 0
    assert only_line(done.stderr) == (
        f"the front key is the one already in use, and {named(2, NEW)} never sealed anything: is the new one in front?"
    )
    assert [each["state"] for each in json.loads(done.stdout)["keys"]] == ["in_force", "never_used"]
    assert "remove" not in on_a_terminal(shell, "keys", "reencrypt")


async def test_of_three_keys_the_one_that_was_sealed_with_is_named_alone(database_dsn: str, database: Database) -> None:
    await endpoints(database, OLD, name="ledger")
    shell = shell_with(database_dsn, NEW, LOST, OLD)
    shown = " ".join(on_a_terminal(shell, "keys", "reencrypt").split())
    assert f"{named(3, OLD)} is not needed any more" in shown
    assert f"{named(2, LOST)} never sealed anything: keep it" in shown


async def test_with_one_key_there_is_nothing_to_do(database_dsn: str, database: Database) -> None:
    await endpoints(database, OLD, name="ledger")
    shown = on_a_terminal(shell_with(database_dsn, OLD), "keys", "reencrypt")
    assert "there is one key in RELAY_SECRET_KEYS, or in the key file; nothing to do" in shown
    assert "remove" not in shown


async def test_a_retired_key_in_front_retires_no_other(database_dsn: str, database: Database) -> None:
    await agree_on_keys(database, Vault([OLD]))
    assert shell_with(database_dsn, NEW, OLD).run("keys", "reencrypt").returncode == 0
    done = shell_with(database_dsn, OLD, NEW).run("keys", "reencrypt")
    assert done.returncode == 1
    assert "the newest key is retired" in only_line(done.stderr)


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
    assert found == {
        "reencrypted": 1,
        "unreadable": [],
        "unreadable_unused": 0,
        "lost_keys": 0,
        "given_up_keys": 0,
        "keys": [
            {"position": 1, "fingerprint": Vault([NEW]).newest.hex(), "state": "in_force"},
            {"position": 2, "fingerprint": Vault([OLD]).newest.hex(), "state": "retired"},
        ],
    }


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
    numbers = json.loads(given_up.stdout)
    assert (numbers["lost_keys"], numbers["given_up_keys"]) == (1, 1)


async def test_after_a_lost_key_is_given_up_and_the_secret_is_new_all_is_well(
    database_dsn: str, database: Database
) -> None:
    """Also while the overlap runs in which the lost one would sign as well."""
    await endpoints(database, OLD, name="ledger")
    await agree_on_keys(database, Vault([LOST, OLD]))
    forlorn = await World.over(database, vault=Vault([LOST, OLD])).add_endpoint(replace(WIDE, name="forlorn"))
    shell = shell_with(database_dsn, NEW, OLD)
    assert shell.run("keys", "reencrypt", "--give-up").returncode == 0
    await World.over(database, vault=Vault([NEW])).endpoints.rotate_secret(
        TENANT, forlorn, secret_id=new_id(), secret=Secret("whsec_new"), overlap_seconds=3600
    )
    done = shell.run("keys", "reencrypt")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["unreadable"] == []
    assert await key_notes(database, Vault([NEW]), ask=True) == []


async def test_other_keys_are_refused_in_a_line(database_dsn: str, database: Database) -> None:
    await endpoints(database, OLD, name="ledger")
    done = shell_with(database_dsn, LOST).run("keys", "reencrypt")
    assert done.returncode == 1
    assert "none of the keys in RELAY_SECRET_KEYS" in only_line(done.stderr)
    assert "`relay keys reencrypt --give-up`" in only_line(done.stderr)


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
