"""Claims about ``docker-compose.yml`` and the Dockerfile, made without a container engine.

What the files say is compared with what must hold; what their commands do is tried in ``tests/system/test_stack.py``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from relay.app.crew import KILLED_SECONDS
from relay.app.roles import Role, bounds
from relay.settings import read
from tests.docs.tree import ROOT
from tests.support.containers import COMPOSE, HADOLINT, ask, compose, dockerfile
from tests.support.pages import block

OURS = ("init", "gateway", "dispatcher", "testkit")


def test_compose_takes_the_file_and_warns_of_nothing() -> None:
    told = ask(*COMPOSE, "config", "--quiet")
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    told = ask(HADOLINT, "--no-color", "Dockerfile")
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_what_is_mounted_from_the_project_is_there() -> None:
    mounts = [mount for each in compose()["services"].values() for mount in each.get("volumes", [])]
    sources = [Path(mount["source"]) for mount in mounts if mount["type"] == "bind"]
    assert [str(source) for source in sources if not source.exists()] == []
    assert sources


def test_the_stack_is_published_on_this_machine_alone() -> None:
    published = {
        port["published"]: (name, port.get("host_ip"))
        for name, each in compose()["services"].items()
        for port in each.get("ports", [])
    }
    assert {address for _, address in published.values()} == {"127.0.0.1"}
    assert (published["8080"][0], published["5433"][0]) == ("gateway", "postgres")


@pytest.mark.parametrize("subnet", ["", "10.99.0.0/24"])
def test_exactly_the_receivers_network_is_opened_to_deliveries(subnet: str) -> None:
    document = compose(**({"RECEIVERS_SUBNET": subnet} if subnet else {}))
    services = document["services"]
    config = document["networks"]["receivers"]["ipam"]["config"][0]
    opened = {services[name]["environment"]["RELAY_EGRESS_ALLOW_CIDRS"] for name in ("gateway", "dispatcher")}
    assert opened == {config["subnet"]}
    assert ipaddress.ip_network(config["subnet"]).is_private
    in_it = {name for name, each in services.items() if "receivers" in each["networks"]}
    assert in_it == {"gateway", "dispatcher", "testkit"}


def test_no_secret_of_relays_stands_in_the_file() -> None:
    environments = {name: each.get("environment") or {} for name, each in compose()["services"].items()}
    for name in OURS:
        held = {key: text for key, text in environments[name].items() if key.startswith("RELAY_")}
        settings = read({key: text for key, text in held.items() if not key.endswith("_FILE")})
        assert (settings.secret_keys, settings.api_key, settings.testkit_secret) == (None, None, None)


def test_the_images_run_as_a_number_that_is_not_root_and_start_without_a_shell() -> None:
    stages = dockerfile()
    for name in ("gateway", "dispatcher", "testkit"):
        assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", stages[name].user)
        assert (stages[name].entrypoint, stages[name].command) == (("relay",), (name,))
        assert stages[name].health[0] == "python"


def test_relays_containers_may_write_nowhere_but_in_memory_and_gain_nothing() -> None:
    for name in OURS:
        each = compose()["services"][name]
        assert each["read_only"]
        assert each["cap_drop"] == ["ALL"]
        assert each["security_opt"] == ["no-new-privileges:true"]
        assert each["tmpfs"] == ["/tmp"]  # noqa: S108 - a folder in a container


def test_a_container_has_longer_to_stop_than_its_process_takes() -> None:
    for role in (Role.GATEWAY, Role.DISPATCHER):
        each = compose()["services"][role]
        longest = bounds(role, read(_settings(each["environment"]))).stop + KILLED_SECONDS
        assert _seconds(each["stop_grace_period"]) > longest


def test_the_page_makes_the_role_that_the_stack_makes() -> None:
    script = (ROOT / "ops" / "compose" / "role.sql").read_text()
    statements = [line for line in script.splitlines() if line[:2] not in ("--", "\\g") and "revoke" not in line]
    shown = block("docs/deployment.md", "create role relay").text
    assert shown.replace("'…'", ":'password'").splitlines() == statements


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if not name.endswith("_FILE")}


def _seconds(duration: str) -> float:
    minutes, _, seconds = duration.rpartition("m")
    return 60 * float(minutes or 0) + float(seconds.rstrip("s") or 0)
