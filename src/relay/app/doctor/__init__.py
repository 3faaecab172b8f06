"""What is wrong with an installation, as far as it can be seen from here.

Owns the order of the checks; each is in the module of what it looks at. Invariant: they run side by side, each within
its bound, and none changes anything.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from relay.app.doctor import machine
from relay.app.doctor.broker import examine_broker, examine_strangers
from relay.app.doctor.database import examine_database
from relay.app.doctor.findings import CHECK_SECONDS, Finding, Findings, Level, bounded, fault
from relay.app.doctor.gateway import GatewayFound, examine_gateway
from relay.app.doctor.receivers import examine_receivers
from relay.app.doctor.standing import examine_standing
from relay.app.doctor.threads import LeftAlone
from relay.app.windows import windows_of
from relay.settings import Settings
from relay.store.database import Database

__all__ = ["Finding", "Findings", "Level", "examine", "fault"]


async def examine(
    settings: Settings, *, endpoint: str | None, is_here: bool, verify: ssl.SSLContext | bool = True
) -> Findings:
    """Every finding, in a fixed order. `is_here`: RELAY_URL leads to this machine, so no proxy is asked for it.
    `verify`: who is believed there.

    The loop's threads are from then on such as nobody waits for in the end.
    """
    asyncio.get_running_loop().set_default_executor(LeftAlone())
    gateway = asyncio.create_task(_gateway(settings, trust_env=not is_here, verify=verify), name="gateway")

    async def elsewhere() -> bool:
        return (await gateway).answered and not is_here

    async def gateways() -> Findings:
        return (await gateway).findings

    async def answers() -> bool:
        return (await gateway).answered

    async def further(database: Database) -> Findings:
        receivers = await examine_receivers(database, settings, endpoint, answers)
        if endpoint is not None:
            return receivers
        strangers = await examine_strangers(settings, database)
        return (*strangers, *receivers, *await examine_standing(database, windows_of(settings)))

    scheme = "http" if settings.tls_cert is None else "https"
    groups = await asyncio.gather(
        _in_thread("settings", lambda: machine.examine_settings(settings)),
        _in_thread("authorities", machine.examine_authorities),
        _in_thread("certificate", lambda: machine.examine_certificate(settings)),
        _in_thread("disk", lambda: machine.examine_disk(settings)),
        _in_thread("ports", lambda: machine.examine_port(settings.bind, "RELAY_BIND", scheme=scheme)),
        _in_thread("ports", lambda: machine.examine_port(settings.metrics_bind, "RELAY_METRICS_BIND")),
        _in_thread("ports", lambda: machine.examine_port(settings.testkit_bind, "RELAY_TESTKIT_BIND", needed=False)),
        gateways(),
        examine_broker(settings),
        examine_database(settings, elsewhere, further),
    )
    return tuple(finding for findings in groups for finding in findings)


async def _gateway(settings: Settings, *, trust_env: bool, verify: ssl.SSLContext | bool) -> GatewayFound:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await examine_gateway(settings.url, trust_env=trust_env, verify=verify)
    except TimeoutError:
        late = fault("gateway", f"nothing answers at {settings.url} within {CHECK_SECONDS:g} s: look at its log")
        return GatewayFound((late,), answered=False)


async def _in_thread(check: str, work: Callable[[], Findings]) -> Findings:
    return await bounded(check, asyncio.to_thread(work), "the machine is overloaded, or its file system hangs")
