"""Nothing that is secret is in any output: logs at debug, attempts, answers of the API, metrics, commands, spans.

One installation meets everything that goes wrong with a request, with secrets of every kind, and a receiver that prints
back all that it was sent. Then everything that anybody can read is searched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.collector import Collector
from tests.support.installation import (
    UNLIMITED,
    Installation,
    Service,
    api,
    eventually,
    free_port,
    metrics,
    post,
)
from tests.support.receiver import Receiver
from tests.support.scripted_server import Peer, ScriptedServer

WITHIN = 60.0

SIGNING = "whsec_c2lnbmluZy1zZWNyZXQtb2YtdGhlLXRlc3RzLTEyMzQ1Ng=="
BOT_TOKEN = "1234567890:AAfakeFAKEfakeFAKEfakeFAKEfakeFAKE12"
WEBHOOK_TOKEN = "discordDISCORDdiscordDISCORDdiscordDISCORDdiscordDISCORDdiscordDISCO"
BEARER = "bearer-of-the-header"
URL_TOKEN = "token-of-the-url"
USERINFO = "password-before-the-at"
KEPT = {"Authorization": f"Bearer {BEARER}", "X-Api-Key": f"{BEARER}-too"}


def echo(peer: Peer) -> None:
    """A receiver whose error page shows the request."""
    while (received := peer.read_request()) is not None:
        told = "\n".join([received.line, *(f"{name}: {value}" for name, value in received.headers)])
        peer.answer(500, told.encode())


def not_tls(peer: Peer) -> None:
    peer.socket.recv(100)
    peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")


class Reader:
    """A client of the API that keeps every answer, without the secrets that an answer is there to show, once."""

    def __init__(self, client: httpx.Client) -> None:
        self.answers: list[str] = []
        self.shown_once: list[str] = []
        self.client = client

    def call(self, method: str, path: str, body: Any = None, expect: int = 200) -> Any:
        answer = self.client.request(method, path, json=body)
        assert answer.status_code == expect, answer.text
        text = answer.text
        if expect in (200, 201) and method == "POST" and isinstance(secret := answer.json().get("secret"), str):
            self.shown_once.append(secret)
            text = text.replace(secret, "")
        self.answers.append(f"{method} {path}: {answer.headers} {text}")
        return answer.json() if "json" in answer.headers.get("content-type", "") else answer.text

    def pages(self, path: str) -> list[Any]:
        return list(self.call("GET", path)["data"])


@contextmanager
def reading(gateway: Service) -> Iterator[Reader]:
    with api(gateway) as client:
        yield Reader(client)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture
def echoing() -> Iterator[ScriptedServer]:
    with ScriptedServer(echo) as running:
        yield running


async def test_no_secret_is_in_anything_that_can_be_read(
    installation: Installation, receiver: Receiver, echoing: ScriptedServer, collector: Collector
) -> None:
    installation.environment |= {
        "RELAY_OTLP_ENDPOINT": collector.url,
        "RELAY_LOG_LEVEL": "debug",
        "RELAY_RETRY_MAX_ATTEMPTS": "2",
        "RELAY_TELEGRAM_URL": echoing.url(""),
        "RELAY_DISCORD_URL": echoing.url("/api"),
        "RELAY_API_KEY": "key-of-a-client",
    }
    gateway = installation.gateway()
    dispatcher = installation.dispatcher()
    with reading(gateway) as reader, ScriptedServer(not_tls) as plain:
        endpoints = [make(reader, url) for url in urls(receiver, echoing, plain)]
        endpoints += make_chats(reader)
        forbidden = make(reader, f"http://localhost/hook?token={URL_TOKEN}")
        await installation.fetch(
            "update endpoints set url = $2 where id = $1::uuid",
            forbidden["id"].removeprefix("ep_"),
            f"http://169.254.169.254/hook?token={URL_TOKEN}",
        )
        provoke(reader, endpoints[0])
        reader.call("POST", f"/v1/endpoints/{endpoints[0]['id']}/rotate-secret")

        receipt = post(gateway, b"{}", relay_event_type="secret.used").json()
        await settled(installation, len(endpoints) + 1)
        read_everything(reader, receipt, [*endpoints, forbidden])
    installation.environment["RELAY_URL"] = gateway.url
    printed = [installation.run(*words) for words in [*COMMANDS, ("deliveries", endpoints[0]["name"])]]
    assert [done.stderr for done in printed if done.returncode] == []
    numbers = f"{metrics(gateway)} {metrics(dispatcher)}"
    assert gateway.stop() == dispatcher.stop() == 0

    everything = {
        "logs": "".join(service.log.read_text() + json.dumps(service.started) for service in installation.services),
        "answers": without_configured_urls("\n".join(reader.answers)),
        "commands": without_configured_urls("\n".join(done.stdout + done.stderr for done in printed)),
        "metrics": numbers,
        "spans": b"".join(collector.bodies).decode(errors="replace"),
        "rows": await rows(installation),
    }
    found = {where: secrets_in(text, installation, reader) for where, text in everything.items()}
    assert found == {where: [] for where in everything}
    missed = {where: [each for each in words if each not in everything[where]] for where, words in EVIDENCE.items()}
    assert missed == {where: [] for where in EVIDENCE}


SETTLED = "select count(*) from deliveries where status in ('dead', 'delivered')"

ROWS = [
    "select t::text from delivery_attempts t",
    "select t::text from deliveries t",
    "select t::text from receipts t",
    "select t::text from secrets t",
    "select t::text from endpoint_state t",
]

COMMANDS = [("config",), ("endpoints", "list"), ("dlq", "list")]

EVIDENCE = {
    "logs": [
        "delivery_acked",
        "delivery_dead",
        "dns_failed",
        "connect_refused",
        "tls_failed",
        "refused_address",
        "reset",
    ],
    "answers": ["token=***", "Relay-Delivery-Id", '"***"', "telegram"],
    "commands": ["RELAY_SECRET_KEYS", '"***"', "token=***", "Authorization", "dns_failed"],
    "metrics": ["relay_delivery_attempts_total"],
    "spans": ["token=***", "dns_failed", "tls_failed", "refused_address", "/bot***/sendMessage", "/webhooks/"],
    "rows": ["token=***", "Relay-Delivery-Id", "refused_address"],
}
"""What shows that the search had something to search in: each way to fail was met, and the receiver did print back."""


def urls(receiver: Receiver, echoing: ScriptedServer, plain: ScriptedServer) -> list[str]:
    """Where requests end well, badly, and in every way on the way."""
    token = f"token={URL_TOKEN}"
    return [
        echoing.url(f"/hook?{token}"),
        receiver.url(f"/ok?{token}"),
        receiver.url(f"/hang?{token}"),
        receiver.url(f"/reset?at=start&{token}"),
        receiver.url(f"/redirect?{token}"),
        f"http://127.0.0.1:{free_port()}/hook?{token}",
        f"http://nowhere.invalid/hook?{token}",
        f"https://127.0.0.1:{plain.port}/hook?{token}",
    ]


def make(reader: Reader, url: str) -> dict[str, Any]:
    fields = {"url": url, "secret": SIGNING, "headers": KEPT, "event_types": ["secret.used"], "timeout_seconds": 1.5}
    return dict(reader.call("POST", "/v1/endpoints", fields | UNLIMITED, expect=201))


def make_chats(reader: Reader) -> list[dict[str, Any]]:
    chats = {"telegram://-1001234567890": BOT_TOKEN, "discord://123456789012345678": WEBHOOK_TOKEN}
    wanted = {"event_types": ["secret.used"], "retry": {"max_attempts": 2}}
    return [
        dict(
            reader.call(
                "POST",
                "/v1/endpoints",
                {"url": url, "transport": url.partition(":")[0], "secret": token, **wanted},
                expect=201,
            )
        )
        for url, token in chats.items()
    ]


def provoke(reader: Reader, endpoint: dict[str, Any]) -> None:
    """Everything that is refused with a secret in it."""
    url = endpoint["url"]
    refused: list[dict[str, Any]] = [
        {"url": f"http://user:{USERINFO}@example.test/"},
        {"url": f"http://example.test/#{URL_TOKEN}"},
        {"url": url, "secret": "\x7f" + SIGNING},
        {"url": url, "secret": [SIGNING]},
        {"url": url, "signature": "standard", "secret": BEARER},
        {"url": url, "headers": {"Authorization": f"{BEARER}\r\nHost: x"}},
        {"url": url, "headers": {"Relay-Signature": BEARER}},
        {"url": url, "headers": {"X-Key": [BEARER]}},
        {"url": url, "headers": BEARER},
        {"url": "telegram://-1", "transport": "telegram", "secret": f"/{BOT_TOKEN}"},
    ]
    for body in refused:
        reader.call("POST", "/v1/endpoints", body, expect=422)
    reader.call("PATCH", f"/v1/endpoints/{endpoint['id']}", refused[0], expect=422)
    reader.call("PATCH", f"/v1/endpoints/{endpoint['id']}", {"secret": SIGNING}, expect=422)


async def settled(installation: Installation, deliveries: int) -> None:
    """Return once nothing is owed any more."""

    async def done() -> bool:
        return bool(await installation.value(SETTLED) == deliveries)

    await eventually(done, WITHIN, f"{deliveries} deliveries are delivered or dead")


def read_everything(reader: Reader, receipt: dict[str, Any], endpoints: list[dict[str, Any]]) -> None:
    for path in ("/healthz", "/readyz", "/openapi.json", "/docs", "/metrics", f"/v1/receipts/{receipt['receipt_id']}"):
        reader.call("GET", path)
    for path in ("/v1/endpoints", "/v1/receipts", "/v1/dead-letters"):
        reader.pages(path)
    for endpoint in endpoints:
        reader.call("GET", f"/v1/endpoints/{endpoint['id']}")
        for delivery in reader.pages(f"/v1/endpoints/{endpoint['id']}/deliveries"):
            reader.call("GET", f"/v1/deliveries/{delivery['id']}")


async def rows(installation: Installation) -> str:
    """All rows of what is recorded, and the stored secrets as they are stored. An endpoint's own row is what its tenant
    wrote."""
    return "\n".join([str(await installation.fetch(sql)) for sql in ROWS])


def without_configured_urls(text: str) -> str:
    """An endpoint's own url is shown in full to who may read the endpoint; it is nowhere else."""
    return re.sub(rf'("url": ?"[^"]*\?[^"]*){URL_TOKEN}"', r'\1"', text)


def secrets_in(text: str, installation: Installation, reader: Reader) -> list[str]:
    assert installation.dsn is not None
    secrets = [SIGNING, BEARER, URL_TOKEN, USERINFO, BOT_TOKEN, BOT_TOKEN.partition(":")[2], WEBHOOK_TOKEN]
    secrets += [*reader.shown_once, installation.environment["RELAY_API_KEY"]]
    secrets += installation.environment["RELAY_SECRET_KEYS"].split(",")
    secrets += [urlsplit(installation.dsn).password or ""]
    assert all(secrets)
    return [secret for secret in secrets if secret in text]
