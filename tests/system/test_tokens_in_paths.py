"""Case C169: a chat's token is in the path of the url that is called, and nowhere else, whatever goes wrong with it.

The platform is a host that is dead, one that speaks no TLS, one that says nothing, and one that answers 404 with the
path of the request in its page. Then everything that anybody can read is searched: the streams of both processes at
`debug`, the rows of attempts, the API, the metrics, the commands' output and the spans, each byte that was sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from tests.support.collector import Collector
from tests.support.installation import UNLIMITED, Installation, Service, api, eventually, free_port, metrics, post
from tests.support.scripted_server import Peer, ScriptedServer

WITHIN = 60.0
BOT = "123456:AAtesttesttesttesttesttesttesttest"
HOOK = "tokenTOKENtokenTOKENtokenTOKENtokenTOKENtokenTOKENtokenTOKENtokenTOKEN"
SECRETS = (BOT.partition(":")[2], HOOK, "s3cret", "hunter2")
BOTFATHER = (
    "Done! Congratulations on your new bot. You will find it at t.me/relay_bot.\n\nUse this token to access the HTTP"
    f" API:\n{BOT}\nKeep your token secure and store it safely, it can be used by anyone to control your bot."
)
SAYS_WHY = {"dead": "connect_refused", "no tls": "tls_failed", "silent": "total_timeout", "404": "404"}


def silent(peer: Peer) -> None:
    peer.wait_for_close()


def not_tls(peer: Peer) -> None:
    peer.socket.recv(100)
    peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def not_found(peer: Peer) -> None:
    while (received := peer.read_request()) is not None:
        peer.answer(404, f"not found: {received.line}".encode())


@contextmanager
def dead() -> Iterator[str]:
    yield f"http://127.0.0.1:{free_port()}"


@contextmanager
def serving(script: Callable[[Peer], None], scheme: str = "http") -> Iterator[str]:
    with ScriptedServer(script) as server:
        yield f"{scheme}://127.0.0.1:{server.port}"


PLATFORMS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "dead": dead,
    "no tls": partial(serving, not_tls, "https"),
    "silent": partial(serving, silent),
    "404": partial(serving, not_found),
}


class Reader:
    """Keeps every answer of the API."""

    def __init__(self, gateway: Service) -> None:
        self.gateway = gateway
        self.answers: list[str] = []

    def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        with api(self.gateway) as client:
            answer = client.request(method, path, json=body)
        shown_once = str(answer.json().get("secret")) if answer.status_code == 201 else "-"
        self.answers.append(f"{answer.status_code} {answer.headers} {answer.text.replace(shown_once, '')}")
        return answer

    def make(self, url: str, secret: str) -> httpx.Response:
        transport = url.partition(":")[0]
        fields = {
            "url": url,
            "secret": secret,
            "event_types": ["secret.used"],
            "timeout_seconds": 1.0,
            "retry": {"max_attempts": 1},
        }
        return self.call("POST", "/v1/endpoints", {**fields, **UNLIMITED, "transport": transport})


@pytest.mark.parametrize("trouble", PLATFORMS)
async def test_a_token_in_a_path_is_nowhere_else(installation: Installation, trouble: str) -> None:
    with PLATFORMS[trouble]() as platform, Collector() as collector:
        installation.environment |= {
            "RELAY_OTLP_ENDPOINT": collector.url,
            "RELAY_LOG_LEVEL": "debug",
            "RELAY_TELEGRAM_URL": platform,
            "RELAY_DISCORD_URL": f"{platform}/api",
        }
        gateway, dispatcher = installation.gateway(), installation.dispatcher()
        reader = Reader(gateway)
        endpoints = [reader.make("telegram://42", BOT).json(), reader.make("discord://123456789012345678", HOOK).json()]
        pasted(reader)
        receipt = post(gateway, b'{"a": 1}', relay_event_type="secret.used").json()
        await buried(installation, len(receipt["deliveries"]))
        read(reader, receipt, endpoints)
        installation.environment["RELAY_URL"] = gateway.url
        printed = [installation.run(*words) for words in (("dlq", "list"), ("endpoints", "list"), ("config",))]
        numbers = f"{metrics(gateway)} {metrics(dispatcher)}"
        assert gateway.stop() == dispatcher.stop() == 0
        everything = {
            "streams": "".join(each.log.read_text() + json.dumps(each.started) for each in installation.services),
            "rows": str(await installation.fetch("select t::text from delivery_attempts t")),
            "answers": "\n".join(reader.answers),
            "commands": "".join(done.stdout + done.stderr for done in printed),
            "metrics": numbers,
            "spans": b"".join(collector.bodies).decode(errors="replace"),
        }
    assert {where: [each for each in SECRETS if each in text] for where, text in everything.items()} == {
        where: [] for where in everything
    }
    searched = {where: SAYS_WHY[trouble] in everything[where] for where in ("streams", "rows", "answers", "spans")}
    assert searched == dict.fromkeys(searched, True)


def pasted(reader: Reader) -> None:
    """What people paste where a token belongs, or instead of an address."""
    urls = [
        f"https://api.telegram.org/bot{BOT}/sendMessage",
        f"https://discord.com/api/webhooks/123456789012345678/{HOOK}",
        "https://user:hunter2@example.test/?token=s3cret",
    ]
    refused = [reader.make("telegram://42", BOTFATHER), reader.make("discord://123456789012345678", urls[1])]
    refused += [reader.call("POST", "/v1/endpoints", {"url": url}) for url in urls]
    assert [answer.status_code for answer in refused] == [422] * len(refused)


async def buried(installation: Installation, deliveries: int) -> None:
    async def done() -> bool:
        return bool(await installation.value("select count(*) from deliveries where status = 'dead'") == deliveries)

    await eventually(done, WITHIN, "every delivery is dead")


def read(reader: Reader, receipt: Any, endpoints: list[Any]) -> None:
    for path in (f"/v1/receipts/{receipt['receipt_id']}", "/v1/endpoints", "/v1/dead-letters", "/v1/audit", "/metrics"):
        reader.call("GET", path)
    for each in receipt["deliveries"]:
        reader.call("GET", f"/v1/deliveries/{each['id']}")
    for endpoint in endpoints:
        reader.call("GET", f"/v1/endpoints/{endpoint['id']}")
