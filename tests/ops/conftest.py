"""What the tests of `ops/` share: the programs, and a real Relay that a real Prometheus has watched."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.support.database import Server
from tests.support.installation import UNLIMITED, Installation, Service, add_endpoint, api, post
from tests.support.programs import Programs
from tests.support.prometheus import Prometheus, targets_of
from tests.support.receiver import Receiver
from tests.system.conftest import (
    database_owner_dsn,
    ended,
    fresh_database,
    installation,
    on_that_server,
    programs,
    server,
    template_database,
)

__all__ = [
    "database_owner_dsn",
    "installation",
    "on_that_server",
    "programs",
    "server",
    "template_database",
]  # fixtures

WITHIN = 60.0

TWO_WORKERS = {"workers": "2"}
STRICT = {
    "allow_private_endpoints": "false",
    "egress_allow_cidrs": "127.0.0.1/32",
    "require_https": "false",
    "allowed_ports": "*",
    "breaker_threshold": "2",
}
"""The dispatcher refuses what this gateway accepts: all of loopback but the one address that the receiver is at."""

ONE_TRY = {"retry": {"max_attempts": 1, "base_seconds": 1, "max_seconds": 1, "window_seconds": 60}}


@dataclass(frozen=True, slots=True)
class Watched:
    """A Relay of two workers each that has delivered, failed, dead-lettered and refused, and the Prometheus that saw
    it; `at` is the Unix time at which it had seen all, `environment` what commands are run in.
    """

    gateway: Service
    dispatcher: Service
    prometheus: Prometheus
    at: float
    environment: Mapping[str, str]


@pytest.fixture(scope="package")
def watched(
    programs: Programs,
    database_server: Server,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Watched]:
    """Such a Relay, which goes on running. Nothing more happens in it."""
    folder = tmp_path_factory.mktemp("watched")
    with fresh_database(database_server, template_database) as dsn, Receiver() as receiver:
        for installation in ended(Installation(folder, dsn), request):
            gateway, dispatcher = installation.gateway(**TWO_WORKERS), installation.dispatcher(**TWO_WORKERS, **STRICT)
            with Prometheus(programs, folder / "prometheus", targets_of(gateway, dispatcher)) as prometheus:
                asyncio.run(prometheus.until_ready())
                _have_a_day(gateway, receiver)
                asyncio.run(_until_seen(prometheus))
                yield Watched(gateway, dispatcher, prometheus, time.time(), installation.environment)


def _have_a_day(gateway: Service, receiver: Receiver) -> None:
    """Everything that may become of an event."""
    add_endpoint(gateway, receiver.url("/ok"), name="well", event_types=["day.good"])
    add_endpoint(gateway, receiver.url("/status/404"), name="crm", event_types=["day.bad"])
    add_endpoint(gateway, receiver.url("/always500"), name="failing", event_types=["day.bad"], **ONE_TRY)
    add_endpoint(gateway, receiver.url("/always500"), name="down", event_types=["day.bad"])
    add_endpoint(gateway, "http://127.0.0.2:9/hook", name="inside", event_types=["day.bad"])
    add_endpoint(gateway, receiver.url("/429?retry_after=600"), name="busy", event_types=["day.bad"])
    slow = UNLIMITED | {"rate_per_second": 1, "burst": 1}
    with api(gateway) as client:
        limited = {"url": receiver.url("/ok"), "name": "limited", "event_types": ["day.good"], **slow}
        assert client.post("/v1/endpoints", json=limited).status_code == 201
    for number in range(30):
        kind = "day.bad" if number % 10 == 0 else "day.good"
        assert post(gateway, json.dumps({"type": kind, "number": number}).encode()).status_code == 202
    named = {"idempotency_key": "twice"}
    assert [post(gateway, b'{"type": "day.good"}', **named).status_code for _ in range(2)] == [202, 202]
    assert post(gateway, b'{"type": "nobody.listens"}').status_code == 202
    assert post(gateway, b'{"type": ').status_code == 400


SEEN = (
    'sum(relay_delivery_attempts_total{outcome="success"}) >= 31',
    "sum(journal_commit_seconds_count) == 32",
    "sum(idempotent_replays_total) == 1",
    'sum(gateway_rejects_total{reason="malformed"}) == 1',
    'sum(dlq_inflow_total{consumer="crm", reason="permanent_failure"}) == 3',
    'sum(dlq_inflow_total{consumer="failing", reason="exhausted"}) >= 1',
    'sum(dlq_inflow_total{consumer="inside", reason="refused"}) == 3',
    'sum(dlq_inflow_total{consumer="", reason="no_route"}) == 1',
    'sum(dlq_depth{consumer="crm"}) == 3',
    'sum(relay_deliveries_deferred_total{reason="rate_limit"}) >= 1',
    'sum(relay_deliveries_deferred_total{reason="retry_after"}) >= 1',
    'sum(relay_breaker_open{consumer="down"}) == 1',
    "sum(relay_retries_scheduled_total) >= 1",
    'ALERTS{alertname="RelayNoRoute", alertstate="firing"}',
)


async def _until_seen(prometheus: Prometheus) -> None:
    for expression in SEEN:
        await prometheus.until(expression, WITHIN)
