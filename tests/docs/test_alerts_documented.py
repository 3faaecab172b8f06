"""Claims about ``docs/operations.md``: it has a section for every alert, and none for any other."""

import re

import pytest

from relay.domain.failure import FailureReason
from relay.metrics.names import TABLE
from tests.docs.tree import ROOT
from tests.support.prometheus import alerts
from tests.support.promql import known_series

PAGE = ROOT / "docs" / "operations.md"
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL))


def test_every_alert_has_its_section_and_every_section_its_alert() -> None:
    assert sorted(SECTIONS) == sorted(alerts())


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_a_section_tells_what_it_means_where_to_look_and_what_mends_it(section: str) -> None:
    parts = re.findall(r"^\*\*([^*]+)\.\*\* \S", section, re.MULTILINE)
    assert parts == ["Meaning", "First look", "Fix"]


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_says_how_urgent_its_alert_is(name: str) -> None:
    assert SECTIONS[name].split("\n")[1] == f"Severity: `{alerts()[name]['labels']['severity']}`"


def test_the_page_names_only_alerts_and_series_that_there_are() -> None:
    text = PAGE.read_text()
    assert set(re.findall(r"\bRelay[A-Z]\w+", text)) == alerts().keys()
    spoken_of = set(re.findall(r"`((?:relay|gateway|journal|dlq|receipts)_[a-z_]+)", text))
    assert spoken_of - set(FailureReason) <= known_series() | {metric.name for metric in TABLE}
