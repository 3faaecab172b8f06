"""A real Prometheus on loopback, with Relay's own configuration and alert rules, for tests that ask what it would say.

`ops/prometheus` is used as it stands, but for where its targets are, how often they are scraped and, where a test
cannot wait for minutes, the rules' durations: `Pace` says by how much those shrink, and which thresholds an alert is to
have instead of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx
import msgspec

from tests.docs.tree import ROOT
from tests.support.installation import LOOPBACK, TRUSTING_NOBODY, NotInTime, Service, eventually, free_port
from tests.support.programs import Programs

OPS = ROOT / "ops"
CONFIGURATION = OPS / "prometheus" / "prometheus.yml"
RULES = tuple(sorted((OPS / "prometheus" / "rules").glob("*.yml")))

GATEWAY, DISPATCHER = "gateway:8080", "dispatcher:9091"
"""The targets that the configuration names for one installation, to be found where a test has them."""

SCRAPE_MILLISECONDS = 500
STOP_SECONDS = 20.0
READY_SECONDS = 60.0

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WINDOW = re.compile(r"(\[|\boffset )(\d+)(ms|s|m|h|d)\b")
LEAST_SCRAPES = 5
"""How many scrapes each window of a rule holds, however quick it is to be."""

_DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")
_THRESHOLD = re.compile(r"(>=?|<=?)\s*[\d.]+\s*$")


def read_yaml(path: Path) -> Any:
    """What a YAML file of `ops` holds."""
    return msgspec.yaml.decode(path.read_bytes())


def rules_of(path: Path) -> list[dict[str, Any]]:
    """The rules of a file, recording ones and alerts, in order."""
    return [rule for group in read_yaml(path)["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """Every alert by its name."""
    return {rule["alert"]: rule for path in RULES for rule in rules_of(path) if "alert" in rule}


class Sample(NamedTuple):
    """One element of an instant vector."""

    labels: Mapping[str, str]
    value: float


class Alert(NamedTuple):
    """An alert that is pending or firing."""

    name: str
    state: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pace:
    """How rules are changed for a test: durations are divided by `quicker`, and the threshold at the end of the
    expression of an alert in `thresholds` is replaced. A window keeps `LEAST_SCRAPES`. An alert in `holds` has to be
    true for so many seconds, whatever the pace: what one scrape that comes late on a busy machine would raise. Those
    in `untouched` stay as they are.
    """

    quicker: int = 1
    thresholds: Mapping[str, float] = field(default_factory=dict)
    holds: Mapping[str, float] = field(default_factory=dict)
    untouched: frozenset[str] = frozenset()

    def rules(self, path: Path) -> dict[str, Any]:
        """A rule file of `ops`, at this pace."""
        content: dict[str, Any] = read_yaml(path)
        for group in content["groups"]:
            for rule in group["rules"]:
                if rule.get("alert") not in self.untouched:
                    self._change(rule)
        return content

    def _change(self, rule: dict[str, Any]) -> None:
        rule["expr"] = _WINDOW.sub(
            lambda found: found[1] + self._shrunk(found[2], found[3], at_least=LEAST_SCRAPES), rule["expr"]
        )
        if "for" in rule:
            length = _DURATION.fullmatch(rule["for"])
            assert length is not None, rule["for"]
            rule["for"] = self._shrunk(length[1], length[2], at_least=1)
        if (held := self.holds.get(rule.get("alert", ""))) is not None:
            rule["for"] = f"{round(held * 1000)}ms"
        if (wanted := self.thresholds.get(rule.get("alert", ""))) is not None:
            rule["expr"], changed = _THRESHOLD.subn(rf"\g<1> {wanted}", rule["expr"].rstrip())
            assert changed == 1, f"{rule['alert']} does not end with a threshold"

    def _shrunk(self, number: str, unit: str, at_least: int) -> str:
        milliseconds = int(number) * _UNITS[unit] // self.quicker
        return f"{max(milliseconds, at_least * SCRAPE_MILLISECONDS)}ms"


class Prometheus:
    """A Prometheus; running inside its block. `targets` says where each target of the configuration is: those that it
    does not name are left out.
    """

    def __init__(self, programs: Programs, folder: Path, targets: Mapping[str, str], pace: Pace | None = None) -> None:
        self._programs = programs
        self._folder = folder
        self._targets = targets
        self._pace = Pace() if pace is None else pace
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._client = httpx.Client(
            base_url=f"http://{LOOPBACK}:{self._port}", timeout=30.0, trust_env=False, verify=TRUSTING_NOBODY
        )

    def __enter__(self) -> Self:
        self._write()
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    self._programs.prometheus,
                    f"--config.file={self._folder / 'prometheus.json'}",
                    f"--storage.tsdb.path={self._folder / 'series'}",
                    f"--web.listen-address={LOOPBACK}:{self._port}",
                    "--log.level=warn",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={"PATH": os.defpath, "TMPDIR": str(self._folder), "HOME": str(self._folder), "GOMAXPROCS": "1"},
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._client.close()
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_SECONDS)

    def ask(self, path: str, **parameters: str) -> Any:
        """The data that a call of its API answers. Raises `AssertionError` with what it says against the question."""
        answer = self._client.get(f"/api/v1/{path}", params=parameters)
        content = answer.json()
        assert content["status"] == "success", f"{parameters}: {content.get('error')}"
        return content["data"]

    def query(self, expression: str, at: float | None = None) -> list[Sample]:
        """The instant vector of an expression, now or at that Unix time; a scalar is one sample without labels."""
        data = self.ask("query", query=expression, **({} if at is None else {"time": str(at)}))
        if data["resultType"] == "scalar":
            return [Sample({}, float(data["result"][1]))]
        return [Sample(each["metric"], float(each["value"][1])) for each in data["result"]]

    def alerts(self, name: str | None = None, **labels: str) -> list[Alert]:
        """The alerts that are pending or firing; those of one name and with these labels, if they are given."""
        told = [
            Alert(each["labels"]["alertname"], each["state"], each["labels"], each["annotations"])
            for each in self.ask("alerts")["alerts"]
        ]
        return [alert for alert in told if name in (None, alert.name) and labels.items() <= alert.labels.items()]

    def rules(self) -> list[dict[str, Any]]:
        """What it says of each rule: `name`, `type`, `health`, `lastError`."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    async def until_ready(self) -> None:
        """Return when every target was scraped and every rule evaluated. Raises `NotInTime`."""

        async def is_ready() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, f"Prometheus ended: {self.log()}"
            with contextlib.suppress(httpx.TransportError, ValueError):  # it does not listen, or not say anything, yet
                up = self.query("up")
                unknown = [rule for rule in self.rules() if rule["health"] == "unknown"]
                return len(up) == len(self._targets) and all(each.value for each in up) and not unknown
            return False

        await eventually(is_ready, READY_SECONDS, f"Prometheus scrapes {self._targets}")

    async def until(self, expression: str, within: float) -> list[Sample]:
        """Return what an expression gives, once it gives anything. Raises `NotInTime`."""

        async def given() -> list[Sample]:
            return self.query(expression)

        return await eventually(given, within, f"{expression} gives something")

    async def until_firing(self, name: str, within: float, **labels: str) -> list[Alert]:
        """Return the alerts of this name, with these labels, once one fires. Raises `NotInTime`, with what else is
        pending or firing.
        """

        async def fires() -> list[Alert]:
            return [alert for alert in self.alerts(name, **labels) if alert.state == "firing"]

        try:
            return await eventually(fires, within, f"{name} fires")
        except NotInTime as late:
            raise NotInTime(f"{late}; there is {[(each.name, each.state) for each in self.alerts()]}") from late

    async def until_quiet(self, name: str, within: float, **labels: str) -> None:
        """Return once no alert of this name, with these labels, is pending or fires. Raises `NotInTime`."""

        async def is_quiet() -> bool:
            return not self.alerts(name, **labels)

        await eventually(is_quiet, within, f"{name} is over")

    def log(self) -> str:
        """What it had to complain of."""
        path = self._folder / "prometheus.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _write(self) -> None:
        """Write the configuration and the rules as they are to be here; JSON is YAML too."""
        configuration = read_yaml(CONFIGURATION)
        configuration["global"] = {
            "scrape_interval": f"{SCRAPE_MILLISECONDS}ms",
            "scrape_timeout": f"{SCRAPE_MILLISECONDS}ms",
            "evaluation_interval": f"{SCRAPE_MILLISECONDS}ms",
        }
        for job in configuration["scrape_configs"]:
            groups = [
                {**group, "targets": [self._targets[each] for each in group["targets"] if each in self._targets]}
                for group in job["static_configs"]
            ]
            job["static_configs"] = [group for group in groups if group["targets"]]
        configuration["rule_files"] = [path.with_suffix(".json").name for path in RULES]
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "prometheus.json").write_text(json.dumps(configuration))
        for path in RULES:
            (self._folder / path.with_suffix(".json").name).write_text(json.dumps(self._pace.rules(path)))


def targets_of(gateway: Service, dispatcher: Service) -> dict[str, str]:
    """Where an installation's two services are, for a `Prometheus`."""
    return {GATEWAY: _address(gateway), DISPATCHER: _address(dispatcher)}


def _address(service: Service) -> str:
    return service.url.partition("://")[2]
