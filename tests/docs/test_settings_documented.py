"""Claims about ``docs/settings.md``: it says what the table of settings says, of every setting."""

import re

from relay.settings import rows
from tests.docs.generated import COMMAND, SETTINGS


def test_the_reference_of_settings_is_what_the_table_gives() -> None:
    assert SETTINGS.written() == SETTINGS.make(), f"docs/settings.md is out of date: run `{COMMAND}`"


def test_every_setting_is_documented_once() -> None:
    assert re.findall(r"^\| `(\w+)` \|", SETTINGS.written(), re.MULTILINE) == [row.name for row in rows()]


def test_every_setting_is_explained_in_a_sentence() -> None:
    assert [row.name for row in rows() if not re.fullmatch(r"[A-Z].{10,}\.", row.about)] == []
