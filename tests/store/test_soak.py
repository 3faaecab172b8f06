"""Many processes append, claim and record at once, and nothing is lost, doubled or stuck.

`make soak` runs it for a minute; `RELAY_TEST_SOAK_SECONDS` says for how long.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.store.soak_worker import SHARED_KEYS, TENANTS
from tests.store.world import World

SECONDS = float(os.environ.get("RELAY_TEST_SOAK_SECONDS", "6"))
APPENDERS = 2
DELIVERERS = 3
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


@pytest.mark.timeout(LIMIT_SECONDS + 30)
async def test_processes_that_append_claim_and_record_at_once_lose_nothing(world: World, database_dsn: str) -> None:
    for tenant, partition in TENANTS.items():
        if partition != 6:
            await world.add_tenant(tenant, partition)
    await world.add_endpoints(30)
    counts = await asyncio.gather(
        *(play("append", database_dsn) for _ in range(APPENDERS)),
        *(play("deliver", database_dsn) for _ in range(DELIVERERS)),
    )
    appended = sum(counts[:APPENDERS])
    assert await world.value("select deadlocks from pg_stat_database where datname = current_database()") == 0
    assert await world.rows_in("journal") == await world.rows_in("receipts") == appended
    gaps = "select partition from journal group by partition having count(distinct number) <> max(number)"
    assert await world.sql(gaps) == []
    assert set(await world.statuses()) == {"delivered"}
    unproved = """
        select r.id from receipts r left join deliveries d on d.receipt_id = r.id group by r.id
        having r.expected <> count(d.id) or r.acked <> r.expected
            or r.outcome is distinct from case when r.expected > 0 then 'delivered'::receipt_outcome end
    """
    assert await world.sql(unproved) == []
    assert await world.rows_in("idempotency_keys") <= SHARED_KEYS * len(TENANTS)
    assert await world.rows_in("delivery_attempts") >= await world.rows_in("deliveries")
