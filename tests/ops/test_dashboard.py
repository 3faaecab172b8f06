"""Claims about the dashboard as Grafana gets it: it opens by itself, cannot be changed, and says what is normal."""

from __future__ import annotations

import re
from configparser import ConfigParser
from itertools import combinations
from typing import Any

import pytest

from tests.ops.dashboard import DASHBOARD, GRAFANA, Target, expressions, panels, read_dashboard
from tests.support.prometheus import CONFIGURATION, RULES, alerts, read_yaml, rules_of
from tests.support.promql import known_series, series_in

COLUMNS = 24
NEGATIVES = ("Deliveries rescued from dead workers", "Ingest latency against delivery latency")
FAILURES = (
    "An endpoint is slow",
    "An endpoint is dead",
    "An endpoint limits us",
    "The database is away, or full",
    "A dispatcher is dead",
    "The quorum is gone",
    "The clock jumped, or this machine is short of something",
)

each_panel = pytest.mark.parametrize("panel", panels(), ids=lambda panel: str(panel["title"]))


def _datasource() -> dict[str, Any]:
    (datasource,) = read_yaml(GRAFANA / "provisioning" / "datasources" / "prometheus.yml")["datasources"]
    return dict(datasource)


def _settings() -> ConfigParser:
    settings = ConfigParser()
    settings.read(GRAFANA / "grafana.ini")
    return settings


def test_whoever_comes_may_look_without_a_login_and_sees_the_dashboard_first() -> None:
    settings = _settings()
    assert settings["auth.anonymous"]["enabled"] == "true"
    assert settings["auth.anonymous"]["org_role"] == "Viewer"
    assert settings["dashboards"]["default_home_dashboard_path"].endswith(f"/dashboards/{DASHBOARD.name}")


def test_the_dashboard_cannot_be_changed_in_the_ui() -> None:
    (provider,) = read_yaml(GRAFANA / "provisioning" / "dashboards" / "relay.yml")["providers"]
    assert provider["allowUiUpdates"] is False
    assert read_dashboard()["editable"] is False
    assert _datasource()["editable"] is False
    assert _settings()["users"]["viewers_can_edit"] == "false"


def test_the_provider_reads_the_folder_of_the_home_dashboard() -> None:
    (provider,) = read_yaml(GRAFANA / "provisioning" / "dashboards" / "relay.yml")["providers"]
    home = _settings()["dashboards"]["default_home_dashboard_path"]
    assert home == f"{provider['options']['path']}/{DASHBOARD.name}"


def test_everything_asks_the_datasource_that_is_provisioned() -> None:
    text = DASHBOARD.read_text()
    assert set(re.findall(r'"uid": "([^"]+)"', text)) == {read_dashboard()["uid"], _datasource()["uid"]}
    assert text.count(_datasource()["uid"]) == len(expressions()) + len(panels()) + 1


def test_no_rate_is_over_less_than_four_scrapes() -> None:
    """Grafana makes `$__rate_interval` of what the datasource says of the scrape interval."""
    interval = read_yaml(CONFIGURATION)["global"]["scrape_interval"]
    assert _datasource()["jsonData"]["timeInterval"] == interval
    windows = {window for target in expressions() for window in re.findall(r"\[([^\]]+)\]", target.expression)}
    assert windows == {"$__rate_interval"}


@pytest.mark.parametrize("target", expressions(), ids=str)
def test_a_panel_speaks_of_series_that_there_are(target: Target) -> None:
    recorded = {rule["record"] for path in RULES for rule in rules_of(path) if "record" in rule}
    filled_in = target.filled_in(installation="compose", rate_interval="1m")
    assert series_in(filled_in) <= known_series() | recorded


@pytest.mark.parametrize("target", expressions(), ids=str)
def test_a_panel_shows_one_installation(target: Target) -> None:
    """A Prometheus that watches two must not add them up."""
    selectors = re.findall(r"\{([^{}]*)\}", target.expression)
    assert selectors
    assert all('installation="$installation"' in selector for selector in selectors)


@each_panel
def test_a_panel_says_what_is_normal_and_what_to_do(panel: dict[str, Any]) -> None:
    assert "Normal:" in panel["description"]
    assert len(panel["description"]) > 80
    assert panel["fieldConfig"]["defaults"]["unit"]


@each_panel
def test_a_panel_names_only_alerts_that_there_are(panel: dict[str, Any]) -> None:
    assert set(re.findall(r"\bRelay[A-Z]\w+", panel["description"])) <= alerts().keys()


def test_rows_are_named_for_what_went_wrong() -> None:
    rows = [panel["title"] for panel in read_dashboard()["panels"] if panel["type"] == "row"]
    assert rows[0] == "Is it up, and is a 202 durable?"
    assert set(FAILURES) <= set(rows)


def test_two_panels_are_to_be_read_as_negatives() -> None:
    all_panels = read_dashboard()["panels"]
    row = next(n for n, panel in enumerate(all_panels) if panel["title"] == "To be read as negatives")
    assert tuple(panel["title"] for panel in all_panels[row + 1 : row + 3]) == NEGATIVES
    rescued, latencies = all_panels[row + 1 : row + 3]
    assert "relay_leases_reaped_total" in rescued["targets"][0]["expr"]
    assert "flat at zero" in rescued["description"]
    spoken_of = {name for target in latencies["targets"] for name in series_in(target["expr"].replace("$", ""))}
    assert spoken_of == {"gateway_request_seconds_bucket", "relay_delivery_seconds_bucket"}


def test_panels_lie_on_the_grid_and_not_on_each_other() -> None:
    places = [panel["gridPos"] for panel in read_dashboard()["panels"]]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= COLUMNS for place in places)
    for one, other in combinations(places, 2):
        assert (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )


def test_no_two_panels_have_one_number_or_one_title() -> None:
    all_panels = read_dashboard()["panels"]
    assert (
        len({panel["id"] for panel in all_panels}) == len({panel["title"] for panel in all_panels}) == len(all_panels)
    )
