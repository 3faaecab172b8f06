"""Credentials hold in every gateway process from one request to the next: two workers behind one socket, a new
connection for each request."""

from __future__ import annotations

from typing import Any

import httpx

from tests.support.administration import signed
from tests.support.installation import Installation

ROUNDS = 8
CONNECTIONS = 8
EVENT = b'{"type":"invoice.paid"}'


def statuses(url: str, *requests: dict[str, str], body: bytes = EVENT) -> set[int]:
    """What each of these requests is answered, each over connections of its own."""
    found = set()
    for number in range(CONNECTIONS):
        headers = {"Content-Type": "application/json", **requests[number % len(requests)]}
        found.add(httpx.post(f"{url}/v1/events", content=body, headers=headers, trust_env=False).status_code)
    return found


def test_a_key_works_and_ends_at_once_whichever_worker_gets_the_request(alone: Installation) -> None:
    service = alone.up("--dev", "--workers", "2")
    assert service.started
    assert statuses(service.url, {}) == {202}

    def change(method: str, path: str, secret: str | None, body: object = None) -> Any:
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        reply = httpx.request(method, f"{service.url}/v1{path}", json=body, headers=headers, trust_env=False)
        assert reply.is_success, reply.text
        return reply.json() if reply.content else None

    admin = change("POST", "/keys", None, {"name": "admin", "scopes": ["admin"]})["secret"]
    assert statuses(service.url, {}) == {401}
    for number in range(ROUNDS):
        key = change("POST", "/keys", admin, {"name": f"key-{number}", "scopes": ["ingest"]})
        shown = {"Authorization": f"Bearer {key['secret']}"}
        assert statuses(service.url, shown) == {202}
        change("DELETE", f"/keys/{key['id']}", admin)
        assert statuses(service.url, shown) == {401}


def test_a_rotation_leaves_two_secrets_and_the_next_one_ends_the_oldest(alone: Installation) -> None:
    service = alone.up("--dev", "--workers", "2")
    assert service.started
    key = httpx.post(f"{service.url}/v1/keys", json={"name": "admin", "scopes": ["admin"]}, trust_env=False).json()
    shown = {"Authorization": f"Bearer {key['secret']}"}
    made = httpx.post(
        f"{service.url}/v1/sources", json={"name": "billing", "auth": ["hmac"]}, headers=shown, trust_env=False
    ).json()
    secrets = [made["secret"]]
    for number in range(ROUNDS):
        body = b'{"type":"invoice.paid","n":%d}' % number
        known = [dict(signed("billing", secret, body)) for secret in secrets]
        assert statuses(service.url, *known[-2:], body=body) == {202}
        if known[:-2]:
            assert statuses(service.url, *known[:-2], body=body) == {401}
        path = f"{service.url}/v1/sources/{made['id']}/rotate"
        secrets.append(httpx.post(path, headers=shown, trust_env=False).json()["secret"])
