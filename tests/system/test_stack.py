"""Claims about what the commands of ``docker-compose.yml`` do, run in its order against a real PostgreSQL."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx
import pytest

from tests.support.containers import compose
from tests.support.database import Server
from tests.support.installation import TRUSTING_NOBODY, Installation, eventually
from tests.support.link import Link
from tests.support.postgres import throwaway_server
from tests.support.stack import Stack, is_ready, make_role
from tests.system.conftest import ended

DELIVERED_SECONDS = 30.0


@pytest.fixture(scope="module")
def container() -> Iterator[Server]:
    """A server as the image has it when its volume is new: with a superuser, and nothing of Relay's yet."""
    with throwaway_server() as server:
        yield Server(Server(server.superuser_dsn).dsn("postgres"))


@pytest.fixture
def relays_database(container: Server) -> Iterator[str]:
    """The address of the database that the script of the compose file makes, for its role."""
    _forget(container)
    make_role(container.superuser_dsn)
    parts = urlsplit(container.dsn("relay"))
    password = compose()["services"]["postgres"]["environment"]["POSTGRES_RELAY_PASSWORD"]
    yield urlunsplit(parts._replace(netloc=f"relay:{password}@"))
    _forget(container)


def _forget(container: Server) -> None:
    asyncio.run(container.run("drop database if exists relay with (force)"))
    asyncio.run(container.run("drop role if exists relay"))


@pytest.fixture
async def stack(relays_database: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stack]:
    """The stack, of which nothing runs yet but the database."""
    async with Link(relays_database) as link:
        for installation in ended(Installation(tmp_path, None), request):
            yield Stack(installation, link.dsn)


@dataclass(frozen=True, slots=True)
class _Caller:
    """Whoever calls the gateway with the key that `init` has put into the volume."""

    stack: Stack

    async def call(self, method: str, path: str, body: object = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.stack.file('api.key')}"}
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.stack.ports['8080']}", verify=TRUSTING_NOBODY, trust_env=False, timeout=30
        ) as client:
            return await client.request(method, path, json=body, headers=headers)


async def test_the_whole_stack_starts_in_its_order_and_delivers_to_its_receiver(stack: Stack) -> None:
    assert await asyncio.to_thread(is_ready, int(stack.ports["5432"]))
    await stack.complete("init")
    for name in ("testkit", "dispatcher", "gateway"):
        stack.start(name)
    for name in ("testkit", "dispatcher", "gateway"):
        await stack.healthy(name)
    caller = _Caller(stack)

    made = await caller.call("POST", "/v1/endpoints", {"url": stack.here("http://testkit:9099/ok"), "name": "demo"})
    assert made.status_code == 201, made.text
    posted = await caller.call("POST", "/v1/events", {"type": "order.paid"})
    assert posted.status_code == 202, posted.text
    receipt = posted.json()["receipt_id"]
    closed = await caller.call("GET", f"/v1/receipts/{receipt}/wait?timeout={DELIVERED_SECONDS:g}")

    assert (closed.json()["state"], closed.json()["outcome"]) == ("closed", "delivered")


async def test_the_stack_accepts_nobody_without_the_credential(stack: Stack) -> None:
    await stack.complete("init")
    stack.start("gateway")
    async with httpx.AsyncClient(verify=TRUSTING_NOBODY, trust_env=False, timeout=30) as client:

        async def refused() -> bool:
            try:
                answer = await client.post(f"http://127.0.0.1:{stack.ports['8080']}/v1/events", json={"type": "a"})
            except httpx.ConnectError:
                return False
            assert answer.status_code == 401, answer.text
            return True

        await eventually(refused, DELIVERED_SECONDS, "the gateway answers")


async def test_the_step_that_prepares_may_run_again_and_changes_nothing(stack: Stack) -> None:
    said = await stack.complete("init")
    kept = {name: stack.file(name) for name in ("api.key", "secret.key")}
    said += await stack.complete("init")

    assert {name: stack.file(name) for name in kept} == kept
    assert [text for text in kept.values() if text in said] == []


async def test_the_keys_are_for_relays_user_alone(stack: Stack) -> None:
    await stack.complete("init")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in stack.keys.iterdir()}
    assert modes == {"api.key": 0o600, "secret.key": 0o600}


async def test_the_role_owns_its_database_and_is_no_superuser(stack: Stack, relays_database: str) -> None:
    await stack.complete("init")
    rows = await Installation(stack.keys, relays_database).fetch(
        "select rolsuper, rolcreaterole, rolcreatedb, pg_has_role('relay', 'pg_monitor', 'member') as monitors,"
        " (select datdba = pg_roles.oid from pg_database where datname = 'relay') as owns"
        " from pg_roles where rolname = 'relay'"
    )
    assert [tuple(row) for row in rows] == [(False, False, False, True, True)]
