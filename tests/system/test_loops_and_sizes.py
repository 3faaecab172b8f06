"""What grows: an event that comes back to the Relay that sent it, and payloads of the sizes that are really sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from relay.gateway.headers import MOST_HOPS
from tests.support.database import Server
from tests.support.installation import Installation, Service, add_endpoint, api, eventually, post
from tests.support.receiver import Receiver
from tests.system.conftest import ended, fresh_database

DEADLINE = 60.0
LARGEST = 8 * 1024 * 1024


async def test_an_endpoint_that_leads_back_makes_a_bounded_number_of_events(installation: Installation) -> None:
    """Case C156: each delivery is a new event, until one has gone through more Relays than any real way has."""
    gateway = installation.gateway()
    installation.dispatcher()
    add_endpoint(gateway, f"{gateway.url}/v1/events")
    with api(gateway) as client:
        body = b'[{"type": "order.made", "payload": {"type": "order.made"}}, {"type": "x", "payload": 7}]'
        assert client.post("/v1/events/batch", content=body, headers={"content-type": "application/json"}).is_success

    async def dead() -> bool:
        return bool(await installation.value("select count(*) = 2 from deliveries where status = 'dead'"))

    await eventually(dead, DEADLINE, "the last delivery of each is dead")
    hops = await installation.fetch("select type, hops from journal order by type, hops")
    assert [tuple(row) for row in hops] == [(kind, n) for kind in ("order.made", "x") for n in range(MOST_HOPS + 1)]
    assert await installation.value("select count(*) from deliveries") == len(hops)
    reasons = await installation.fetch("select distinct dead_reason from deliveries where status = 'dead'")
    assert [row[0] for row in reasons] == ["permanent_failure"]


@pytest.fixture
def another(
    database_server: Server, template_database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Installation]:
    """A second Relay, with a database of its own."""
    with fresh_database(database_server, template_database) as dsn:
        folder = tmp_path / "another"
        folder.mkdir()
        yield from ended(Installation(folder, dsn), request)


async def test_two_relays_that_lead_to_each_other_make_a_bounded_number_of_events(
    installation: Installation, another: Installation
) -> None:
    """Case C156: the hops are counted over both, whatever credential the endpoints show each other."""
    both = [installation, another]
    gateways = [each.gateway() for each in both]
    for each in both:
        each.dispatcher()
    keys = [key_of(each) for each in gateways]
    for number, gateway in enumerate(gateways):
        other = 1 - number
        with api(gateway) as client:
            made = client.post(
                "/v1/endpoints",
                json={
                    "url": f"{gateways[other].url}/v1/events",
                    "headers": {"Authorization": f"Bearer {keys[other]}"},
                },
                headers={"Authorization": f"Bearer {keys[number]}"},
            )
        assert made.status_code == 201, made.text
    assert post(gateways[0], b'{"type": "order.made"}', authorization=f"Bearer {keys[0]}").status_code == 202

    async def is_dead() -> bool:
        counts = [await each.value("select count(*) from deliveries where status = 'dead'") for each in both]
        return bool(sum(counts) == 1)

    await eventually(is_dead, DEADLINE, "the last delivery is dead")
    hops = [[row[0] for row in await each.fetch("select hops from journal order by hops")] for each in both]
    assert hops == [list(range(0, MOST_HOPS + 1, 2)), list(range(1, MOST_HOPS + 1, 2))]


def key_of(gateway: Service) -> str:
    """A Relay's first key."""
    with api(gateway) as client:
        answer = client.post("/v1/keys", json={"name": "admin", "scopes": ["admin"]})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["secret"])


def a_push(commits: int) -> bytes:
    """A push in the shape of GitHub's, with as many commits."""
    author = {"name": "Zoë Müller", "email": "zoe@example.com", "username": "zoe"}
    listed = [
        {
            "id": hashlib.sha1(str(number).encode(), usedforsecurity=False).hexdigest(),
            "message": f"Änderung {number}\n\n" + "Ein längerer Text € 😀 " * 60,
            "timestamp": "2026-01-31T12:00:00+01:00",
            "author": author,
            "committer": author,
            "added": [f"src/módulo/{number}/{part}.py" for part in range(10)],
            "modified": [],
        }
        for number in range(commits)
    ]
    return json.dumps({"type": "push", "ref": "refs/heads/main", "commits": listed}, ensure_ascii=False).encode()


async def test_a_push_of_two_thousand_commits_is_refused_or_taken_whole_as_the_limit_says(
    installation: Installation, receiver: Receiver, transport: Mapping[str, str]
) -> None:
    """Case C162, through a broker as well: the limit is a setting and stands in the refusal; what is taken arrives byte
    for byte."""
    installation.environment |= transport
    push = a_push(2000)
    assert 4_000_000 < len(push) < LARGEST
    narrow = installation.gateway()
    wide = installation.gateway(max_payload_bytes=str(LARGEST))
    installation.dispatcher(max_payload_bytes=str(LARGEST))
    add_endpoint(wide, receiver.url("/ok/large"), event_types=["push"])
    add_endpoint(wide, receiver.url("/ok/small"), event_types=["small"])
    refused = post(narrow, push)
    assert (refused.status_code, refused.json()["limit_bytes"]) == (413, 1024 * 1024)

    assert post(wide, push).status_code == 202
    with api(wide) as client:
        elements = b'[{"type":"push","payload":%b},{"type":"small","payload":1}]' % push
        reply = client.post("/v1/events/batch", content=elements, headers={"content-type": "application/json"})
    assert [set(result) & {"error"} for result in reply.json()["data"]] == [set(), set()]
    await installation.all_closed(3, DEADLINE)
    assert receiver.bodies("/ok/large") == [push, push]
    assert receiver.bodies("/ok/small") == [b"1"]
