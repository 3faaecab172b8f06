"""Claims about ``docs/settings.md``: it says what the table of settings says, of every setting."""

import re

from relay.settings import rows
from tests.docs.generated import COMMAND, SETTINGS
from tests.docs.tree import SOURCE


def test_the_reference_of_settings_is_what_the_table_gives() -> None:
    assert SETTINGS.written() == SETTINGS.make(), f"docs/settings.md is out of date: run `{COMMAND}`"


def test_every_setting_is_documented_once() -> None:
    assert re.findall(r"^\| `(\w+)` \|", SETTINGS.written(), re.MULTILINE) == [row.name for row in rows()]


def test_every_setting_is_explained_in_a_sentence() -> None:
    assert [row.name for row in rows() if not re.fullmatch(r"[A-Z].{10,}\.", row.about)] == []


def test_every_setting_is_read() -> None:
    """Whether the rooms above settings read a setting; those of retries and of the breaker are read together."""
    texts = [path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py") if path.parent != SOURCE / "settings"]
    read = set(re.findall(r"\bsettings\.(\w+)", " ".join(texts)))
    for together, prefix in (("retry", "retry_"), ("breaker_policy", "breaker")):
        if together in read:
            read |= {row.field for row in rows() if row.field.startswith(prefix)}
    assert {row.field for row in rows()} - read == set()
