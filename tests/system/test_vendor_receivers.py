"""Signatures, from the secret that the API shows to the library of the vendor, over real sockets.

Each receiver is a process around a library that nobody here wrote (`tests/support/vendors.py`): it answers 204 to what
the library verifies and 401 to the rest, so a closed receipt is the library's word.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from tests.docs.tree import ROOT
from tests.support.installation import add_endpoint, api, eventually, post
from tests.support.vendors import GITHUB_DOCUMENTED, GITHUB_NPM, RELAY_DOCUMENTED, VENDORS, Hook, Library, Seen, Vendors
from tests.system.conftest import Running

DEADLINE = 60.0

RETRY = {"max_attempts": 3, "base_seconds": 1.5, "max_seconds": 1.5, "window_seconds": 600}
"""With its jitter still more than a second between two attempts, so their timestamps differ."""

LIBRARIES = (RELAY_DOCUMENTED, GITHUB_DOCUMENTED, *VENDORS)
each_library = pytest.mark.parametrize("library", LIBRARIES, ids=str)
each_overlapping_library = pytest.mark.parametrize(
    "library", [library for library in LIBRARIES if library.profile != "github"], ids=str
)
each_standard_library = pytest.mark.parametrize(
    "library", [library for library in LIBRARIES if library.profile == "standard"], ids=str
)

BODY = rb"""{"b":1.0,"a":0.0,"esc":"\u001B","sl":"\/","e":1E400,"big":12345678901234567890123,"dup":1,"dup":2,
  "u":"\u00e9""" + 'é", "pretty": [\r\n\t1,\n\t2\n]\n}\n'.encode()
"""Case C46: what a second serialiser would write otherwise."""

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Subscription:
    """One endpoint of Relay's that sends to one hook, and the events that are for it alone."""

    running: Running
    hook: Hook
    endpoint: dict[str, Any]
    type: str

    @property
    def secret(self) -> str:
        """As the API showed it."""
        return str(self.endpoint["secret"])

    def post(self) -> str:
        """Post an event; answers the id of its one delivery."""
        answer = post(self.running.gateway, BODY, relay_event_type=self.type)
        assert answer.status_code == 202, answer.text
        (delivery,) = answer.json()["deliveries"]
        return str(delivery["id"])

    async def delivery(self, delivery_id: str, status: str) -> dict[str, Any]:
        """The delivery, when it has that status."""

        async def there() -> dict[str, Any]:
            with api(self.running.gateway) as client:
                found = dict(client.get(f"/v1/deliveries/{delivery_id}").json())
            return found if found["status"] == status else {}

        try:
            return await eventually(there, DEADLINE, f"{delivery_id} is {status}")
        except AssertionError as late:
            raise AssertionError(f"{late}; seen: {self.hook.seen()}") from None

    async def deliver(self) -> Seen:
        """Post an event that the receiver is to accept; answers what it saw last."""
        await self.delivery(self.post(), "delivered")
        return self.hook.seen()[-1]

    async def refused(self) -> dict[str, Any]:
        """Post an event that the receiver is to refuse; answers the dead delivery."""
        return await self.delivery(self.post(), "dead")

    def rotate(self) -> str:
        """Rotate the secret; answers the new one."""
        with api(self.running.gateway) as client:
            answer = client.post(f"/v1/endpoints/{self.endpoint['id']}/rotate-secret")
        assert answer.status_code == 200, answer.text
        return str(answer.json()["secret"])

    async def end_overlap(self) -> None:
        """Let the overlap's end be now, as it is when its hours have passed."""
        sql = "update endpoints set previous_secret_expires_at = now() where name = $1 returning 1"
        await self.running.installation.value(sql, self.endpoint["name"])


def subscribe(running: Running, vendors: Vendors, library: Library, **fields: object) -> Subscription:
    """An endpoint of the library's profile; its hook trusts the secret exactly as the API shows it."""
    name = f"vendor-{next(_numbers)}"
    hook = vendors.hook(library, name)
    wanted: dict[str, Any] = {"name": name, "signature": library.profile, "event_types": [f"proof.{name}"], **fields}
    endpoint = add_endpoint(running.gateway, hook.url, **wanted)
    hook.trust(endpoint["secret"])
    return Subscription(running, hook, endpoint, f"proof.{name}")


@each_library
async def test_the_library_verifies_the_bytes_that_were_posted_with_the_secret_that_the_api_showed(
    running: Running, vendors: Vendors, library: Library
) -> None:
    seen = await subscribe(running, vendors, library).deliver()
    assert (seen.status, seen.sha256) == (204, hashlib.sha256(BODY).hexdigest())


@each_library
async def test_a_receiver_with_another_secret_refuses_and_the_delivery_is_a_dead_letter(
    running: Running, vendors: Vendors, library: Library
) -> None:
    subscription = subscribe(running, vendors, library)
    subscription.hook.trust("whsec_" + base64.b64encode(bytes(32)).decode())
    dead = await subscription.refused()
    assert [attempt["status_code"] for attempt in dead["attempts"]] == [401]
    assert dead["reason"] == "permanent_failure"


@each_library
async def test_one_flipped_bit_anywhere_in_the_body_is_refused(
    running: Running, vendors: Vendors, library: Library
) -> None:
    subscription = subscribe(running, vendors, library)
    seen = await subscription.deliver()
    places = [0, len(BODY) // 2, len(BODY) - 1]
    flipped = [BODY[:place] + bytes([BODY[place] ^ 1]) + BODY[place + 1 :] for place in places]
    statuses = [subscription.hook.deliver(seen.headers, body) for body in (BODY, *flipped)]
    assert statuses == [204, 401, 401, 401]


@each_overlapping_library
async def test_in_an_overlap_the_old_and_the_new_secret_verify_and_after_it_the_new_one_alone(
    running: Running, vendors: Vendors, library: Library
) -> None:
    subscription = subscribe(running, vendors, library)
    new = subscription.rotate()
    assert (await subscription.deliver()).status == 204, "the receiver still has the old secret"
    subscription.hook.trust(new)
    assert (await subscription.deliver()).status == 204, "the receiver was given the new one"
    await subscription.end_overlap()
    assert (await subscription.deliver()).status == 204, "the new one goes on"
    subscription.hook.trust(subscription.secret)
    assert (await subscription.refused())["last_error"] is not None, "the old one is worth nothing any more"


@each_overlapping_library
async def test_after_two_rotations_in_a_row_the_first_secret_is_worth_nothing(
    running: Running, vendors: Vendors, library: Library
) -> None:
    subscription = subscribe(running, vendors, library)
    second, third = subscription.rotate(), subscription.rotate()
    for secret in (second, third):
        subscription.hook.trust(secret)
        assert (await subscription.deliver()).status == 204
    subscription.hook.trust(subscription.secret)
    await subscription.refused()


@pytest.mark.parametrize("library", [GITHUB_NPM], ids=str)
async def test_githubs_one_signature_is_of_the_new_secret_at_once_so_a_receiver_holds_both_in_a_rotation(
    running: Running, vendors: Vendors, library: Library
) -> None:
    subscription = subscribe(running, vendors, library)
    subscription.hook.trust("the-next-secret-is-not-known-yet", subscription.secret)
    assert (await subscription.deliver()).status == 204
    new = subscription.rotate()
    await subscription.refused()
    subscription.hook.trust(new, subscription.secret)
    assert (await subscription.deliver()).status == 204


@pytest.mark.parametrize("registry", ["none", "pypi", "npm"])
async def test_a_retry_is_signed_anew_at_its_own_time_under_the_same_delivery_id(
    running: Running, vendors: Vendors, registry: str
) -> None:
    async def retry(library: Library, subscription: Subscription) -> None:
        subscription.hook.trust(subscription.secret, busy=1)
        delivery_id = subscription.post()
        await subscription.delivery(delivery_id, "delivered")
        first, second = subscription.hook.seen()
        assert (first.status, second.status) == (503, 204)
        assert [seen.headers["relay-delivery-id"] for seen in (first, second)] == [delivery_id, delivery_id]
        assert [seen.headers["relay-attempt"] for seen in (first, second)] == ["1", "2"]
        if library.profile != "github":
            assert timestamp(first) <= first.at < timestamp(second) <= second.at

    # before the group, in which a skip for a missing tool would not be seen as one
    subscribed = [
        (library, subscribe(running, vendors, library, retry=RETRY))
        for library in LIBRARIES
        if library.registry == registry
    ]
    async with asyncio.TaskGroup() as group:
        for library, subscription in subscribed:
            group.create_task(retry(library, subscription))


@each_library
async def test_a_replay_is_the_same_delivery_with_the_same_bytes_signed_anew(
    running: Running, vendors: Vendors, library: Library
) -> None:
    subscription = subscribe(running, vendors, library)
    delivery_id = subscription.post()
    await subscription.delivery(delivery_id, "delivered")
    with api(running.gateway) as client:
        assert client.post(f"/v1/deliveries/{delivery_id}/redrive").status_code == 202

    async def came_again() -> list[Seen]:
        return list(subscription.hook.seen()[1:])

    (replay,) = await eventually(came_again, DEADLINE, "the replay arrives")
    assert (replay.status, replay.sha256) == (204, hashlib.sha256(BODY).hexdigest())
    told = {name: replay.headers[name] for name in ("relay-delivery-id", "relay-generation", "relay-attempt")}
    assert told == {"relay-delivery-id": delivery_id, "relay-generation": "1", "relay-attempt": "2"}


@each_standard_library
async def test_the_webhook_id_is_the_delivery_id_and_has_no_dot(
    running: Running, vendors: Vendors, library: Library
) -> None:
    subscription = subscribe(running, vendors, library)
    seen = await subscription.deliver()
    assert seen.headers["webhook-id"] == seen.headers["relay-delivery-id"]
    assert "." not in seen.headers["webhook-id"]


async def test_the_receiver_in_the_readme_accepts_what_relay_sends_and_nothing_else(
    running: Running, vendors: Vendors
) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    subscription = subscribe(running, vendors, RELAY_DOCUMENTED)
    worked: list[bytes] = []
    readme: dict[str, Any] = {"work": worked.append}
    exec(program, readme)  # noqa: S102 - what people paste is run as they run it
    readme["SECRET"] = subscription.secret.encode()
    headers = {name.title(): value for name, value in (await subscription.deliver()).headers.items()}
    assert [readme["receive"](headers, body) for body in (BODY, BODY, BODY + b" ")] == [204, 204, 401]
    assert {headers["Relay-Delivery-Id"]} == readme["SEEN"]
    assert worked == [BODY]


OWN_SECRETS = {
    "standard": [f"whsec_{base64.b64encode(bytes(range(size))).decode()}" for size in (24, 25, 64)],
    "relay": ["It's a Secret to Everybody", "whsec_not base64 at all", "x" * 256],
    "stripe": ["It's a Secret to Everybody", "whsec_not base64 at all", "x" * 256],
    "github": ["It's a Secret to Everybody", "whsec_not base64 at all", "x" * 256],
}


@each_library
async def test_a_secret_of_ones_own_is_exactly_what_the_library_takes(
    running: Running, vendors: Vendors, library: Library
) -> None:
    for secret in OWN_SECRETS[library.profile]:
        subscription = subscribe(running, vendors, library, secret=secret)
        assert subscription.secret == secret
        assert (await subscription.deliver()).status == 204


KEY = base64.b64encode(bytes(range(231, 255))).decode()
NO_SECRETS = {
    "without the prefix": KEY,
    "with v1, pasted in": f"v1,whsec_{KEY}",
    "in the alphabet of urls": "whsec_" + base64.urlsafe_b64encode(b"\xfb" * 24).decode(),
    "without its padding": "whsec_" + base64.b64encode(bytes(25)).decode().rstrip("="),
    "no ASCII": "pässword",
    "nothing": "",
    "one byte": "x",
    "10 kB": "x" * 10_000,
}


@pytest.mark.parametrize("secret", NO_SECRETS.values(), ids=NO_SECRETS.keys())
async def test_a_secret_that_the_standards_library_would_not_take_is_refused_when_it_is_written(
    running: Running, secret: str
) -> None:
    wanted = {
        "url": "http://127.0.0.1:9/hook",
        "signature": "standard",
        "secret": secret,
        "event_types": ["proof.none"],
    }
    with api(running.gateway) as client:
        answer = client.post("/v1/endpoints", json=wanted)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/secret"]


def timestamp(seen: Seen) -> int:
    """When the attempt was signed, in Unix seconds."""
    for name in ("relay-timestamp", "webhook-timestamp"):
        if name in seen.headers:
            return int(seen.headers[name])
    return int(seen.headers["stripe-signature"].partition(",")[0].removeprefix("t="))
