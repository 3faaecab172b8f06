"""Claims about requests that are forged, replayed, expired, truncated, or for another tenant: all are refused."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.domain.signed import Signed
from relay.domain.signing import Signer
from tests.gateway.world import World, event
from tests.support.administration import Made, bearer, signed
from tests.support.asgi import served
from tests.support.certificates import ClientAuthority
from tests.support.wire import Wire

OTHER = "acct_other"
FORGERIES = 10_000
AT_ONCE = 50

Headers = list[tuple[str, str]]


async def furnish(world: World) -> dict[str, Made]:
    """Credentials of two tenants, some of them over."""
    made = {
        "admin": await world.credentials.key("admin"),
        "ingest": await world.credentials.key("ingest"),
        "read": await world.credentials.key("read"),
        "revoked": await world.credentials.key("ingest"),
        "hmac": await world.credentials.source("hmac", name="signer"),
        "both": await world.credentials.source("bearer", "hmac", name="both"),
        "removed": await world.credentials.source("bearer", name="removed"),
        "mesh": await world.credentials.source("mtls", name="mesh", subject="mesh.example.com"),
        "bearer and mesh": await world.credentials.source("bearer", "mtls", name="two", subject="two.example.com"),
        "signer and mesh": await world.credentials.source("hmac", "mtls", name="three", subject="three.example.com"),
    }
    await world.credentials.tenant(OTHER)
    made["theirs"] = await world.credentials.source("hmac", name="theirs", tenant=OTHER)
    made["their key"] = await world.credentials.key("ingest", tenant=OTHER)
    made["over"] = made["hmac"]
    made["hmac"] = await world.credentials.rotate(made["hmac"], overlap_seconds=0.0)
    await world.credentials.revoke(made["revoked"])
    await world.credentials.remove(made["removed"])
    return made


def certificates(folder: Path) -> dict[str, tuple[str, str]]:
    """The header in which a proxy would hand on the right certificate of each source, which anybody can write."""
    authority = ClientAuthority(folder)
    ders = {name: authority.issue(f"{name}.example.com").der for name in ("mesh", "two", "three")}
    return {name: ("Client-Cert", f":{b64encode(der).decode()}:") for name, der in ders.items()}


def forgery(
    chance: random.Random,
    made: dict[str, Made],
    captured: tuple[bytes, Headers],
    shown: dict[str, tuple[str, str]],
) -> tuple[bytes, Headers]:
    """A body and headers that nobody may send."""
    body = event(n=chance.random())
    now = time.time()
    right = signed("signer", made["hmac"].secret, body)
    guess = "rlk_" + "".join(chance.choices("abcXYZ019-_", k=43))
    known = made["ingest"].secret
    place = chance.randrange(len(known))
    altered = known[:place] + ("A" if known[place] != "A" else "B") + known[place + 1 :]
    return chance.choice(
        [
            (body, []),
            (body, [bearer(guess)]),
            (body, [bearer(known[: chance.randrange(len(known))])]),
            (body, [bearer(altered)]),
            (body, [bearer(made["revoked"].secret)]),
            (body, [bearer(made["removed"].secret)]),
            (body, [bearer(made["read"].secret)]),
            (body, [bearer(made["hmac"].secret)]),
            (body, [bearer(known), ("Relay-Tenant", OTHER)]),
            (body, [bearer(made["their key"].secret), ("Relay-Tenant", "acct_default")]),
            (body, [bearer(made["their key"].secret), *right]),
            (body, [bearer(made["both"].secret)]),
            (body, signed("both", made["both"].secret, body)),
            (body, signed("signer", made["over"].secret, body)),
            (body, signed("signer", made["theirs"].secret, body)),
            (body, signed("theirs", made["hmac"].secret, body)),
            (body, signed("nobody", made["hmac"].secret, body)),
            (body, signed("signer", made["hmac"].secret, body, at=now - chance.randrange(310, 10**6))),
            (body, signed("signer", made["hmac"].secret, body, at=now + chance.randrange(310, 10**6))),
            (body[: chance.randrange(len(body))], right),
            (body + b" ", right),
            (body, [right[0], right[1], ("Relay-Signature", right[2][1][: chance.randrange(5, 60)])]),
            (body, [right[0], ("Relay-Timestamp", str(int(now) + 1)), right[2]]),
            (body, [*right, ("Relay-Tenant", OTHER)]),
            # certificates that come without a connection that showed them, and without a proxy that is trusted
            (body, [shown["mesh"]]),
            (body, [("X-Forwarded-Client-Cert", f"Cert={shown['mesh'][1]}")]),
            (body, [("X-SSL-Client-S-DN", "CN=mesh.example.com"), ("X-SSL-Client-Verify", "SUCCESS")]),
            (body, [shown["two"], bearer(made["bearer and mesh"].secret)]),
            (body, [shown["mesh"], bearer(made["bearer and mesh"].secret)]),
            (body, [bearer(made["bearer and mesh"].secret)]),
            (body, [shown["three"], *signed("three", made["signer and mesh"].secret, body)]),
            (body, signed("three", made["signer and mesh"].secret, body)),
            (body, [shown["mesh"], bearer(guess)]),
            # what was taken once, under another name, as another type
            (captured[0], [*captured[1], ("Idempotency-Key", f"k{chance.random()}")]),
            (captured[0], [*captured[1], ("Relay-Event-Type", f"t{chance.randrange(1000)}")]),
        ]
    )


def lines(body: bytes, headers: Headers) -> bytes:
    """The request as it goes over the wire."""
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return (
        f"POST /v1/events HTTP/1.1\r\nhost: relay\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n{head}\r\n"
    ).encode() + body


@pytest.mark.timeout(180)
async def test_ten_thousand_of_them_are_all_refused_and_nothing_is_stored(world: World, tmp_path: Path) -> None:
    made, shown = await furnish(world), certificates(tmp_path)
    body = event(captured=True)
    captured = (body, signed("signer", made["hmac"].secret, body))
    assert (await world.post(body, *captured[1])).status == 202
    chance = random.Random(7)
    left = iter([forgery(chance, made, captured, shown) for _ in range(FORGERIES)])
    statuses: dict[int, int] = {}

    async def send_all(host: str, port: int, left: Iterator[tuple[bytes, Headers]]) -> None:
        for body, headers in left:
            async with await Wire.connect(f"http://{host}:{port}") as wire:
                status = (await wire.ask(lines(body, headers))).status
            statuses[status] = statuses.get(status, 0) + 1

    async with served(world.gateway.routes["/v1/events"]) as (host, port):
        await asyncio.gather(*(send_all(host, port, left) for _ in range(AT_ONCE)))
    assert statuses.keys() == {401, 403}
    assert sum(statuses.values()) == FORGERIES
    tables = ("journal", "receipts", "idempotency_keys", "signed_requests")
    assert [await world.count(table) for table in tables] == [1] * 4


async def test_a_refusal_takes_the_same_work_whichever_keys_there_are(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret that is one character off costs what one costs that is nothing like any, and a source's what nobody's
    does. How long each takes is printed, to read.
    """
    compared: list[str] = []
    holds = Signed.holds

    def counted(signed: Signed, signer: Signer, body: bytes) -> bool:
        compared.append(kind)
        return holds(signed, signer, body)

    monkeypatch.setattr(Signed, "holds", counted)
    made = await furnish(world)
    known, body = made["ingest"].secret, event()
    kinds: dict[str, Headers] = {
        "almost": [bearer(known[:-1] + ("A" if known[-1] != "A" else "B"))],
        "nothing like it": [bearer("rlk_" + "z" * 43)],
        "a source": signed("signer", "w" * 40, body),
        "no source": signed("sinner", "w" * 40, body),
    }
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(200):
        for kind, headers in kinds.items():
            began = time.perf_counter()
            assert (await world.post(body, *headers)).status == 401
            took[kind].append(time.perf_counter() - began)
    typical = {kind: f"{1e6 * statistics.median(times):.0f} us" for kind, times in took.items()}
    print(f"refused after {typical}")  # noqa: T201 - to read
    work = {kind: compared.count(kind) for kind in kinds}
    assert work == {"almost": 0, "nothing like it": 0, "a source": 400, "no source": 400}
