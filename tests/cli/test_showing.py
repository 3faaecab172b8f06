"""Claims about what a person sees, on terminals of any width: what is there to be copied stays in one piece."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from relay.cli.rendering import facts, table
from relay.settings import read
from relay.settings.describing import effective
from tests.cli.conftest import Shell, on_a_terminal, only_line
from tests.cli.test_clients import receiver
from tests.support.installation import Service

WIDTHS = [30, 80, 200]
LONG_URL = "/ok/a-rather-long-path-that-leads-to-the-hooks-of-a-ledger"


def pieces(shown: str) -> set[str]:
    return set(shown.split())


@pytest.mark.parametrize("columns", WIDTHS)
def test_ids_urls_and_names_of_endpoints_stay_whole(relay: Service, shell: Shell, columns: int) -> None:
    name = f"ledger-of-the-{columns}-columns"
    made = shell.document("endpoints", "add", receiver(relay, LONG_URL), "--name", name, "--type", "whole.*")
    wanted = {made["id"], made["url"], name}
    assert wanted <= pieces(on_a_terminal(shell, "endpoints", "list", columns=columns))
    assert wanted <= pieces(on_a_terminal(shell, "endpoints", "show", name, columns=columns))


@pytest.mark.parametrize("columns", WIDTHS)
def test_ids_times_and_the_reason_in_a_receipt_stay_whole(relay: Service, shell: Shell, columns: int) -> None:
    event_type, name = f"refused.at-{columns}", f"refuser-of-{columns}-columns"
    shell.document("endpoints", "add", receiver(relay, "/status/400"), "--name", name, "--type", event_type)
    accepted = shell.document("send", event_type)
    shell.run("receipt", accepted["receipt_id"], "--watch")
    (delivery,) = shell.document("receipt", accepted["receipt_id"])["deliveries"]
    shown = on_a_terminal(shell, "receipt", accepted["receipt_id"], columns=columns)
    assert {accepted["receipt_id"], delivery["id"], name, "permanent_failure"} <= pieces(shown)


def test_why_a_delivery_is_dead_has_a_name_of_its_own(relay: Service, shell: Shell) -> None:
    shell.document("endpoints", "add", receiver(relay, "/status/400"), "--name", "dying", "--type", "dying.now")
    accepted = shell.document("send", "dying.now")
    shell.run("receipt", accepted["receipt_id"], "--watch")
    shown = on_a_terminal(shell, "receipt", accepted["receipt_id"], columns=60)
    assert re.search(r"^ +dead because +permanent_failure at B3\r?$", shown, re.MULTILINE)
    assert "waiting for" not in shown


@pytest.mark.parametrize("columns", WIDTHS)
def test_names_and_values_of_settings_stay_whole(lonely: Shell, columns: int) -> None:
    shown = pieces(on_a_terminal(lonely, "config", columns=columns))
    for row in effective(read({"RELAY_URL": lonely.environment["RELAY_URL"]})):
        assert {row.name, *row.value.split()} <= shown


def drawn(columns: int, **choices: Any) -> str:
    console = Console(width=columns, color_system=None)
    rows = [("one", "a short text"), ("two", "and a text of some more words")]
    with console.capture() as capture:
        console.print(table(("name", "said"), rows, **choices), crop=False)
    return capture.get()


def test_only_prose_is_wrapped_and_only_between_words() -> None:
    assert re.search(r"^two   and a text of *\n +some more *\n +words *$", drawn(20, prose=("said",)), re.MULTILINE)


def test_a_terminal_too_narrow_for_the_table_gets_a_block_per_row() -> None:
    assert drawn(21) == "name  one\nsaid  a short text\n\nname  two\nsaid\n  and a text of some more words\n\n"


def test_a_narrow_terminal_may_get_something_else() -> None:
    assert drawn(21, otherwise=Text("other")) == "other\n"


@pytest.mark.parametrize("nothing", [None, ""])
def test_where_there_is_nothing_stands_a_dash_in_a_table_as_among_facts(nothing: str | None) -> None:
    for drawing in (table(("name", "said"), [("one", nothing)]), facts([("said", nothing)])):
        console = Console(width=40, color_system=None)
        with console.capture() as capture:
            console.print(drawing)
        assert capture.get().split()[-1] == "-"


def test_a_column_that_says_nothing_may_be_left_out() -> None:
    console = Console(width=40, color_system=None)
    with console.capture() as capture:
        console.print(table(("name", "said"), [("one", None)], optional=("said",)))
    assert "said" not in capture.get()


def test_structures_of_an_endpoint_are_shown_as_json(relay: Service, shell: Shell) -> None:
    words = ("--name", "structured", "--type", "structured.*", "--preset", "patient", "--header", "X-Team: billing")
    shell.document("endpoints", "add", receiver(relay, "/ok"), *words)
    shown = on_a_terminal(shell, "endpoints", "show", "structured")
    values = {
        name: json.loads(found) for name, found in re.findall(r"^(retry|headers) +(.*?)\r?$", shown, re.MULTILINE)
    }
    assert values["headers"] == {"X-Team": "billing"}
    assert values["retry"]["preset"] == "patient"


def test_a_second_rotation_within_the_overlap_wants_to_be_forced(relay: Service, shell: Shell) -> None:
    shell.document("endpoints", "add", receiver(relay, "/ok"), "--name", "rotated", "--type", "rotated.*")
    first = shell.document("endpoints", "rotate-secret", "rotated")
    done = shell.run("endpoints", "rotate-secret", "rotated")
    assert done.returncode == 1
    says = only_line(done.stderr)
    assert first["previous_secret_expires_at"] in says
    assert says.endswith("would end now: wait until then, or add --force")
    assert shell.document("endpoints", "rotate-secret", "rotated", "--force")["secret"] != first["secret"]


@pytest.mark.parametrize(("answer", "shows"), [(b"n\n", "nothing is rotated"), (b"y\n", "whsec_")])
def test_a_person_is_asked_before_a_second_rotation(relay: Service, shell: Shell, answer: bytes, shows: str) -> None:
    name = f"asked-{shows[:5]}"
    shell.document("endpoints", "add", receiver(relay, "/ok"), "--name", name, "--type", "asked.*")
    shell.document("endpoints", "rotate-secret", name)
    shown = on_a_terminal(shell, "endpoints", "rotate-secret", name, typed=answer)
    assert "would end now. Rotate again?" in shown
    assert shows in shown
