"""Claims of ``docs/upgrading.md``: who runs goes on when the database is migrated further, and who starts is strict."""

from __future__ import annotations

import pytest

from tests.support.installation import LOOPBACK, Installation, add_endpoint, post
from tests.support.receiver import Receiver

CLOSED_SECONDS = 30.0


async def _migrate_further(installation: Installation) -> None:
    await installation.fetch("insert into schema_migrations (number, name, sha256) values (9999, '9999_later', '')")


async def test_processes_that_run_go_on_when_a_newer_version_migrates(
    installation: Installation, receiver: Receiver
) -> None:
    gateway, dispatcher = installation.gateway(), installation.dispatcher()
    add_endpoint(gateway, receiver.url())
    assert dispatcher.started
    await _migrate_further(installation)

    assert post(gateway, b'{"type": "order.paid"}').status_code == 202
    await installation.all_closed(1, CLOSED_SECONDS)


@pytest.mark.parametrize("role", ["gateway", "dispatcher"])
async def test_a_process_that_is_older_than_the_database_does_not_start(installation: Installation, role: str) -> None:
    await _migrate_further(installation)
    installation.environment |= {"RELAY_BIND": f"{LOOPBACK}:0", "RELAY_METRICS_BIND": f"{LOOPBACK}:0"}
    done = installation.run(role)
    assert (done.returncode, "upgrade Relay" in done.stderr) == (1, True), done.stderr
