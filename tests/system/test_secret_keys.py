"""The key of stored secrets is changed as docs/credentials.md says, step by step, by whole processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Sequence

import asyncpg
import httpx

from relay.domain.secret import Secret
from relay.store.vault import Vault, new_key
from tests.support.administration import signed
from tests.support.installation import RELAY, Installation, Service, add_endpoint, api, eventually, post
from tests.support.receiver import Receiver

MANY = 6_000
SOON = 60.0


def restarted(services: Sequence[Service], keys: Sequence[Secret]) -> None:
    """Stop each service and start it with these keys, one after the other as an operator does."""
    for service in services:
        assert service.stop() == 0
        service.give(secret_keys=written(keys))
        service.start()
        assert service.started


def written(keys: Sequence[Secret]) -> str:
    return ",".join(key.expose() for key in keys)


def begin(installation: Installation, keys: Sequence[Secret]) -> subprocess.Popen[bytes]:
    """A re-encryption that goes on by itself."""
    return subprocess.Popen(
        [str(RELAY), "keys", "reencrypt"],
        env={**installation.environment, "RELAY_SECRET_KEYS": written(keys)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def stock(installation: Installation, key: Secret, secrets: int) -> None:
    """Secrets of before, which make the work long enough to be cut off."""
    vault = Vault([key])
    rows = [(vault.seal(Secret(f"whsec_{number}")), vault.newest) for number in range(secrets)]
    assert installation.dsn is not None
    connection = await asyncpg.connect(installation.dsn)
    try:
        await connection.executemany(
            "insert into secrets (id, ciphertext, key_id) values (gen_random_uuid(), $1, $2)", rows
        )
    finally:
        await connection.close()


async def under(installation: Installation, key: Secret) -> int:
    """How many secrets are under a key."""
    return int(await installation.value("select count(*) from secrets where key_id = $1", Vault([key]).newest))


def rotate(gateway: Service, endpoint: str) -> str:
    with api(gateway) as client:
        answer = client.post(f"/v1/endpoints/{endpoint}/rotate-secret", json={})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["secret"])


def is_signed_with(secret: str, receiver: Receiver) -> bool:
    """Whether the newest request that arrived is signed with that secret."""
    arrival = receiver.received()[-1]
    at = float(arrival.header("relay-timestamp") or "nan")
    (_, _, (_, signature)) = signed("", secret, arrival.body or b"", at=at)
    return signature in (arrival.header("relay-signature") or "").split(",")


async def test_a_key_is_changed_while_secrets_rotate_and_reencryptions_are_killed(
    installation: Installation, receiver: Receiver
) -> None:
    old, new = Secret(installation.environment["RELAY_SECRET_KEYS"]), new_key()
    both = [installation.gateway(), installation.dispatcher()]
    gateway = both[0]
    endpoint = add_endpoint(gateway, receiver.url())
    await stock(installation, old, MANY)
    refused = await asyncio.to_thread(begin(installation, [new, old]).communicate)
    assert b"restart all of them" in refused[1]

    await asyncio.to_thread(restarted, both, [old, new])
    await asyncio.to_thread(restarted, both, [new, old])

    assert all("run `relay keys reencrypt`" in each.log_tail() for each in both)

    first = begin(installation, [new, old])
    await eventually(lambda: _is_begun(installation, new), SOON, "some secrets are under the new key")
    first.kill()
    first.communicate()
    assert 0 < await under(installation, new) < MANY
    killed, *beside = [begin(installation, [new, old]) for _ in range(3)]
    killed.kill()
    killed.communicate()
    secrets = [await asyncio.to_thread(rotate, gateway, endpoint["id"]) for _ in range(5)]
    for each in beside:
        out, err = await asyncio.to_thread(each.communicate, timeout=SOON)
        assert each.returncode == 0, err
        assert json.loads(out)["unreadable"] == []
    assert await under(installation, old) == 0

    await asyncio.to_thread(restarted, both, [new, old])
    assert all("1 of the 2 keys in RELAY_SECRET_KEYS is retired" in each.log_tail() for each in both)
    await asyncio.to_thread(restarted, both, [new])
    assert post(gateway, b'{"type":"b"}').status_code == 202
    await installation.all_closed(1, SOON)
    assert is_signed_with(secrets[-1], receiver)


async def _is_begun(installation: Installation, key: Secret) -> bool:
    return await under(installation, key) > 0


def test_the_key_of_an_embedded_database_is_changed_by_its_key_file(alone: Installation, receiver: Receiver) -> None:
    service = alone.up("--dev")
    endpoint = add_endpoint(service, receiver.url())
    key = httpx.post(f"{service.url}/v1/keys", json={"name": "admin", "scopes": ["admin"]}, trust_env=False).json()
    shown = {"Authorization": f"Bearer {key['secret']}"}
    source = {"name": "billing", "auth": ["hmac"]}
    made = httpx.post(f"{service.url}/v1/sources", json=source, headers=shown, trust_env=False).json()

    added = alone.run("secret-key", "--add", "--json")
    assert json.loads(added.stdout)["keys"] == 2, added.stderr
    assert service.stop() == 0
    service.start()
    assert service.started
    done = alone.run("keys", "reencrypt")
    assert json.loads(done.stdout)["reencrypted"] == 2, done.stderr
    again = alone.run("keys", "reencrypt")
    assert json.loads(again.stdout)["reencrypted"] == 0, again.stderr
    assert service.stop() == 0
    file = alone.folder / "data" / "secret-keys"
    newest, _ = file.read_text().split()
    file.write_text(f"{newest}\n")

    service.start()
    body = b'{"type":"invoice.paid"}'
    headers = {"Content-Type": "application/json", **dict(signed("billing", made["secret"], body))}
    accepted = httpx.post(f"{service.url}/v1/events", content=body, headers=headers, trust_env=False)
    assert accepted.status_code == 202, accepted.text
    receiver.wait_for(1, SOON)
    assert is_signed_with(endpoint["secret"], receiver)
