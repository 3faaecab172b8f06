"""Relay does not send to itself: not where its own processes listen, and not round in a ring."""

from __future__ import annotations

import pytest

from tests.support.forbidden import own_address
from tests.support.installation import Installation, Service, add_endpoint, api, eventually, free_port, post
from tests.support.receiver import Receiver
from tests.system.test_forbidden_addresses import HARMLESS, STRICT, uuid_of

WITHIN = 60.0
LONGEST_WAY = 8


def refusal(gateway: Service, url: str) -> tuple[int, str]:
    with api(gateway) as client:
        answer = client.post("/v1/endpoints", json={"url": url})
    return answer.status_code, answer.json().get("reason", "")


async def died(installation: Installation, endpoint: str, url: str) -> str:
    """Let an endpoint lead there although nobody would accept it, and answer why its delivery died."""
    await installation.fetch("update endpoints set url = $2 where id = $1::uuid", uuid_of(endpoint), url)
    post(installation.services[0], b"{}", relay_event_type="ring.closed")

    async def why() -> str | None:
        rows = await installation.fetch(
            "select dead_reason::text, last_error from deliveries where endpoint_id = $1::uuid and status = 'dead'",
            uuid_of(endpoint),
        )
        return f"{rows[0]['dead_reason']}: {rows[0]['last_error']}" if rows else None

    return await eventually(why, WITHIN, "the delivery is dead") or ""


async def test_an_address_that_relay_listens_on_is_refused_even_inside_an_allowed_range(
    installation: Installation,
) -> None:
    own = own_address()
    if own is None:
        pytest.skip("this machine has no address but loopback")
    installation.environment |= STRICT | {
        "RELAY_METRICS_BIND": f"{own}:{free_port()}",
        "RELAY_EGRESS_ALLOW_CIDRS": f"{own}/32",
    }
    bind = installation.environment["RELAY_METRICS_BIND"]
    gateway = installation.gateway()
    dispatcher = installation.dispatcher(metrics_bind=bind)
    assert dispatcher.url == f"http://{bind}", "it listens there"
    assert refusal(gateway, f"http://{bind}/metrics") == (422, "own_address")
    assert refusal(gateway, f"http://[::ffff:{own}]:9/") == (422, "own_address"), "nor at any other port of it"
    endpoint = add_endpoint(gateway, HARMLESS, event_types=["ring.closed"])
    assert (await died(installation, endpoint["id"], f"http://{bind}/metrics")).startswith(
        "refused: refused_address: the address is Relay's own"
    )


async def test_relays_own_port_is_refused_where_loopback_is_opened_for_others(
    installation: Installation, receiver: Receiver
) -> None:
    bind = f"127.0.0.1:{free_port()}"
    installation.environment |= STRICT | {"RELAY_BIND": bind, "RELAY_EGRESS_ALLOW_CIDRS": "127.0.0.0/8"}
    gateway = installation.gateway(bind=bind)
    installation.dispatcher()
    beside = add_endpoint(gateway, receiver.url("/ok"), event_types=["ring.closed"])
    for host in ("127.0.0.1", "127.0.0.2", "localhost", "[::ffff:127.0.0.1]"):
        assert refusal(gateway, f"http://{host}:{bind.rpartition(':')[2]}/v1/events") == (422, "own_address"), host
    endpoint = add_endpoint(gateway, HARMLESS, event_types=["ring.closed"])
    assert (await died(installation, endpoint["id"], f"http://{bind}/v1/events")).startswith(
        "refused: refused_address: the address is Relay's own"
    )
    receiver.wait_for(1, WITHIN)
    assert await installation.value("select count(*) from journal") == 1, "nothing came round"
    assert beside["id"] != endpoint["id"]


async def test_a_ring_of_relays_ends_by_the_count_of_hops(installation: Installation) -> None:
    """On a development machine Relay and its receivers share an address, and may be each other's."""
    gateway = installation.gateway()
    installation.dispatcher()
    add_endpoint(gateway, f"{gateway.url}/v1/events", event_types=["ring.closed"])
    assert post(gateway, b'{"n":1}', relay_event_type="ring.closed").status_code == 202

    async def ended() -> bool:
        return bool(await installation.fetch("select 1 from deliveries where status = 'dead'"))

    await eventually(ended, WITHIN, "the last of them is refused")
    ((events, delivered, dead),) = await installation.fetch(
        "select (select count(*) from journal), (select count(*) from deliveries where status = 'delivered'),"
        " (select array_agg(dead_reason || ': ' || last_error) from deliveries where status = 'dead')"
    )
    assert (events, delivered) == (LONGEST_WAY + 1, LONGEST_WAY)
    (last,) = dead
    assert last.startswith("permanent_failure: 400 (rejected): {")
