"""Claims about `relay up --replicas 3`, with everything real."""

from __future__ import annotations

import shutil
from pathlib import Path

from relay.embedded import running_dsn
from relay.embedded.replication import REPLICAS, is_standby
from tests.support.installation import START_SECONDS, Installation, Service, api, eventually, post

EVENT = b'{"type": "invoice.paid"}'


def primary_of(alone: Installation) -> Path | None:
    """The folder of the primary; None while there is none, between a loss and a promotion."""
    clusters = [alone.folder / "data" / "pg" / name for name in REPLICAS]
    return next((cluster for cluster in clusters if cluster.exists() and not is_standby(cluster)), None)


def says(service: Service, words: str) -> None:
    service.wait_for(lambda record: words in record.get("progress", ""), START_SECONDS, f"says {words!r}")


async def test_an_event_is_on_two_of_three_servers_and_survives_the_loss_of_the_first(alone: Installation) -> None:
    service = alone.up("--replicas", "3")
    says(service, "3 servers of which 2 hold every event")
    says(service, "r1 is the primary; its standbys that stream: r2, r3")
    assert service.started
    first = post(service, EVENT)
    assert first.status_code == 202
    assert first.json()["durability"] == {"confirmed": 2, "of": 3}
    lost = primary_of(alone)
    assert lost is not None
    shutil.rmtree(lost, ignore_errors=True)  # its server may put something there meanwhile

    async def another_takes_events() -> bool:
        return post(service, EVENT).status_code == 202 and primary_of(alone) not in (lost, None)

    await eventually(another_takes_events, START_SECONDS, "another server takes events")
    with api(service) as client:
        assert client.get(f"/v1/receipts/{first.json()['receipt_id']}").status_code == 200
    assert service.stop() == 0
    assert alone.processes() == []
    assert running_dsn(alone.folder / "data") is None


async def test_the_environment_decides_how_many_of_them_hold_an_event(alone: Installation) -> None:
    service = alone.up("--replicas", "3", journal_quorum="3")
    assert service.started
    assert post(service, EVENT).json()["durability"] == {"confirmed": 3, "of": 3}


def test_more_machines_than_there_are_servers_are_refused_with_the_way_out(alone: Installation) -> None:
    alone.environment["RELAY_JOURNAL_QUORUM"] = "2"
    one = alone.run("up")
    assert one.returncode == 1
    assert "RELAY_JOURNAL_QUORUM is 2, and the database has 1 server: lower it, or start three with --replicas 3" in (
        one.stderr
    )
    alone.environment["RELAY_JOURNAL_QUORUM"] = "4"
    three = alone.run("up", "--replicas", "3")
    assert three.returncode == 1
    assert "RELAY_JOURNAL_QUORUM is 4, and the database has 3 servers: lower it" in three.stderr
    assert not (alone.folder / "data").exists()


def test_replicas_of_an_outside_database_are_refused(alone: Installation) -> None:
    alone.environment["DATABASE_URL"] = "postgresql://relay@localhost/relay"
    done = alone.run("up", "--replicas", "3")
    assert done.returncode == 1
    assert "DATABASE_URL names another" in done.stderr


def test_one_server_is_not_started_beside_copies_of_a_lost_one(alone: Installation) -> None:
    service = alone.up("--replicas", "3")
    assert service.stop() == 0
    shutil.rmtree(alone.folder / "data" / "pg" / "r1")
    done = alone.run("up")
    assert done.returncode == 1
    assert "start with --replicas 3" in done.stderr
    assert not (alone.folder / "data" / "pg" / "r1").exists()
