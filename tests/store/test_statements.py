"""The house's rules for SQL, held for every statement: named, described, used, fenced."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from relay.store import statements
from relay.store.statements import Statement
from tests.docs.tree import SOURCE, modules
from tests.store.world import World

STORE = SOURCE / "store"
EVERY = list(statements.load().values())
FUNCTIONS = {name: name for name in ("append_events", "record_outcomes", "void_events", "ack_deliveries")} | {
    name: name for name in ("expire_dead_letters", "sweep_pruned_day")
}

# What becomes of a delivery that nobody has claimed. Everything else that changes deliveries comes after a claim.
BEFORE_ANY_CLAIM = {
    "claim_due": "is the claim",
    "append_events": "makes the deliveries",
    "void_events": "takes back what was not sent, and the lease with it",
    "bury_removed": "takes only what is pending",
    "ack_deliveries": "is the endpoint's word, whoever holds the delivery: it takes the lease, and leaves its token",
    "reconcile": "takes only what was received, which nobody holds",
    "redrive_deliveries": "leaves alone what is held under a lease",
    "owe_anew": "makes the deliveries of what had none",
    "discard_deliveries": "takes only what is dead",
    "expire_dead_letters": "takes only what is dead",
    "sweep_pruned_day": "leaves alone what is owed",
    "reap_expired": "takes only leases that have run out, by the database's clock",
}

each_statement = pytest.mark.parametrize("statement", EVERY, ids=lambda each: each.name)


def body(statement: Statement) -> str:
    """The text of a statement, or of the last migration that makes the function that it calls."""
    if statement.name not in FUNCTIONS:
        return statement.text
    migrations = (STORE / "migrations").glob("*.sql")
    bodies = [text.read_text() for text in sorted(migrations)]
    return [text for text in bodies if f"function {FUNCTIONS[statement.name]}(" in text][-1]


def writes_deliveries(statement: Statement) -> bool:
    """Whether the statement changes rows of `deliveries`."""
    return bool(re.search(r"\b(?:update|insert into|delete from) deliveries\b", body(statement)))


@each_statement
async def test_a_statement_prepares_on_the_migrated_schema_with_the_parameters_it_lists(
    shared_world: World, statement: Statement
) -> None:
    async with shared_world.database.connection() as connection:
        prepared = await connection.prepare(statement.text)
        assert len(prepared.get_parameters()) == len(statement.parameters)


@each_statement
async def test_a_statement_counts_on_indexes_that_exist(shared_world: World, statement: Statement) -> None:
    found = await shared_world.sql("select relname from pg_class where relkind in ('i', 'I')")
    assert frozenset().union(*statement.indexes) <= {row["relname"] for row in found}


@each_statement
def test_a_statement_is_used(statement: Statement) -> None:
    call = re.compile(rf"""["']{statement.name}["']""")
    users = [path for path in modules() if path.is_relative_to(STORE) and call.search(path.read_text())]
    assert users != []


@each_statement
def test_a_statement_is_fenced_if_it_changes_deliveries_that_were_claimed(statement: Statement) -> None:
    assert statement.fenced == (writes_deliveries(statement) and statement.name not in BEFORE_ANY_CLAIM)


@pytest.mark.parametrize("statement", [each for each in EVERY if each.fenced], ids=lambda each: each.name)
def test_a_fenced_statement_compares_the_lease_token_where_it_locks_and_where_it_writes(statement: Statement) -> None:
    text = body(statement)
    compared = re.findall(r"\bd\.lease_token = o\.token\b", text)
    assert len(compared) == len(re.findall(r"\bfor no key update of d\b|\bupdate deliveries\b", text)) == 2


@pytest.mark.parametrize("statement", [each for each in EVERY if writes_deliveries(each)], ids=lambda each: each.name)
def test_a_statement_that_changes_many_deliveries_locks_them_in_an_order_or_skips_what_is_locked(
    statement: Statement,
) -> None:
    text = body(statement)
    changes = "update deliveries" in text
    assert (
        not changes or "for no key update skip locked" in text or re.search(r"order by d\.id for no key update", text)
    )


def test_statements_that_serve_a_user_name_the_tenant() -> None:
    about_nobody = {"insert_secret", "bump_rules", "destinations", "longest_timeouts"}
    about_nobody |= {"read_credentials", "bump_credentials", "is_open", "is_shared", "bump_schemas"}
    about_a_tenant_itself = {"insert_tenant", "list_tenants", "remove_tenant", "has_tenant", "set_strict_schemas"}
    about_a_tenant_itself |= {"lock_tenant", "hold_tenant"}
    after_what_was_found = {"delivery_attempts", "closed_receipts", "past_generations"}
    files_for_users = ("endpoints", "receipts", "history", "dead_letters", "redrive", "request_keys", "credentials")
    for file in (f"{name}.sql" for name in (*files_for_users, "schemas", "audit")):
        text = files("relay.store").joinpath("sql", file).read_text(encoding="utf-8")
        nameless = {each.name for each in statements.parse(text) if not re.search(r"\btenant\b", each.text)}
        assert nameless <= about_nobody | about_a_tenant_itself | after_what_was_found


def test_no_sql_is_put_together_at_run_time() -> None:
    built = re.compile(r"""f["'].*\b(?:select|insert|update|delete)\b .*\{""", re.IGNORECASE)
    modules_of_the_store = [path for path in modules() if path.is_relative_to(STORE)]
    assert [path for path in modules_of_the_store if built.search(path.read_text())] == []


def test_a_statement_without_its_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="forgetful does not say its parameters"):
        statements.parse("-- name: forgetful\nselect 1;\n")


def test_a_file_of_statements_holds_nothing_but_statements() -> None:
    for path in sorted(Path(STORE / "sql").iterdir()):
        text = path.read_text()
        named = len(re.findall(r"^-- name: ", text, re.MULTILINE))
        assert named == len(statements.parse(text)) == len(re.findall(r";$", text, re.MULTILINE))
