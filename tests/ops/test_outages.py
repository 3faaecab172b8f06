"""Claims about alerts that come when a part of Relay goes, and end when it is back, at a pace of seconds."""

from __future__ import annotations

from pathlib import Path

from tests.support.installation import Installation
from tests.support.programs import Programs
from tests.support.prometheus import Pace, Prometheus, targets_of

WITHIN = 60.0


async def test_a_dispatcher_that_dies_pages_until_it_is_back(
    programs: Programs, installation: Installation, tmp_path: Path
) -> None:
    gateway, dispatcher = installation.gateway(), installation.dispatcher()
    with Prometheus(programs, tmp_path / "prometheus", targets_of(gateway, dispatcher), Pace(30)) as prometheus:
        await prometheus.until_ready()
        assert prometheus.alerts() == []
        dispatcher.kill()
        (page,) = await prometheus.until_firing("RelayNoDispatcher", WITHIN)
        assert (page.labels["installation"], page.labels["severity"]) == ("compose", "page")
        assert prometheus.alerts("RelayNoGateway") == []
        dispatcher.start()
        await prometheus.until_quiet("RelayNoDispatcher", WITHIN)
