"""A secret is rotated under load, and receivers go over to the new one at moments all over the overlap.

Each receiver holds exactly one secret at a time and turns away whatever is not signed with it. The first goes over the
instant that it is told, while what was signed before is still on its way; the last when the overlap is nearly over.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import threading
from collections import Counter

from tests.support.installation import Installation, Service, add_endpoint, api, eventually
from tests.support.producer import Event
from tests.support.scripted_server import Peer, ScriptedServer
from tests.support.wire import Wire

OVERLAP_SECONDS = 8
RECEIVERS = 5
BETWEEN_EVENTS_SECONDS = 0.02
ON_ITS_WAY_SECONDS = 0.2
"""Between the signing of a request and the look at its signature."""
SOON = 60.0
DELIVERED_SECONDS = 120.0


class Strict:
    """Receivers by path, each of which takes what its one secret has signed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: dict[str, str] = {}
        self.taken: Counter[str] = Counter()

    def hold(self, path: str, secret: str) -> None:
        """From now on this secret counts, and no other."""
        with self._lock:
            self._secrets[path] = secret

    def __call__(self, peer: Peer) -> None:
        while (request := peer.read_request()) is not None:
            path = request.line.split()[1]
            peer.pause(ON_ITS_WAY_SECONDS)
            (timestamp,), (signatures,) = request.values("Relay-Timestamp"), request.values("Relay-Signature")
            with self._lock:
                key = self._secrets[path].encode()
                signed = hmac.new(key, timestamp.encode() + b"." + request.body, hashlib.sha256).hexdigest()
                is_right = f"v1={signed}" in signatures.split(",")
                self.taken[path] += is_right
            peer.answer(200 if is_right else 401)


class Load:
    """Events at a steady pace, until it is stopped."""

    def __init__(self, gateway: Service) -> None:
        self._gateway = gateway
        self._stop = asyncio.Event()
        self.accepted = 0

    async def post(self) -> None:
        """Post until told to stop."""
        async with await Wire.connect(self._gateway.url) as wire:
            while not self._stop.is_set():
                reply = await wire.ask(Event(f"event-{self.accepted}", b'{"number": %d}' % self.accepted).bytes)
                assert reply.status == 202, reply
                self.accepted += 1
                await asyncio.sleep(BETWEEN_EVENTS_SECONDS)

    async def goes_on(self) -> None:
        """Return when twenty more events have been accepted."""
        until = self.accepted + 20

        async def accepted() -> bool:
            return self.accepted >= until

        await eventually(accepted, SOON, "the load goes on")

    def stop(self) -> None:
        """Post no more."""
        self._stop.set()


def rotate(gateway: Service, endpoint: str) -> str:
    """Rotate an endpoint's secret; answers the new one."""
    with api(gateway) as client:
        answer = client.post(f"/v1/endpoints/{endpoint}/rotate-secret", json={})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["secret"])


async def test_no_delivery_fails_at_a_receiver_that_goes_over_at_any_moment_of_the_overlap(
    installation: Installation,
) -> None:
    gateway = installation.gateway(secret_overlap_secs=str(OVERLAP_SECONDS))
    installation.dispatcher()
    installation.dispatcher()
    strict = Strict()
    with ScriptedServer(strict) as server:
        endpoints = {f"/r{number}": add_endpoint(gateway, server.url(f"/r{number}")) for number in range(RECEIVERS)}
        for path, made in endpoints.items():
            strict.hold(path, made["secret"])
        load = Load(gateway)
        posting = asyncio.create_task(load.post())
        await load.goes_on()

        every = list(endpoints.items())
        path, endpoint = every[0]
        strict.hold(path, await asyncio.to_thread(rotate, gateway, endpoint["id"]))
        fresh = {path: await asyncio.to_thread(rotate, gateway, each["id"]) for path, each in every[1:]}
        for number, (path, secret) in enumerate(fresh.items(), 1):
            await passed(installation, number / RECEIVERS)
            strict.hold(path, secret)
        await passed(installation, 1.0)
        before = strict.taken.copy()
        await load.goes_on()
        load.stop()
        await posting
        await installation.all_closed(load.accepted, DELIVERED_SECONDS)
    assert await installation.value("select count(*) from deliveries where status <> 'delivered'") == 0
    assert strict.taken == Counter(dict.fromkeys(endpoints, load.accepted))
    assert all(strict.taken[path] > before[path] for path in endpoints)


async def passed(installation: Installation, share: float) -> None:
    """Return when so much of the overlap is over, of whichever rotation was the last."""
    over = "select max(previous_secret_expires_at) - $1::float8 * interval '1 second' <= now() from endpoints"

    async def is_over() -> bool:
        return bool(await installation.value(over, OVERLAP_SECONDS * (1 - share)))

    await eventually(is_over, SOON, f"{share:.0%} of the overlap have passed")
