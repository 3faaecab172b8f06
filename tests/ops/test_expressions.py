"""Claims about every expression of the dashboard and of the rules, asked of a real Prometheus over a real Relay.

They are asked in one test each, since such a Relay is expensive: what fails is named.
"""

from __future__ import annotations

from math import isnan

from tests.ops.conftest import Watched
from tests.ops.dashboard import expressions
from tests.support.prometheus import RULES, rules_of
from tests.support.promql import selectors_in

ALL_RULES = [rule for path in RULES for rule in rules_of(path)]


def test_every_panel_shows_something(watched: Watched) -> None:
    """A line for each expression, and not only of what is no number."""
    shown = {
        str(target): watched.prometheus.query(target.filled_in(installation="compose", rate_interval="1m"), watched.at)
        for target in expressions()
    }
    assert [target for target, samples in shown.items() if all(isnan(sample.value) for sample in samples)] == []


def test_every_series_that_a_rule_speaks_of_is_there(watched: Watched) -> None:
    selectors = {name + matchers for rule in ALL_RULES for name, matchers in selectors_in(rule["expr"])}
    assert [selector for selector in selectors if not watched.prometheus.query(selector, watched.at)] == []


def test_every_rule_is_evaluated_without_a_fault(watched: Watched) -> None:
    told = watched.prometheus.rules()
    assert [rule["name"] for rule in told] == [rule.get("alert") or rule.get("record") for rule in ALL_RULES]
    assert [(rule["health"], rule.get("lastError")) for rule in told] == [("ok", None)] * len(told)


def test_what_happened_raises_its_alerts_and_no_others(watched: Watched) -> None:
    firing = watched.prometheus.query('ALERTS{alertstate="firing"}', watched.at)
    names = {sample.labels["alertname"] for sample in firing}
    assert names == {"RelayNoRoute", "RelayAddressRefused"}


def test_an_alert_names_the_consumer_and_says_where_to_read_on(watched: Watched) -> None:
    (alert,) = watched.prometheus.alerts("RelayAddressRefused")
    assert (alert.labels["consumer"], alert.labels["severity"]) == ("inside", "warn")
    assert alert.annotations["summary"] == "inside points to an address that is refused"
    assert alert.annotations["runbook"] == "docs/operations.md#relayaddressrefused"
