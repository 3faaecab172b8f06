"""Claims about `relay doctor` as a command: what it says of a Relay that runs, of one that does not, its exit code."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell, broken, on_a_terminal
from tests.support.installation import LOOPBACK, Service, free_port


@pytest.fixture
def beside(relay: Service, shell: Shell) -> Shell:
    """Commands with the settings of the running Relay."""
    started = relay.started
    shell.environment |= {
        "RELAY_DATA_DIR": str(started["data_dir"]),
        "RELAY_BIND": relay.url.removeprefix("http://"),
        "RELAY_METRICS_BIND": started["metrics"][1].removeprefix("http://").removesuffix("/metrics"),
        "RELAY_TESTKIT_BIND": started["receiver"].removeprefix("http://"),
        "RELAY_ALLOW_PRIVATE_ENDPOINTS": "true",
    }
    return shell


def by_check(document: Any) -> dict[str, str]:
    return {each["check"]: each["level"] for each in document["checks"]}


def test_nothing_is_wrong_with_a_relay_that_runs(relay: Service, beside: Shell) -> None:
    beside.document("endpoints", "add", f"{relay.started['receiver']}/ok", "--name", "healthy", "--type", "healthy.*")
    document = beside.document("doctor", "--endpoint", "healthy")
    levels = by_check(document)
    assert document["ok"] is True
    assert {"gateway", "database", "dispatcher", "keys", "schema", "disk", "endpoint healthy"} <= set(levels)
    assert set(levels.values()) == {"ok"}


def test_a_shell_without_the_settings_of_the_relay_that_runs_is_told_so_once(relay: Service, beside: Shell) -> None:
    """And what waits for a person is told."""
    del beside.environment["RELAY_ALLOW_PRIVATE_ENDPOINTS"]
    beside.document(
        "endpoints", "add", f"{relay.started['receiver']}/status/410", "--name", "departed", "--type", "departed.now"
    )
    receipt = beside.document("send", "departed.now")["receipt_id"]
    beside.run("receipt", receipt, "--watch")
    beside.document("endpoints", "add", f"{relay.started['receiver']}/ok", "--name", "local", "--type", "local.*")
    checks = json.loads(beside.run("doctor").stdout)["checks"]
    told = {each["check"]: (each["level"], each["text"]) for each in checks}
    assert told["egress"][0] == "warning"
    assert "endpoint local" not in told
    level, text = told["endpoint departed"]
    assert (level, "relay endpoints resume departed" in text) == ("warning", True)
    level, text = told["dead letters"]
    assert (level, "relay dlq list" in text) == ("warning", True)


def test_a_fault_is_1_and_a_person_sees_a_line_for_each_check(lonely: Shell, tmp_path: Path) -> None:
    lonely.environment |= {
        "RELAY_DATA_DIR": str(tmp_path),
        "RELAY_BIND": f"{LOOPBACK}:{free_port()}",
        "RELAY_METRICS_BIND": f"{LOOPBACK}:{free_port()}",
        "RELAY_TESTKIT_BIND": f"{LOOPBACK}:{free_port()}",
    }
    done = lonely.run("doctor")
    assert (done.returncode, done.stderr) == (1, b"")
    document = json.loads(done.stdout)
    assert document["ok"] is False
    lines = on_a_terminal(lonely, "doctor").splitlines()
    assert [line.split()[0] for line in lines] == [each["level"] for each in document["checks"]]
    assert [line for line in lines if "start it with `relay up`" in line]
    assert list(tmp_path.iterdir()) == []


def test_a_check_that_hangs_for_ever_is_told_and_not_waited_for(lonely: Shell, tmp_path: Path) -> None:
    never_written = tmp_path / "certificate.pem"
    os.mkfifo(never_written)
    lonely.environment |= {
        "RELAY_DATA_DIR": str(tmp_path),
        "RELAY_TLS_CERT": str(never_written),
        "RELAY_TLS_KEY": str(never_written),
    }
    done = lonely.run("doctor")
    assert (done.returncode, done.stderr) == (1, b"")
    texts = {each["check"]: each["text"] for each in json.loads(done.stdout)["checks"]}
    assert texts["certificate"].startswith("no answer within 5 s")
    assert "file system hangs" in texts["certificate"]


def test_faults_of_the_settings_are_found_too(lonely: Shell) -> None:
    done = lonely.run("doctor", environment={"RELAY_BINDD": "x", "RELAY_WORKERS": "many"})
    assert done.returncode == 1
    texts = [each["text"] for each in json.loads(done.stdout)["checks"]]
    assert texts[0] == "RELAY_BINDD is no setting: did you mean RELAY_BIND?"
    assert texts[-1] == "nothing else can be looked at before these are mended"


def test_a_library_that_cannot_be_imported_is_a_finding_beside_the_others(lonely: Shell, tmp_path: Path) -> None:
    """As on Debian 12, whose Python lets the broker's client want a library that no later one needs."""
    broken("redis", tmp_path)
    done = lonely.run(
        "doctor", environment={"PYTHONPATH": str(tmp_path), "RELAY_BROKER_URL": f"redis://{LOOPBACK}:{free_port()}"}
    )
    assert (done.returncode, done.stderr) == (1, b"")
    found = {each["check"]: (each["level"], each["text"]) for each in json.loads(done.stdout)["checks"]}
    level, text = found["broker"]
    assert (level, "No module named 'missing_part'" in text) == ("fault", True)
    assert {"gateway", "database", "disk"} <= set(found)
