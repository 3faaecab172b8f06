"""Many processes append, claim and record at once, and nothing is lost, doubled or stuck.

`make soak` runs it for a minute; `RELAY_TEST_SOAK_SECONDS` says for how long.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.store.soak_worker import SHARED_KEYS, TENANTS
from tests.store.verifying import verified
from tests.store.world import World

SECONDS = float(os.environ.get("RELAY_TEST_SOAK_SECONDS", "6"))
APPENDERS = 2
DELIVERERS = 3
LANES = 10
LIMIT_SECONDS = 3 * SECONDS + 60
ROOT = Path(__file__).parents[2]


async def play(role: str, dsn: str) -> int:
    """Run one process to its end; answers its count."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.store.soak_worker",
        role,
        dsn,
        str(SECONDS),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    return int(out)


async def verify_again_and_again(world: World) -> None:
    """Verify until cancelled, while everything moves. Raises `AssertionError` with what is wrong."""
    while True:
        found = await verified(world, window=1_000)
        assert found.ok, found


@pytest.mark.timeout(LIMIT_SECONDS + 30)
async def test_processes_that_append_claim_and_record_at_once_lose_nothing(world: World, database_dsn: str) -> None:
    for tenant, partition in TENANTS.items():
        if partition != 6:
            await world.add_tenant(tenant, partition)
        for _ in range(LANES):
            await world.add_endpoint(tenant=tenant)
    verifying = asyncio.create_task(verify_again_and_again(world))
    counts = await asyncio.gather(
        *(play("append", database_dsn) for _ in range(APPENDERS)),
        *(play("deliver", database_dsn) for _ in range(DELIVERERS)),
    )
    verifying.cancel()
    with suppress(asyncio.CancelledError):
        await verifying
    appended = sum(counts[:APPENDERS])
    assert await world.value("select deadlocks from pg_stat_database where datname = current_database()") == 0
    found = await verified(world)
    assert (found.faults, found.tally.events) == ((), appended)
    assert set(await world.statuses()) == {"delivered"}
    assert await world.rows_in("idempotency_keys") <= SHARED_KEYS * len(TENANTS)
    assert await world.rows_in("delivery_attempts") >= await world.rows_in("deliveries")
