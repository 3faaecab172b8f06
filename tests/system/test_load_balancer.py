"""The load balancer of ``docs/deployment.md`` before two real gateways, which are restarted one after the other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from tests.support.haproxy import SETTINGS, HAProxy
from tests.support.installation import LOOPBACK, Installation, eventually, free_port

DEADLINE = 30.0
SENDERS = 8
WATCHED = """
frontend watched
    bind {bind}
    monitor-uri /both
    monitor fail if {{ nbsrv(gateways) lt 2 }}
"""
"""Says whether both gateways are found well."""


def test_haproxy_takes_the_settings_of_the_page_without_a_warning(haproxy: HAProxy, tmp_path: Path) -> None:
    told = haproxy.says(tmp_path, SETTINGS)
    assert (told.returncode, told.stdout.strip(), told.stderr) == (0, "Configuration file is valid", "")


async def test_senders_with_keys_see_nothing_of_gateways_that_are_restarted_in_turn(
    installation: Installation, haproxy: HAProxy, tmp_path: Path
) -> None:
    """What crosses the end of a kept connection ends without an answer, and HAProxy repeats it under its key. What was
    reset it would not repeat."""
    statuses = await _restarted_in_turn(installation, haproxy, tmp_path, SETTINGS)
    assert set(statuses) == {202}
    assert await installation.value("select count(*) from receipts") == len(statuses)


async def test_where_gateways_delay_their_stop_nothing_has_to_be_repeated(
    installation: Installation, haproxy: HAProxy, tmp_path: Path
) -> None:
    repeating = ("    option redispatch 1\n", "    retry-on conn-failure empty-response\n")
    settings = SETTINGS.replace("    retries 2\n", "    retries 0\n")
    for line in repeating:
        settings = settings.replace(line, "")
    installation.environment["RELAY_SHUTDOWN_DELAY_SECS"] = "5"
    statuses = await _restarted_in_turn(installation, haproxy, tmp_path, settings)
    assert set(statuses) == {202}


async def _restarted_in_turn(installation: Installation, haproxy: HAProxy, folder: Path, settings: str) -> list[int]:
    """Restart two gateways in turn behind HAProxy, while senders post; answers the statuses that they got."""
    gateways = [installation.gateway(), installation.gateway()]
    port, watch = free_port(), free_port()
    settings = settings.replace("bind :8000", f"bind {LOOPBACK}:{port}")
    for number, gateway in enumerate(gateways, start=1):
        settings = settings.replace(f"10.0.0.1{number}:8080", gateway.url.removeprefix("http://"))
    settings += WATCHED.format(bind=f"{LOOPBACK}:{watch}")
    url, both = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{watch}/both"
    with haproxy.running(folder, settings):
        async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE) as client:
            await eventually(lambda: _says_yes(client, both), DEADLINE, "HAProxy has found the gateways")
            over = asyncio.Event()
            names = [f"sender-{each}" for each in range(SENDERS)]
            senders = [asyncio.create_task(_send(client, url, name, over)) for name in names]
            for gateway in gateways:
                assert await asyncio.to_thread(gateway.stop) == 0
                gateway.start()
                assert await asyncio.to_thread(lambda each=gateway: each.started)  # type: ignore[misc]  # its type is plain
                await eventually(lambda: _says_yes(client, both), DEADLINE, "HAProxy has found it again")
            over.set()
            return [status for sent in await asyncio.gather(*senders) for status in sent]


async def _says_yes(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(url)).status_code == 200
    except httpx.TransportError:
        return False


async def _send(client: httpx.AsyncClient, url: str, name: str, over: asyncio.Event) -> list[int]:
    """Post one event after the other, each under a key of its own; answers the statuses."""
    statuses: list[int] = []
    while not over.is_set():
        key = {"Idempotency-Key": f"{name}-{len(statuses)}"}
        answer = await client.post(f"{url}/v1/events", json={"type": "order.paid"}, headers=key)
        statuses.append(answer.status_code)
    return statuses
