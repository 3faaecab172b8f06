"""A gateway whose API goes through a real PgBouncer in transaction mode, with a dispatcher, on a real database.

The PgBouncer has two server connections for all calls to the API, so nearly every transaction meets another session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.database import Server
from tests.support.installation import (
    TRUSTING_NOBODY,
    Installation,
    Service,
    add_endpoint,
    api,
    eventually,
    post,
)
from tests.support.pgbouncer import PgBouncer, Program
from tests.support.receiver import Receiver
from tests.system.conftest import fresh_database

DEADLINE = 60.0
EVENTS = 60
CALLERS = 12


@pytest.fixture
def pooler(pgbouncer_program: Program, installation: Installation, tmp_path: Path) -> Iterator[PgBouncer]:
    """A PgBouncer before the installation's database, with its settings for the installation's gateways."""
    assert installation.dsn is not None
    with PgBouncer(pgbouncer_program, tmp_path / "pgbouncer", installation.dsn) as running:
        installation.environment["RELAY_API_POOLER_URL"] = running.dsn
        yield running
        installation.close()


async def test_what_the_api_does_through_a_pooler_is_what_it_does_without(
    installation: Installation, pooler: PgBouncer, receiver: Receiver
) -> None:
    """Many callers at once write and read while events are taken and delivered; the fixture verifies the database."""
    gateway = installation.gateway(database_pool="14")
    installation.dispatcher()
    add_endpoint(gateway, receiver.url())
    limits = httpx.Limits(max_connections=CALLERS)
    async with httpx.AsyncClient(
        base_url=gateway.url, timeout=DEADLINE, trust_env=False, verify=TRUSTING_NOBODY, limits=limits
    ) as client:
        await asyncio.gather(*(_event_and_its_receipt(client, number, receiver.url()) for number in range(EVENTS)))
    await installation.all_closed(EVENTS, DEADLINE)
    names = "select application_name, count(*) from pg_stat_activity where datname = current_database() group by 1"
    sessions: dict[str, int] = dict(map(tuple, await installation.fetch(names)))
    assert sessions["relay gateway api"] <= 2, "the pooler's"
    assert sessions["relay gateway appends"] >= 1, "the gateway's own"
    assert sessions["relay dispatcher wake-ups"] == 1, "who listens keeps a session"


async def _event_and_its_receipt(client: httpx.AsyncClient, number: int, url: str) -> None:
    """One caller: an event, its receipt, an endpoint of another type of event that is changed, listed and removed."""
    headers = {"relay-event-type": "load.posted"}
    accepted = await client.post("/v1/events", json={"number": number}, headers=headers)
    assert accepted.status_code == 202, accepted.text
    receipt = await client.get(f"/v1/receipts/{accepted.json()['receipt_id']}")
    assert receipt.status_code == 200, receipt.text
    made = await client.post("/v1/endpoints", json={"url": url, "name": f"other-{number}", "event_types": ["other"]})
    assert made.status_code == 201, made.text
    at = f"/v1/endpoints/{made.json()['id']}"
    changed = await client.patch(at, json={"rate_per_second": number + 1})
    assert changed.status_code == 200, changed.text
    assert (await client.get(at)).json()["rate_per_second"] == number + 1
    twice = await client.post("/v1/endpoints", json={"url": url, "name": f"other-{number}"})
    assert twice.status_code == 422, twice.text
    for listing in ("/v1/receipts?limit=5", "/v1/endpoints?limit=5", "/v1/audit?limit=5", "/v1/dead-letters"):
        assert (await client.get(listing)).status_code == 200, listing
    assert (await client.delete(at)).status_code == 204


async def test_a_pooler_that_is_away_stops_the_api_and_no_event(
    installation: Installation, pooler: PgBouncer, receiver: Receiver
) -> None:
    gateway = installation.gateway()
    installation.dispatcher()
    add_endpoint(gateway, receiver.url())
    pooler.kill()
    assert _list(gateway).json()["code"] == "database_unavailable"
    for _ in range(5):
        assert post(gateway, b"{}", relay_event_type="load.posted").status_code == 202
    receiver.wait_for(5, DEADLINE)
    with api(gateway) as client:
        assert client.get("/readyz").status_code == 200
    pooler.start()

    async def answers() -> bool:
        return _list(gateway).status_code == 200

    await eventually(answers, DEADLINE, "the API answers again, and nothing was started anew")


def _list(gateway: Service) -> httpx.Response:
    with api(gateway) as client:
        return client.get("/v1/endpoints")


def test_a_gateway_does_not_start_behind_a_pooler_of_another_database(
    installation: Installation, pooler: PgBouncer, database_server: Server, template_database: str
) -> None:
    with fresh_database(database_server, template_database) as other:
        pooler.lead_to(other)
        pooler.kill()
        pooler.start()
        installation.environment["RELAY_API_POOLER_URL"] = pooler.dsn
        gateway = installation.gateway()
        assert gateway.wait(DEADLINE) == 1
        assert "RELAY_API_POOLER_URL leads to another database" in gateway.log_tail()
        assert "RELAY_API_POOLER_URL leads to another database" in _doctor(installation)
        pooler.kill()


@pytest.mark.parametrize("mode", ["session", "transaction"])
@pytest.mark.parametrize("ignored", [False, True])
def test_the_servers_own_address_may_not_be_a_poolers(
    installation: Installation, pooler: PgBouncer, mode: str, ignored: bool
) -> None:
    """What a pooler ignores would go without a word: commits would wait for others, plans read whole tables."""
    names = (
        "plan_cache_mode,jit,enable_seqscan,idle_in_transaction_session_timeout,statement_timeout,synchronous_commit"
    )
    sockets = "tcp_keepalives_idle,tcp_keepalives_interval,tcp_keepalives_count,tcp_user_timeout"
    pooler.more = f"pool_mode = {mode}" + (f"\nignore_startup_parameters = {names},{sockets}" if ignored else "")
    assert installation.dsn is not None
    pooler.lead_to(installation.dsn)
    pooler.kill()
    pooler.start()
    installation.environment |= {"DATABASE_URL": pooler.dsn, "RELAY_API_POOLER_URL": ""}
    for service in (installation.gateway(), installation.dispatcher()):
        assert service.wait(DEADLINE) == 1
        assert "only RELAY_API_POOLER_URL may name a pooler" in service.log_tail()


def test_a_gateway_does_not_start_while_its_pooler_is_away(installation: Installation, pooler: PgBouncer) -> None:
    assert "RELAY_API_POOLER_URL leads to the same database" in _doctor(installation)
    pooler.kill()
    gateway = installation.gateway()
    assert gateway.wait(DEADLINE) == 1
    assert "check the pooler of RELAY_API_POOLER_URL" in gateway.log_tail()
    assert "check the pooler of RELAY_API_POOLER_URL" in _doctor(installation)


def _doctor(installation: Installation) -> str:
    return installation.run("doctor").stdout
