"""Claims about the alert rules: which there are, what each tells whoever is woken by it, and when each fires.

When they fire is told by promtool's own tests in `ops/prometheus/tests`; what is claimed here of those is that each
alert has one in which it fires and one in which it does not.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import Programs
from tests.support.prometheus import CONFIGURATION, OPS, RULES, Pace, alerts, read_yaml, rules_of
from tests.support.promql import known_series, selectors_in, series_in

RULE_TESTS = tuple(path for path in sorted((OPS / "prometheus" / "tests").glob("*.yml")) if "tests" in read_yaml(path))
ALERTS = alerts()

OF_THE_CONTRACT = {
    "RelayCommitSlow": ("warn", "journal_commit_seconds", "> 0.03"),
    "RelayCommitVerySlow": ("page", "journal_commit_seconds", "> 0.05"),
    "RelayReceiptsOpenLong": ("warn", "receipts_open_age_seconds", "> 300"),
    "RelayReceiptsStuck": ("page", "receipts_open_age_seconds", "> 900"),
    "RelayDeadLettersRising": ("warn", "dlq_inflow", ">= 5"),
    "RelayDeadLettersFlooding": ("page", "dlq_inflow", ">= 20"),
    "RelayNoRoute": ("page", 'reason="no_route"', "> 0"),
    "RelayAddressRefused": ("warn", 'reason="refused"', "> 0"),
    "RelayDefaultPartitionUsed": ("page", "relay_attempt_default_partition_rows", "> 0"),
    "RelayLoopSilent": ("page", "relay_loop_last_success_timestamp_seconds", "> 300"),
    "RelayLeasesReaped": ("warn", "relay_leases_reaped_total", "> 0"),
}
"""What was promised: the severity, what it is about, and the threshold."""

each_alert = pytest.mark.parametrize("rule", ALERTS.values(), ids=ALERTS)
each_rule = pytest.mark.parametrize(
    "rule",
    [rule for path in RULES for rule in rules_of(path)],
    ids=lambda rule: str(rule.get("alert") or rule.get("record")),
)


def run(programs: Programs, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool; its status is not judged."""
    return subprocess.run([programs.promtool, *words], cwd=OPS, capture_output=True, text=True, timeout=60, check=False)


def test_prometheus_takes_the_configuration_with_its_rules(programs: Programs) -> None:
    done = run(programs, "check", "config", CONFIGURATION)
    assert done.returncode == 0, done.stderr
    assert f"{len(RULES)} rule files found" in done.stdout


@pytest.mark.parametrize("path", RULE_TESTS, ids=lambda path: str(path.stem))
def test_alerts_fire_when_they_should_and_only_then(programs: Programs, path: Path) -> None:
    done = run(programs, "test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def _outcomes() -> dict[str, set[bool]]:
    """For each alert that the tests name, whether it fires in one of them, and whether it does not in one."""
    outcomes: dict[str, set[bool]] = {}
    for path in RULE_TESTS:
        for case in (case for test in read_yaml(path)["tests"] for case in test["alert_rule_test"]):
            outcomes.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    return outcomes


def test_each_alert_is_tried_firing_and_not_firing() -> None:
    assert _outcomes() == {name: {True, False} for name in ALERTS}


def _spoken_of(rule: dict[str, Any]) -> set[str]:
    """The series that an alert depends on, those behind recorded ones among them."""
    recorded = {each["record"]: each["expr"] for path in RULES for each in rules_of(path) if "record" in each}
    names = series_in(rule["expr"])
    return names.union(*(series_in(recorded[name]) for name in names & recorded.keys()))


@each_alert
def test_each_alert_is_silent_where_nothing_is_told(rule: dict[str, Any]) -> None:
    """Of Prometheus' own `up` only that of Relay's processes counts, and only where the alert is about nothing else."""
    needed = _spoken_of(rule) - {"up"} or {'up{job="relay'}
    silent = [
        test
        for test in (test for path in RULE_TESTS for test in read_yaml(path)["tests"])
        if not any(each["series"].startswith(tuple(needed)) for each in test["input_series"])
        and any(case["alertname"] == rule["alert"] and not case["exp_alerts"] for case in test["alert_rule_test"])
    ]
    assert silent


@pytest.mark.parametrize(("name", "promised"), OF_THE_CONTRACT.items())
def test_the_alerts_that_were_promised_are_there(name: str, promised: tuple[str, str, str]) -> None:
    severity, about, threshold = promised
    rule = ALERTS[name]
    recorded = {each["record"]: each["expr"] for path in RULES for each in rules_of(path) if "record" in each}
    spelled_out = " ".join([rule["expr"], *(recorded.get(series, "") for series in series_in(rule["expr"]))])
    assert rule["labels"]["severity"] == severity
    assert about in spelled_out
    assert rule["expr"].rstrip().endswith(threshold)


@each_alert
def test_whoever_is_woken_learns_what_it_is_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["labels"] in ({"severity": "page"}, {"severity": "warn"})
    annotations = rule["annotations"]
    assert set(annotations) == {"summary", "description", "runbook"}
    assert annotations["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
    assert len(annotations["summary"]) < 80
    assert annotations["description"].endswith(".")


@each_rule
def test_a_rule_speaks_of_series_that_there_are(rule: dict[str, Any]) -> None:
    recorded = {each["record"] for path in RULES for each in rules_of(path) if "record" in each}
    assert series_in(rule["expr"]) <= known_series() | recorded


@each_rule
def test_installations_are_kept_apart(rule: dict[str, Any]) -> None:
    """What is summed or compared over instances is so within one installation."""
    expression = re.sub(r'"[^"]*"', "", rule["expr"])
    groupings = re.findall(r"\b(?:sum|max|min|count|avg)\b\s*(by\s*\([^)]*\))?", expression)
    assert all("installation" in grouping for grouping in groupings), groupings


def test_no_alert_has_a_name_of_another() -> None:
    names = [rule["alert"] for path in RULES for rule in rules_of(path) if "alert" in rule]
    assert len(names) == len(set(names))


def test_a_typo_in_a_name_would_be_found() -> None:
    expression = (
        'sum by (reason) (rate(gateway_rejcts_total{reason!~"a|b"}[5m] offset 1h)) / on (job) group_left () up > 3'
    )
    assert selectors_in(expression) == {("gateway_rejcts_total", '{reason!~"a|b"}'), ("up", "")}
    assert series_in(expression) - known_series() == {"gateway_rejcts_total"}


def test_a_pace_shrinks_durations_and_replaces_thresholds() -> None:
    """What tests of outages use, so that five minutes pass in seconds."""
    pace = Pace(60, {"RelayLoopSilent": 4})
    changed = {
        rule.get("alert"): rule for path in RULES for group in pace.rules(path)["groups"] for rule in group["rules"]
    }
    assert changed["RelayCommitVerySlow"]["for"] == "5000ms"
    assert changed["RelayLoopSilent"]["expr"].endswith("> 4")
    assert "[2500ms]" in changed["RelayQuorumMissing"]["expr"]
    assert not re.search(r"\[\d+[mhd]\]", "".join(rule["expr"] for rule in changed.values()))


def test_no_rule_looks_at_less_than_four_scrapes_at_the_longest_interval_that_operations_names() -> None:
    operations = (OPS.parent / "docs" / "operations.md").read_text(encoding="utf-8")
    assert "at least every 15 seconds" in operations
    windows = {window for path in RULES for rule in rules_of(path) for window in re.findall(r"\[(\w+)", rule["expr"])}
    assert windows
    assert {window for window in windows if window.endswith("s")} == set()  # so a minute is the shortest
