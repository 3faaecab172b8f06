"""Claims about `/metrics` of a running Relay, as those read it who wrote the formats."""

from __future__ import annotations

import subprocess

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from relay.domain.telemetry import Process
from relay.metrics.names import exported_by
from tests.ops.conftest import Watched
from tests.support.installation import TRUSTING_NOBODY
from tests.support.programs import Programs

PROMETHEUS_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"  # noqa: E501 - as it is sent
PROMETHEUS_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"  # noqa: E501 - as it is sent

each_process = pytest.mark.parametrize("process", Process)


def scraped(watched: Watched, process: Process, accept: str = "") -> httpx.Response:
    """What a process answers to who asks like that."""
    service = watched.gateway if process is Process.GATEWAY else watched.dispatcher
    with httpx.Client(trust_env=False, verify=TRUSTING_NOBODY, timeout=30.0) as client:
        answer = client.get(f"{service.url}/metrics", headers={"accept": accept})
    assert answer.status_code == 200
    return answer


@each_process
def test_promtool_finds_nothing_wrong(watched: Watched, programs: Programs, process: Process) -> None:
    text = scraped(watched, process).content
    done = subprocess.run(
        [programs.promtool, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@each_process
@pytest.mark.parametrize("accept", [PROMETHEUS_2, PROMETHEUS_3], ids=["2", "3"])
def test_prometheus_gets_open_metrics(watched: Watched, process: Process, accept: str) -> None:
    answer = scraped(watched, process, accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert answer.text.endswith("\n# EOF\n")
    read = text_string_to_metric_families(answer.text)  # type: ignore[no-untyped-call]  # the library has no types
    assert [family.name for family in read] == [metric.name.removesuffix("_total") for metric in exported_by(process)]


@each_process
def test_every_sample_that_prometheus_was_given_it_took(watched: Watched, process: Process) -> None:
    job = f"relay-{process}"
    (given,) = watched.prometheus.query(f'scrape_samples_scraped{{job="{job}"}}', watched.at)
    (taken,) = watched.prometheus.query(f'scrape_samples_post_metric_relabeling{{job="{job}"}}', watched.at)
    assert given.value == taken.value > len(exported_by(process))
