"""Claims about what commands are given by id or by name: an id wins, and a name that several have wins nothing."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Shell, only_line
from tests.cli.scripted_api import Answer, Call, scripted

VICTIM, NAMESAKE = "0" * 32, "1" * 32

COMMANDS = [
    ("keys", "key", ("revoke", "{}", "--yes")),
    ("sources", "source", ("remove", "{}", "--yes")),
    ("endpoints", "endpoint", ("pause", "{}")),
]


def words(kind: str, command: tuple[str, ...], wanted: str) -> list[str]:
    """The command, for what is wanted."""
    return [kind, *(each.format(wanted) for each in command)]


def of(kind: str, *named: tuple[str, str]) -> list[dict[str, str]]:
    """A list of the API, of these ids and names."""
    return [{"id": f"{PREFIXES[kind]}{number}", "name": name} for number, name in named]


PREFIXES = {"keys": "key_", "sources": "src_", "endpoints": "ep_"}


@pytest.mark.parametrize(("kind", "_", "command"), COMMANDS)
def test_what_is_called_by_anothers_id_is_not_taken_for_it(
    lonely: Shell, kind: str, _: str, command: tuple[str, ...]
) -> None:
    victim = f"{PREFIXES[kind]}{VICTIM}"
    listed = of(kind, (NAMESAKE, victim), (VICTIM, "shop"))

    def answer(call: Call) -> Answer:
        if call.method == "GET" and "?" in call.path:
            return 200, {"data": listed, "next_cursor": None}
        return 404, {"code": "not_found", "title": call.path}

    with scripted(answer) as api:
        lonely.run(*words(kind, command, victim), environment={"RELAY_URL": api.url})
    (changed,) = [call for call in api.calls if call.method != "GET"]
    assert changed.path.split("/")[3] == victim


@pytest.mark.parametrize(("kind", "one", "command"), COMMANDS)
def test_a_name_that_several_have_is_refused_with_their_ids(
    lonely: Shell, kind: str, one: str, command: tuple[str, ...]
) -> None:
    pages = [of(kind, (NAMESAKE, "shop")), of(kind, (VICTIM, "shop"))]

    def answer(call: Call) -> Answer:
        first = "cursor=" not in call.path
        return 200, {"data": pages[0 if first else 1], "next_cursor": "next" if first else None}

    with scripted(answer) as api:
        done = lonely.run(*words(kind, command, "shop"), environment={"RELAY_URL": api.url})
    assert done.returncode == 1
    ids = f"{PREFIXES[kind]}{NAMESAKE}, {PREFIXES[kind]}{VICTIM}"
    assert only_line(done.stderr) == f"2 {one}s are called 'shop': name one by its id: {ids}"
    assert {call.method for call in api.calls} == {"GET"}
