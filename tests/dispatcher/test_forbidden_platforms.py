"""Every way to write an address that must not be reached, as the address of a chat platform (C26 to C32, C41, C45).

What counts is whether anybody connected: a trap listens on all addresses of this machine at one port. Plain http and
any port are taken, so nothing but the host stands between a platform's base address and the trap. Each endpoint's
number says which spelling its platform has.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from uuid import UUID

import pytest

from relay.api import ApiDeps
from relay.domain import ids
from relay.domain.egress import EgressPolicy
from relay.domain.endpoint import Destination
from relay.domain.telemetry import AttemptsRecorded, DeadLettered
from relay.transports.chat import Platforms
from relay.transports.hiding import STARS
from tests.api.world import ENDPOINTS, World
from tests.support.dispatching import OPEN, House
from tests.support.forbidden import SPELLINGS, Trap, own_address

STRICT = EgressPolicy(require_https=False, allowed_ports=None)
TOKENS = {"telegram": "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw", "discord": "aB3-_xY0aB3-_xY0aB3-_xY0"}
SEND_WITHIN = 30.0

ATTEMPTS = """
    select e.url, d.generation, d.dead_reason::text as dead, a.reason, a.error_class, a.status_code, a.display_url
    from delivery_attempts a join deliveries d on d.id = a.delivery_id join endpoints e on e.id = d.endpoint_id
"""


@pytest.fixture
def trap() -> Iterator[Trap]:
    with Trap() as running:
        yield running


@pytest.fixture
async def world(database_dsn: str) -> AsyncIterator[World]:
    async with World.over(database_dsn) as made:
        deps: ApiDeps = made.api.state.deps
        made.api.state.deps = replace(deps, egress=STRICT)
        yield made


def hosts() -> list[str]:
    """Every spelling, and the names and addresses that only this machine has."""
    own = own_address()
    return [*SPELLINGS, socket.gethostname()] + ([own, f"[::ffff:{own}]"] if own else [])


def leading_to(trap: Trap, host: str) -> Platforms:
    """Both platforms, said to be there."""
    base = trap.url(host).removesuffix("/hook")
    return Platforms(telegram=base, discord=f"{base}/api")


def by_number(trap: Trap, destination: Destination) -> Platforms:
    """The platforms of a destination: its chat's number is that of the spelling, from 1 on."""
    return leading_to(trap, hosts()[int(destination.url.rpartition("/")[2]) - 1])


async def chats(house: House, count: int) -> list[UUID]:
    """A chat at each platform for each number up to this one, paced like a server."""
    return [
        await house.chat(f"{transport}://{number}", secret=token)
        for number in range(1, count + 1)
        for transport, token in TOKENS.items()
    ]


def dead(house: House) -> int:
    return sum(each.count for each in house.heard(DeadLettered))


@pytest.mark.parametrize("transport", TOKENS)
async def test_no_spelling_of_a_platforms_address_lets_a_chat_be_created_or_changed(
    world: World, trap: Trap, transport: str
) -> None:
    fields = {"url": f"{transport}://1", "secret": TOKENS[transport]}
    existing = await world.create(**fields)
    deps: ApiDeps = world.api.state.deps
    for host in SPELLINGS:
        world.api.state.deps = replace(deps, platforms=leading_to(trap, host))
        for method, path, body in (
            ("POST", ENDPOINTS, fields),
            ("PATCH", f"{ENDPOINTS}/{existing['id']}", {"url": f"{transport}://2"}),
        ):
            reply = await world.send(method, path, body)
            assert (reply.status, reply.code) == (422, "url_refused"), (method, host)
            assert TOKENS[transport].encode() not in reply.body
    (kept,) = await world.sql("select url from endpoints")
    assert (kept["url"], trap.connections) == (f"{transport}://1", 0)


async def test_no_spelling_of_a_platforms_address_is_dialled_by_a_send_a_replay_or_a_test(
    world: World, house: House, trap: Trap
) -> None:
    """Each of them is refused on its own, and none is tried again by itself."""
    endpoints = await chats(house, len(hosts()))
    async with house.dispatching(policy=STRICT, platforms=lambda destination: by_number(trap, destination)):
        receipt = await house.event(*endpoints)
        await house.until(lambda: dead(house) == len(endpoints), SEND_WITHIN)
        for delivery in (await house.receipt(receipt)).deliveries:
            reply = await world.send("POST", f"/v1/deliveries/{delivery.id}/redrive", {})
            assert reply.status == 202, reply
        await house.until(lambda: dead(house) == 2 * len(endpoints), SEND_WITHIN)
        for endpoint in endpoints:
            reply = await world.send("POST", f"{ENDPOINTS}/{ids.write(ids.ENDPOINT, endpoint)}/test")
            assert reply.status == 202, reply
        await house.until(lambda: dead(house) == 3 * len(endpoints), SEND_WITHIN)
    assert trap.connections == 0
    rows = await world.sql(ATTEMPTS)
    assert len(rows) == 3 * len(endpoints)
    assert {(row["dead"], row["status_code"]) for row in rows} == {("refused", None)}
    assert {row["error_class"] for row in rows} == {"refused_url", "refused_address"}
    assert all(STARS in row["display_url"] for row in rows)


async def test_the_trap_is_where_a_platforms_address_leads(house: House, trap: Trap) -> None:
    """Or nothing in this module would prove anything: without the policy a message of either kind comes here."""
    endpoints = await chats(house, 1)
    async with house.dispatching(policy=OPEN, platforms=leading_to(trap, "127.0.0.1")):
        await house.event(*endpoints)
        await house.until(lambda: sum(len(each.attempts) for each in house.heard(AttemptsRecorded)) >= 2)
    assert trap.connections >= 2
