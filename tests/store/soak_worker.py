"""One process of the soak: appends, or claims and records, until it is told to stop.

Owns nothing but its loop; `test_soak` starts several of them and counts what came of it. Run as
`python -m tests.store.soak_worker ROLE DSN SECONDS`; prints how many events it appended, or attempts it recorded.
"""

from __future__ import annotations

import random
import sys
import time

import uvloop

from relay.domain.delivery import DeliveryMove
from relay.store.database import Commits, Database
from relay.store.health import Health
from relay.store.journal import AppendResult
from relay.store.queue import FIRST_LANE
from tests.store.world import World, attempt, event, named

TENANTS = {"acct_default": 6, "acct_b": 0, "acct_c": 15}
SHARED_KEYS = 500
MOST_OWED = 5_000
"""Appenders wait while more than this is owed, so that the end does not consist of draining."""


async def append(world: World, seconds: float) -> int:
    """Append groups over all tenants with fan-outs from 0 to 5; some keys are used by every appender."""
    snapshot = await world.endpoints.snapshot()
    rules = snapshot.rules.rules
    lanes = {tenant: [rule.endpoint_id for rule in rules if rule.tenant == tenant] for tenant in TENANTS}
    health = Health(world.database)
    ends_at, appended = time.monotonic() + seconds, 0
    while time.monotonic() < ends_at:
        if await health.owed() > MOST_OWED:
            continue
        shared = [named(f"shared-{number}") for number in random.sample(range(SHARED_KEYS), 5)]
        keys = [*shared, *[None] * 20]
        random.shuffle(keys)
        tenants = [random.choice(list(TENANTS)) for _ in keys]
        group = [
            event(
                to=random.sample(lanes[tenant], random.randrange(6)), key=key, tenant=tenant, partition=TENANTS[tenant]
            )
            for key, tenant in zip(keys, tenants, strict=True)
        ]
        results = await world.journal.append(snapshot.versions, group)
        appended += sum(each.result is AppendResult.APPENDED for each in results)
    return appended


async def deliver(world: World, claims: Database, seconds: float) -> int:
    """Claim and record in batches of any order: mostly acks, some retries and hand-backs, some leases left to lapse.

    Goes on after its time until nothing is owed.
    """
    health = Health(world.database)
    ends_at, recorded, after = time.monotonic() + seconds, 0, FIRST_LANE
    claiming = World.over(claims)
    while True:
        over = time.monotonic() >= ends_at
        if over and not await health.owed():
            return recorded
        lapses = not over and random.random() < 0.05
        claim = await claiming.claim(after=after, batch=random.choice((10, 100)), lease=-1.0 if lapses else 60.0)
        after = claim.resume_after
        if lapses:
            await world.queue.reap(batch=1_000)
        batch = list(claim.deliveries)
        random.shuffle(batch)
        cut = 0 if over else len(batch) // 10
        handed_back = [(each.id, each.lease_token) for each in batch[:cut]]
        retried = [attempt(each, DeliveryMove.RETRY) for each in batch[cut : 2 * cut]]
        acked = [attempt(each) for each in batch[2 * cut :]]
        await world.queue.hand_back(handed_back)
        await world.record(*retried, *acked)
        recorded += len(retried) + len(acked)


async def main(role: str, dsn: str, seconds: float) -> None:
    """Play the role and print the count."""
    database = await Database.connect(dsn, name=f"soak-{role}", size=2)
    claims = await Database.connect(dsn, name=f"soak-{role}", size=1, commits=Commits.LAZY)
    world = World.over(database)
    count = await (append(world, seconds) if role == "append" else deliver(world, claims, seconds))
    await claims.close()
    await database.close()
    print(count, flush=True)  # noqa: T201 # read by the test


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
