"""Chats as a person sets them up: `relay up --dev`, its receiver playing both services, and the commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.installation import LOOPBACK, Installation, Service, api, eventually, free_port
from tests.system.conftest import ended

WITHIN = 60.0
BOT_SECRET = "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
NEW_BOT_SECRET = "BBHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
HOOK = "aB3-_xY0aB3-_xY0aB3-_xY0"
TOKENS = (BOT_SECRET, NEW_BOT_SECRET, HOOK)
PINGS = {"title": "@everyone", "body": "@here <@&123456789012345678> <@123456789012345678> [](@everyone)"}


@dataclass(frozen=True, slots=True)
class Desk:
    """A running Relay and the commands of a person who sits at it."""

    installation: Installation
    up: Service
    receiver: str

    def relay(self, *words: str) -> Any:
        """Run a command that must succeed; answers its JSON. No token is in what it prints."""
        done = self.installation.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        assert not [token for token in TOKENS if token in done.stderr]
        return json.loads(done.stdout)

    def add(self, url: str, token: str, *words: str) -> Any:
        """Add a chat endpoint; its token comes from a file."""
        return self.relay("endpoints", "add", url, "--secret-file", str(self.keep(token)), *words)

    def keep(self, token: str) -> Path:
        """A file with a token, as an editor leaves it."""
        file = self.installation.folder / "token.txt"
        file.write_text(f"{token}\n")
        return file

    def page(self, url: str) -> str:
        """What stands there."""
        return httpx.get(url, trust_env=False).text

    def said(self, path: str) -> list[Any]:
        """The messages that stand at the receiver."""
        data: list[Any] = httpx.get(f"{self.receiver}{path}", trust_env=False).json()["data"]
        return data

    def tell(self, path: str) -> None:
        """Have a chat misbehave."""
        assert httpx.post(f"{self.receiver}{path}", trust_env=False).status_code == 204

    async def receipt(self, receipt: str, outcome: str) -> Any:
        """The receipt, once it is closed so."""

        async def there() -> Any:
            with api(self.up) as client:
                found = client.get(f"/v1/receipts/{receipt}").json()
            return found if found["outcome"] == outcome else None

        return await eventually(there, WITHIN, f"{receipt} is {outcome}")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Desk]:
    receiver = f"http://{LOOPBACK}:{free_port()}"
    settings = {
        "RELAY_TELEGRAM_URL": receiver,
        "RELAY_DISCORD_URL": f"{receiver}/api",
        "RELAY_LOG_LEVEL": "debug",
    }
    for installation in ended(Installation(tmp_path_factory.mktemp("chats"), None, settings), request):
        up = installation.up("--dev", testkit_bind=receiver.removeprefix("http://"))
        installation.environment["RELAY_URL"] = up.url
        yield Desk(installation, up, receiver)


async def test_an_event_reaches_both_chats_and_its_receipt_closes(desk: Desk) -> None:
    group = desk.add("telegram://-1001", f"110201543:{BOT_SECRET}", "--name", "ops-chat", "--type", "alert.*")
    channel = desk.add("discord://4711", HOOK, "--name", "ops-channel", "--type", "alert.*")
    assert (group["transport"], channel["transport"]) == ("telegram", "discord")
    payload = desk.installation.folder / "alert.json"
    payload.write_text('{"disk":"full","percent":100.0}')
    accepted = desk.relay("send", "alert.raised", str(payload))
    receipt = await desk.receipt(accepted["receipt_id"], "delivered")
    assert {each["consumer"] for each in receipt["deliveries"]} == {"ops-chat", "ops-channel"}
    laid_out = '{\n  "disk": "full",\n  "percent": 100.0\n}'
    assert [each["text"] for each in desk.said("/telegram/-1001")] == [f"alert.raised\n\n{laid_out}"]
    assert [each["text"] for each in desk.said("/discord/4711")] == [f"alert.raised\n```json\n{laid_out}\n```"]


async def test_no_mention_rings_however_a_message_comes_to_be_sent(desk: Desk) -> None:
    """C141: first send, retry, replay and test."""
    endpoint = desk.add("discord://4712", HOOK, "--type", "ping.*")
    desk.tell("/discord/4712?limit=0")
    desk.tell("/discord/4712?error=server_error&times=1")
    payload = desk.installation.folder / "pings.json"
    payload.write_text(json.dumps(PINGS))
    accepted = desk.relay("send", "ping.sent", str(payload))
    await desk.receipt(accepted["receipt_id"], "delivered")
    tested = desk.relay("endpoints", "test", endpoint["id"])
    await desk.receipt(tested["receipt_id"], "delivered")
    with api(desk.up) as client:
        delivery = accepted["deliveries"][0]["id"]
        assert client.post(f"/v1/deliveries/{delivery}/redrive").status_code == 202
    await eventually(lambda: _three(desk), WITHIN, "three messages")
    assert [each["pings"] for each in desk.said("/discord/4712")] == [[], [], []]


async def _three(desk: Desk) -> bool:
    return len(desk.said("/discord/4712")) == 3


async def test_a_bot_whose_token_is_not_taken_waits_for_a_new_one(desk: Desk) -> None:
    """C87: what was dead is sent again once the endpoint is well, and until then the API says why nothing goes."""
    endpoint = desk.add("telegram://-1002", f"110201543:{BOT_SECRET}", "--type", "bill.*", "--name", "bills")
    desk.tell("/telegram/-1002?error=unauthorized&times=1")
    payload = desk.installation.folder / "bill.json"
    payload.write_text("{}")
    accepted = desk.relay("send", "bill.due", str(payload))

    async def disabled() -> Any:
        shown = desk.relay("endpoints", "show", "bills")
        return shown if shown["state"] == "disabled" else None

    shown = await eventually(disabled, WITHIN, "the endpoint is disabled")
    assert shown["state_reason"].startswith("the endpoint answered 401: Unauthorized")
    desk.relay("redrive", accepted["receipt_id"])
    with api(desk.up) as client:
        (held,) = client.get(f"/v1/receipts/{accepted['receipt_id']}").json()["deliveries"]
    assert (held["status"], held["waiting_for"]) == ("pending", "paused")
    token = f"110201543:{NEW_BOT_SECRET}"
    rotated = desk.relay("endpoints", "rotate-secret", "bills", "--secret-file", str(desk.keep(token)))
    assert (rotated["id"], rotated["secret"]) == (endpoint["id"], "***")
    desk.relay("endpoints", "resume", "bills")
    await desk.receipt(accepted["receipt_id"], "delivered_after_redrive")
    assert len(desk.said("/telegram/-1002")) == 1


async def test_no_token_is_in_what_relay_shows_counts_or_logs(desk: Desk) -> None:
    """After all that was done above, and a dead letter besides."""
    made = desk.add("discord://4713", HOOK, "--type", "leak.*", "--name", "leaks")
    assert made["secret"] == "***"
    desk.tell("/discord/4713?error=invalid_token")
    payload = desk.installation.folder / "leak.json"
    payload.write_text("{}")
    accepted = desk.relay("send", "leak.found", str(payload))
    delivery = accepted["deliveries"][0]["id"]
    with api(desk.up) as client:

        async def dead() -> bool:
            return bool(client.get(f"/v1/deliveries/{delivery}").json()["status"] == "dead")

        await eventually(dead, WITHIN, "a dead letter")
        paths = ["/v1/endpoints", f"/v1/endpoints/{made['id']}", f"/v1/endpoints/{made['id']}/deliveries"]
        paths += ["/v1/receipts", f"/v1/deliveries/{delivery}", "/v1/dead-letters", "/metrics", "/openapi.json"]
        answers = [client.get(path) for path in paths]
        refused = client.post("/v1/endpoints", json={"url": "discord://x", "secret": HOOK})
    assert [answer.status_code for answer in answers] == [200] * len(paths)
    assert refused.status_code == 422
    shown = [answer.text for answer in (*answers, refused)]
    shown += [json.dumps(desk.relay("dlq", "list")), json.dumps(desk.relay("deliveries", delivery))]
    shown += [
        json.dumps(desk.relay("config")),
        *map(desk.page, [f"{desk.receiver}/received", *desk.up.started["metrics"]]),
    ]
    logs = [service.log.read_text() for service in desk.installation.services]
    assert "leaks" in "".join(shown)
    assert "leaks" in "".join(logs)
    assert not [text for text in (*shown, *logs) if any(token in text for token in TOKENS)]
