"""Reading the dashboard: its panels, and their expressions with Grafana's variables filled in."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.support.prometheus import OPS

GRAFANA = OPS / "grafana"
DASHBOARD = GRAFANA / "dashboards" / "relay.json"


class Target(NamedTuple):
    """One expression of a panel."""

    panel: str
    letter: str
    expression: str

    def __str__(self) -> str:
        return f"{self.panel}, {self.letter}"

    def filled_in(self, *, installation: str, rate_interval: str) -> str:
        """The expression as Grafana sends it."""
        return self.expression.replace("$installation", installation).replace("$__rate_interval", rate_interval)


def read_dashboard() -> dict[str, Any]:
    """The dashboard's model."""
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return dashboard


def panels() -> list[dict[str, Any]]:
    """Every panel but the rows' headings."""
    return [panel for panel in read_dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> list[Target]:
    """Every expression of every panel."""
    return [
        Target(panel["title"], target["refId"], target["expr"]) for panel in panels() for target in panel["targets"]
    ]
