"""Claims about alerts that come when a part of Relay goes, and end when it is back, at a pace of seconds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from relay.embedded import EmbeddedServer
from tests.support.installation import Installation
from tests.support.producer import Producer, numbered
from tests.support.programs import Programs
from tests.support.prometheus import Pace, Prometheus, targets_of

WITHIN = 90.0
QUICK = Pace(30, {"RelayLoopSilent": 12})
"""Some loops go round once a minute: they are silent for longer than that at their best."""

OFTEN = "reporter"
"""One that goes round every five seconds."""

EVENTS = 500


async def test_a_dispatcher_that_dies_pages_until_it_is_back(
    programs: Programs, installation: Installation, tmp_path: Path
) -> None:
    gateway, dispatcher = installation.gateway(), installation.dispatcher()
    with Prometheus(programs, tmp_path / "prometheus", targets_of(gateway, dispatcher), QUICK) as prometheus:
        await prometheus.until_ready()
        assert prometheus.alerts() == []
        dispatcher.kill()
        (page,) = await prometheus.until_firing("RelayNoDispatcher", WITHIN)
        assert (page.labels["installation"], page.labels["severity"]) == ("compose", "page")
        assert prometheus.alerts("RelayNoGateway") == []
        dispatcher.start()
        await prometheus.until_quiet("RelayNoDispatcher", WITHIN)


@pytest.mark.timeout(300)
async def test_a_database_that_is_away_pages_by_its_name_until_it_is_back(
    programs: Programs, on_that_server: Installation, server: EmbeddedServer, tmp_path: Path
) -> None:
    assert on_that_server.run("migrate").returncode == 0
    gateway, dispatcher = on_that_server.gateway(), on_that_server.dispatcher()
    with Prometheus(programs, tmp_path / "prometheus", targets_of(gateway, dispatcher), QUICK) as prometheus:
        await prometheus.until_ready()
        await asyncio.to_thread(server.stop)
        posting = asyncio.create_task(Producer([gateway.url]).post(numbered(EVENTS), 2 * WITHIN))
        (page,) = await prometheus.until_firing("RelayEventsTurnedAway", WITHIN)
        assert page.labels["reason"] == "database_unavailable"
        (silent,) = await prometheus.until_firing("RelayLoopSilent", WITHIN, loop=OFTEN)
        assert silent.labels["job"] == "relay-dispatcher"
        assert prometheus.alerts("RelayNoDispatcher") == prometheus.alerts("RelayNoGateway") == []
        await asyncio.to_thread(server.start)
        await posting
        await prometheus.until_quiet("RelayEventsTurnedAway", WITHIN)
        await prometheus.until_quiet("RelayLoopSilent", WITHIN, loop=OFTEN)
