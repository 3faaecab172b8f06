"""Claims about what README and docs tell people to type: it works, in the order in which it stands there."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from tests.docs.tree import ROOT
from tests.support.database import Server
from tests.support.installation import Installation
from tests.support.pages import QUERY, SHELL, Block, all_blocks, blocks, pages
from tests.support.rehearsal import DidNotRun, Properties, Stage, play, stage
from tests.system.conftest import ended

pytestmark = [pytest.mark.requires_tool("bash", "curl", "openssl"), pytest.mark.timeout(600)]

NOT_RUN = {
    "relay loadtest": "measures, and takes its time for it; tests/loadtest does so in small",
    "relay keys reencrypt": "wants keys that change meanwhile; tests/system/test_secret_keys.py has them",
}
"""The examples of commands that are only looked at (tests/docs/test_commands_documented.py), and why."""

MADE_BY = {
    "endpoints": r"relay endpoints add|POST \S+/v1/endpoints ",
    "sources": r"relay sources create|POST \S+/v1/sources ",
    "keys": r"relay keys create|POST \S+/v1/keys ",
    "tenants": r"relay tenants create|POST \S+/v1/tenants ",
}
"""Examples that make what must not be there yet, by the kind of it."""

_numbers = count(1)


def _shell(page: Path, part: str) -> list[Block]:
    return [each for each in blocks(page) if each.language == SHELL and not each.mark and each.part == part]


PAGES = [page for page in pages() if _shell(page, "")]


@pytest.fixture
def empty_database(database_server: Server) -> Iterator[str]:
    """The address of a database in which there is nothing, for the pages that tell of one."""
    name = f"relay_page_{os.getpid()}_{next(_numbers)}"
    asyncio.run(database_server.run(f"create database {name}"))
    yield database_server.dsn(name)
    asyncio.run(database_server.drop(name))


@pytest.fixture
def on(tmp_path: Path, empty_database: str, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A running Relay for one page."""
    for installation in ended(Installation(tmp_path, None), request):
        yield stage(installation, empty_database)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_work_in_their_order(page: Path, on: Stage) -> None:
    with closing(Properties(on)) as props:
        props.delivered()
    play(on, _shell(page, ""))


@pytest.mark.parametrize("query", [each for each in all_blocks() if each.language == QUERY and not each.mark], ids=str)
async def test_a_query_of_a_page_is_one_of_relays_tables(query: Block, database_owner_dsn: str, tmp_path: Path) -> None:
    await Installation(tmp_path, database_owner_dsn).fetch(query.text)


def _examples(page: str, part: str) -> list[str]:
    return [each.text for each in _shell(ROOT / "docs" / page, part)]


def _rehearse(on: Stage, examples: list[str]) -> None:
    """Run each example, and tell of all that fail."""
    faults = []
    with closing(Properties(on)) as props:
        for example in examples:
            _set_up(props, example)
            try:
                on.run(example, "an example")
            except DidNotRun as fault:
                faults.append(str(fault))
    assert not faults, "\n\n".join(faults)


def _set_up(props: Properties, example: str) -> None:
    """Have there what an example speaks of, and not what it makes."""
    props.ready()
    made = [kind for kind, making in MADE_BY.items() if re.search(making, example)]
    props.tenant(example, is_there="tenants" not in made)
    for kind in made:
        props.away(kind)
    if "redrive" in example:
        props.refused()


def test_the_example_of_every_command_works(on: Stage) -> None:
    examples = _examples("commands.md", "commands")
    _rehearse(on, [each for each in examples if not any(name in each for name in NOT_RUN)])


def test_what_is_said_not_to_run_is_an_example_that_there_is() -> None:
    examples = " ".join(_examples("commands.md", "commands"))
    assert [name for name in NOT_RUN if name not in examples] == []


def test_the_example_of_every_call_works(on: Stage) -> None:
    calls = [line for each in _examples("http-api.md", "calls") for line in each.splitlines() if line[0] != "#"]
    assert calls
    _rehearse(on, calls)
