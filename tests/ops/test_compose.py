"""Claims about Prometheus and Grafana in ``docker-compose.yml``, made without a container engine: what is mounted where
each looks for it, and who is reached by which name.
"""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.ops.dashboard import DASHBOARD, GRAFANA
from tests.support.containers import compose
from tests.support.prometheus import CONFIGURATION, DISPATCHER, GATEWAY, RULES, read_yaml


def service(name: str) -> dict[str, Any]:
    """A service of the file, as compose understands it."""
    return dict(compose()["services"][name])


def inside(service: dict[str, Any], path: Path) -> str | None:
    """Where a container has a file of the project; the deepest mount counts."""
    places = {Path(mount["source"]): mount["target"] for mount in service["volumes"] if mount["type"] == "bind"}
    for folder in (path, *path.parents):
        if folder in places:
            return str(Path(places[folder]) / path.relative_to(folder))
    return None


def test_prometheus_finds_its_configuration_and_the_rules_beside_it() -> None:
    prometheus = service("prometheus")
    configuration = inside(prometheus, CONFIGURATION)
    assert f"--config.file={configuration}" in prometheus["command"]
    (pattern,) = read_yaml(CONFIGURATION)["rule_files"]
    for path in RULES:
        assert Path(str(inside(prometheus, path))).match(str(Path(str(configuration)).parent / pattern))


def test_prometheus_reaches_both_processes_by_their_names_and_the_host() -> None:
    services = compose()["services"]
    for target in (GATEWAY, DISPATCHER):
        name, _, port = target.partition(":")
        assert set(services["prometheus"]["networks"]) & set(services[name]["networks"])
        assert port in {published["published"] for published in services[name]["ports"]}
    assert services["prometheus"]["extra_hosts"] == ["host.docker.internal=host-gateway"]


def test_a_relay_on_the_host_is_scraped_beside_the_services() -> None:
    jobs = {job["job_name"]: job["static_configs"] for job in read_yaml(CONFIGURATION)["scrape_configs"]}
    told = {
        job: {group["labels"]["installation"]: group["targets"] for group in groups} for job, groups in jobs.items()
    }
    assert told == {
        "relay-gateway": {"compose": [GATEWAY], "host": ["host.docker.internal:8080"]},
        "relay-dispatcher": {"compose": [DISPATCHER], "host": ["host.docker.internal:9091"]},
    }


def test_grafana_finds_its_settings_the_provisioning_and_the_dashboard_that_it_opens_on() -> None:
    grafana = service("grafana")
    assert inside(grafana, GRAFANA / "grafana.ini") == "/etc/grafana/grafana.ini"
    for path in (GRAFANA / "provisioning").rglob("*.yml"):
        assert str(inside(grafana, path)).startswith("/etc/grafana/provisioning/")
    settings = ConfigParser()
    settings.read(GRAFANA / "grafana.ini")
    assert inside(grafana, DASHBOARD) == settings["dashboards"]["default_home_dashboard_path"]


def test_no_variable_overrides_what_grafana_is_told_by_its_file() -> None:
    assert not service("grafana").get("environment")


def test_grafana_asks_the_prometheus_of_the_stack() -> None:
    (datasource,) = read_yaml(GRAFANA / "provisioning" / "datasources" / "prometheus.yml")["datasources"]
    url = urlsplit(datasource["url"])
    services = compose()["services"]
    assert set(services["grafana"]["networks"]) & set(services[str(url.hostname)]["networks"])
    assert str(url.port) in {published["published"] for published in services[str(url.hostname)]["ports"]}
