"""Addresses that must not be reached, by every way in which Relay comes to send (C26 to C32, C41, C45).

What counts is whether anybody connected: a trap listens on all addresses of this machine at one port. The installation
takes plain http and any port, so nothing but the address stands between a spelling and the trap.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.database import Server
from tests.support.forbidden import SPELLINGS, Trap, own_address
from tests.support.installation import Installation, Service, add_endpoint, api, eventually, metrics, post
from tests.system.conftest import ended, fresh_database

WITHIN = 60.0
STRICT = {
    "RELAY_ALLOW_PRIVATE_ENDPOINTS": "false",
    "RELAY_REQUIRE_HTTPS": "false",
    "RELAY_ALLOWED_PORTS": "*",
    "RELAY_METRICS_BIND": "127.0.0.1:1",
}
HARMLESS = "http://receiver.example.test/hook"

DELIVERIES = """
    select d.status::text, d.dead_reason::text, d.generation, d.attempts,
           a.outcome_class::text, a.reason, a.error_class, a.status_code
    from deliveries d join delivery_attempts a on a.delivery_id = d.id
    where d.endpoint_id = any($1::uuid[])
"""


def hosts() -> list[str]:
    """Every spelling, and the names and addresses that only this machine has."""
    own = own_address()
    return [*SPELLINGS, socket.gethostname()] + ([own, f"[::ffff:{own}]"] if own else [])


@pytest.fixture(scope="module")
def trap() -> Iterator[Trap]:
    with Trap() as running:
        yield running


@pytest.fixture(autouse=True)
def nobody_connects(trap: Trap) -> Iterator[None]:
    """What every test here claims beside its own."""
    before = trap.connections
    yield
    assert trap.connections == before


class Strict:
    """A gateway and a dispatcher of production's policy, but for http and ports."""

    def __init__(self, installation: Installation, gateway: Service, dispatcher: Service) -> None:
        self.installation = installation
        self.gateway = gateway
        self.dispatcher = dispatcher

    async def leading_to(self, urls: list[str], event_type: str) -> list[dict[str, Any]]:
        """Endpoints whose urls nobody would accept, as if the policy had changed since they were created."""
        made = [add_endpoint(self.gateway, HARMLESS, event_types=[event_type]) for _ in urls]
        await self.installation.fetch(
            "update endpoints e set url = w.url from unnest($1::uuid[], $2::text[]) w (id, url) where e.id = w.id",
            [uuid_of(each["id"]) for each in made],
            urls,
        )
        return made

    async def dead(self, endpoints: list[dict[str, Any]], attempts: int) -> list[Any]:
        """The attempts at these endpoints' deliveries, once there are so many and all have died of them."""
        ids = [uuid_of(each["id"]) for each in endpoints]

        async def all_dead() -> list[Any] | None:
            rows = await self.installation.fetch(DELIVERIES, ids)
            return rows if len(rows) == attempts and {row["status"] for row in rows} == {"dead"} else None

        return await eventually(all_dead, WITHIN, f"{attempts} attempts, and all dead") or []

    def refused(self) -> float:
        """How many dead letters were counted as refused."""
        counted = metrics(self.dispatcher).items()
        return sum(value for name, value in counted if name.startswith("dlq_inflow_total{") and '"refused"' in name)


def uuid_of(endpoint: str) -> str:
    return endpoint.removeprefix("ep_")


@pytest.fixture(scope="module")
def strict(
    database_server: Server,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Strict]:
    with fresh_database(database_server, template_database) as dsn:
        for installation in ended(Installation(tmp_path_factory.mktemp("strict"), dsn, STRICT), request):
            yield Strict(installation, installation.gateway(), installation.dispatcher())


def test_the_trap_is_where_these_spellings_lead() -> None:
    """Or nothing in this module would prove anything."""
    with Trap() as control:
        reached = ["127.0.0.1", "127.0.0.2", "127.255.255.254", "127.1", "2130706433", "0x7f.1", "0", "0.0.0.0"]
        reached += ["::1", "::ffff:127.0.0.1", "::", "localhost"] + ([own] if (own := own_address()) else [])
        for number, host in enumerate(reached, start=1):
            with socket.create_connection((host, control.port), timeout=10):
                control.wait_for(number)


def test_no_spelling_is_taken_when_an_endpoint_is_created(strict: Strict, trap: Trap) -> None:
    with api(strict.gateway) as client:
        for host in SPELLINGS:
            answer = client.post("/v1/endpoints", json={"url": trap.url(host)})
            assert (answer.status_code, answer.json()["code"]) == (422, "url_refused"), host


def test_no_spelling_is_taken_when_an_endpoint_is_changed(strict: Strict, trap: Trap) -> None:
    """C28."""
    endpoint = add_endpoint(strict.gateway, HARMLESS, event_types=["trap.unused"])
    with api(strict.gateway) as client:
        for host in SPELLINGS:
            answer = client.patch(f"/v1/endpoints/{endpoint['id']}", json={"url": trap.url(host)})
            assert (answer.status_code, answer.json()["code"]) == (422, "url_refused"), host
        assert client.get(f"/v1/endpoints/{endpoint['id']}").json()["url"] == HARMLESS


async def test_no_spelling_is_dialled_by_a_first_try_a_replay_or_a_test(strict: Strict, trap: Trap) -> None:
    """C41: each of them is refused on its own, with its own dead letter, and none is tried again by itself."""
    urls = [trap.url(host) for host in hosts()]
    before = strict.refused()
    endpoints = await strict.leading_to(urls, "trap.sent")

    receipt = post(strict.gateway, b"{}", relay_event_type="trap.sent").json()
    first = await strict.dead(endpoints, len(urls))
    assert {(row["dead_reason"], row["outcome_class"], row["reason"][:8]) for row in first} == {
        ("refused", "permanent", "refused_")
    }
    assert {row["error_class"] for row in first} == {"refused_url", "refused_address"}
    assert {(row["attempts"], row["generation"], row["status_code"]) for row in first} == {(1, 0, None)}

    with api(strict.gateway) as client:
        assert client.post(f"/v1/receipts/{receipt['receipt_id']}/redrive", json={}).status_code == 202
    again = await strict.dead(endpoints, 2 * len(urls))
    assert {(row["dead_reason"], row["generation"]) for row in again} == {("refused", 1)}

    with api(strict.gateway) as client:
        for delivery in receipt["deliveries"]:
            assert client.post(f"/v1/deliveries/{delivery['id']}/redrive", json={}).status_code == 202
    await strict.dead(endpoints, 3 * len(urls))

    with api(strict.gateway) as client:
        for endpoint in endpoints:
            assert client.post(f"/v1/endpoints/{endpoint['id']}/test").status_code == 202
    await strict.dead(endpoints, 4 * len(urls))

    async def counted() -> bool:
        return strict.refused() - before == 4 * len(urls)

    await eventually(counted, WITHIN, "each of them counted as refused")


async def test_a_refused_delivery_says_so_and_names_no_address(strict: Strict, trap: Trap) -> None:
    (endpoint,) = await strict.leading_to([trap.url(socket.gethostname())], "trap.told")
    delivery = post(strict.gateway, b"{}", relay_event_type="trap.told").json()["deliveries"][0]
    await strict.dead([endpoint], 1)
    with api(strict.gateway) as client:
        shown = client.get(f"/v1/deliveries/{delivery['id']}").json()
        (letter,) = client.get("/v1/dead-letters", params={"type": "trap.told"}).json()["data"]
    assert (shown["status"], shown["reason"], letter["reason"]) == ("dead", "refused", "refused")
    assert shown["last_error"].startswith("refused_address: the address is in ")
    own = own_address()
    assert own is None or own not in f"{shown}{letter}"
