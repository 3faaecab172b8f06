"""Claims about ``docs/errors.md``: it says what the table of error codes says, of every code."""

import re

from relay.web.problems import ERRORS
from tests.docs.generated import COMMAND, ERROR_CODES


def test_the_reference_of_errors_is_what_the_table_gives() -> None:
    assert ERROR_CODES.written() == ERROR_CODES.make(), f"docs/errors.md is out of date: run `{COMMAND}`"


def test_every_code_is_documented_once_with_its_status() -> None:
    documented = re.findall(r"^\| `(\w+)` \| (\d+) \|", ERROR_CODES.written(), re.MULTILINE)
    assert documented == [(str(code), str(kind.status)) for code, kind in ERRORS.items()]


def test_every_code_is_explained_in_a_sentence() -> None:
    assert [code for code, kind in ERRORS.items() if not re.fullmatch(r"[A-Z`].{10,}\.", kind.meaning)] == []
