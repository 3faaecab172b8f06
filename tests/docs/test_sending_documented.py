"""Claims about ``docs/sending.md``: every refusal, bound and error class stands there as it is in the code."""

import re

from relay.domain.headers import MAX_BYTES, MAX_HEADERS
from relay.domain.refusal import RefusalReason
from relay.domain.sending import ErrorClass
from relay.domain.target import MAX_URL_CHARACTERS
from relay.sender import ResolverLimits, SendLimits
from relay.settings import rows
from tests.docs.generated import COMMAND, REFUSALS

PAGE = REFUSALS.page.read_text(encoding="utf-8")
BOUNDS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("## Bounds")[2].partition("\n## ")[0].splitlines()
    if line.startswith("|")
]


def test_the_table_of_refusals_is_what_the_policy_gives() -> None:
    assert REFUSALS.written() == REFUSALS.make(), f"docs/sending.md is out of date: run `{COMMAND}`"


def test_every_reason_of_refusal_has_a_row_that_says_what_is_refused() -> None:
    found = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", REFUSALS.written(), re.MULTILINE))
    assert list(found) == [str(reason) for reason in RefusalReason]
    assert all(found.values())


def test_every_error_class_is_explained_once() -> None:
    table = PAGE.partition("| `error_class` |")[2].partition("\n\n")[0]
    cells = [line.partition("|")[2].partition("|")[0] for line in table.splitlines()]
    names = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(names) == sorted(ErrorClass)


def test_every_timeout_is_the_sign_of_a_bound() -> None:
    signs = " ".join(row[-1] for row in BOUNDS)
    assert [each for each in ErrorClass if each.endswith("timeout") and f"`{each}`" not in signs] == []


def test_each_bound_has_the_default_of_its_setting() -> None:
    defaults = {row.name: row.default for row in rows()}
    told = {name: row[2].strip("` ") for row in BOUNDS for name in re.findall(r"`(RELAY_\w+)`", row[1])}
    assert told == {name: defaults[name] for name in told}
    assert len(told) >= 7


def test_each_bound_without_a_setting_has_its_number() -> None:
    limits, names = SendLimits(), ResolverLimits()
    numbers = [
        f"at most {names.answer_seconds:g} s",
        f"{limits.snippet_bytes:,} bytes",
        f"{MAX_URL_CHARACTERS:,} characters",
        f"{MAX_HEADERS}, and {MAX_BYTES:,} bytes",
        f"{limits.idle_seconds} s idle, {limits.lifetime_seconds} s in all",
        f"{names.lookups:,}",
        f"{names.shortest_ttl:g} s to {names.longest_ttl:g} s; a failure {names.failure_seconds:g} s",
    ]
    told = " ".join(row[1] for row in BOUNDS)
    assert [number for number in numbers if number not in told] == []
