"""Claims about the table of failures in ``docs/operations.md``, against the drills that try them."""

from __future__ import annotations

import re

import pytest

from tests.docs.tree import ROOT
from tests.ops.dashboard import read_dashboard
from tests.support.drill import MODES, Mode
from tests.support.promql import series_in

PAGE = (ROOT / "docs" / "operations.md").read_text()
TABLE = PAGE[PAGE.index("| what you see |") : PAGE.index("## Events come in")]
ROWS = {
    failure.strip(): (seen, look)
    for seen, failure, look in (line.strip("|").split(" | ") for line in TABLE.splitlines()[2:] if line)
}
DRILLS = (ROOT / "tests" / "system" / "test_drills.py").read_text()

each_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


def test_there_is_a_drill_for_each_way_of_breaking_and_no_other() -> None:
    assert sorted(re.findall(r"^async def test_(\w+)\(", DRILLS, re.MULTILINE)) == sorted(MODES)


@each_mode
def test_the_table_says_of_each_failure_that_is_drilled_what_the_drill_sees(mode: Mode) -> None:
    seen, _ = ROWS[mode.name]
    assert f"[{mode.alert}](#{mode.alert.lower()})" in seen
    for series in series_in(mode.series):
        assert f"`{series}" in seen


@pytest.mark.parametrize("failure", ROWS)
def test_the_table_names_rows_that_the_dashboard_has(failure: str) -> None:
    titles = {panel["title"] for panel in read_dashboard()["panels"] if panel["type"] == "row"}
    assert set(re.findall(r"row \*([^*]+)\*", ROWS[failure][1])) <= titles
    assert "row *" in ROWS[failure][1]
