"""Two shards: two databases, each with a gateway and a dispatcher of its own, that share nothing but the keys of their
secrets. What is one's is not the other's, and a tenant is moved between them as `docs/scaling.md` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from relay.store.vault import new_key
from tests.support.database import Server
from tests.support.installation import TRUSTING_NOBODY, UNLIMITED, Installation, Service
from tests.support.moving import COPIED, TENANT, copy_tenant, leave_tenant
from tests.support.receiver import Receiver
from tests.support.verified import assert_right
from tests.system.conftest import ended, fresh_database

ACME, GLOBEX = TENANT, "acct_globex"
CLOSED_SECONDS = 30.0


@dataclass(slots=True)
class Shard:
    """One shard, and the key of who operates it."""

    installation: Installation
    gateway: Service
    operator: str = ""

    def call(self, method: str, path: str, key: str | None, body: object = None, **headers: str) -> httpx.Response:
        """One request to its gateway; underscores in names of headers stand for dashes."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            sent["authorization"] = f"Bearer {key}"
        url = f"{self.gateway.url}/v1{path}"
        return httpx.request(
            method, url, json=body, headers=sent, verify=TRUSTING_NOBODY, trust_env=False, timeout=30.0
        )

    def make(self, path: str, key: str | None, body: object, **headers: str) -> Any:  # an answer of any shape
        """Something new."""
        answer = self.call("POST", path, key, body, **headers)
        assert answer.is_success, answer.text
        return answer.json()

    def settle(self, tenant: str, url: str) -> tuple[str, str]:
        """Make a tenant with an endpoint; answers its key's secret and its endpoint's."""
        self.make("/tenants", self.operator, {"id": tenant, "name": tenant})
        key = self.make("/keys", self.operator, {"name": "own", "scopes": ["admin"]}, Relay_Tenant=tenant)["secret"]
        return key, self.make("/endpoints", key, {"url": url, "name": "ledger", **UNLIMITED})["secret"]

    def send(self, key: str, name: str) -> httpx.Response:
        """One event under that name."""
        return self.call("POST", "/events", key, {"type": "order.paid", "name": name}, Idempotency_Key=name)

    @property
    def dsn(self) -> str:
        assert self.installation.dsn is not None
        return self.installation.dsn


@pytest.fixture
def shards(
    database_server: Server, template_database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Shard, Shard]]:
    """Both, running; each has an operator."""
    keys = {"RELAY_SECRET_KEYS": new_key().expose()}
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with (
        fresh_database(database_server, template_database) as first,
        fresh_database(database_server, template_database) as second,
    ):
        for one in ended(Installation(tmp_path / "one", first, keys), request):
            for two in ended(Installation(tmp_path / "two", second, keys), request):
                made = Shard(one, one.gateway()), Shard(two, two.gateway())
                for each in made:
                    each.installation.dispatcher()
                    assert each.gateway.started
                    each.operator = each.make("/keys", None, {"name": "ops", "scopes": ["operator"]})["secret"]
                yield made


async def test_what_is_one_shards_is_not_the_others(shards: tuple[Shard, Shard], receiver: Receiver) -> None:
    one, two = shards
    acme, _ = one.settle(ACME, receiver.url("/ok/acme"))
    globex, _ = two.settle(GLOBEX, receiver.url("/ok/globex"))

    first, second = one.send(acme, "same"), two.send(globex, "same")

    assert (first.status_code, second.status_code) == (202, 202)
    assert (one.send(globex, "other").status_code, two.send(acme, "other").status_code) == (401, 401)
    for shard in shards:
        await shard.installation.all_closed(1, CLOSED_SECONDS)
    receipt = first.json()["receipt_id"]
    assert one.call("GET", f"/receipts/{receipt}", acme).json()["outcome"] == "delivered"
    assert two.call("GET", f"/receipts/{receipt}", two.operator, Relay_Tenant=GLOBEX).status_code == 404
    assert len(receiver.received()) == 2


async def test_a_tenant_is_moved_with_its_keys_and_secrets_and_both_shards_verify(
    shards: tuple[Shard, Shard], receiver: Receiver
) -> None:
    one, two = shards
    acme, secret = one.settle(ACME, receiver.url("/verify/acme"))
    receiver.trust(secret, "acme")
    globex, _ = two.settle(GLOBEX, receiver.url("/ok"))
    before = one.send(acme, "before").json()["receipt_id"]
    await one.installation.all_closed(1, CLOSED_SECONDS)

    assert copy_tenant(one.dsn, two.dsn) == COPIED
    assert leave_tenant(one.dsn) == ""

    assert one.send(acme, "after").status_code == 401
    moved = two.send(acme, "after")
    assert moved.status_code == 202, moved.text
    two.send(globex, "theirs")
    await two.installation.all_closed(2, CLOSED_SECONDS)
    # the receiver believes the signature of both shards, and each position is its own database's
    assert two.call("GET", f"/receipts/{moved.json()['receipt_id']}", acme).json()["outcome"] == "delivered"
    assert one.call("GET", f"/receipts/{before}", one.operator, Relay_Tenant=ACME).json()["outcome"] == "delivered"
    for shard in shards:
        await assert_right(shard.dsn)


async def test_a_tenant_that_is_still_owed_something_does_not_move(
    shards: tuple[Shard, Shard], receiver: Receiver
) -> None:
    one, two = shards
    acme, _ = one.settle(ACME, receiver.url("/always500"))
    assert one.send(acme, "owed").status_code == 202

    assert "still owed deliveries" in copy_tenant(one.dsn, two.dsn)
    assert "still owed deliveries" in leave_tenant(one.dsn)

    assert (one.send(acme, "more").status_code, two.send(acme, "more").status_code) == (202, 401)


async def test_a_tenant_whose_source_has_a_name_that_is_taken_there_does_not_move(
    shards: tuple[Shard, Shard], receiver: Receiver
) -> None:
    """A source's name is unique in an installation; each shard is one."""
    one, two = shards
    acme, _ = one.settle(ACME, receiver.url())
    globex, _ = two.settle(GLOBEX, receiver.url())
    for shard, key in ((one, acme), (two, globex)):
        shard.make("/sources", key, {"name": "billing", "auth": ["hmac"]})

    assert "sources_name" in copy_tenant(one.dsn, two.dsn)

    assert one.send(acme, "stays").status_code == 202
    await one.installation.all_closed(1, CLOSED_SECONDS)
    assert two.call("GET", "/tenants", two.operator).text.count(ACME) == 0
