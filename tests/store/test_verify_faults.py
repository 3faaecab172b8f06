"""Each kind of fault, planted into a healthy database: it is found, named, and nothing else is said."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from uuid import UUID

import asyncpg
import pytest

from relay.domain.verification import FaultKind, Verification
from relay.store.database import Database
from relay.store.verify import Records, Verifying
from tests.store.verifying import DAY_MS, OTHER, OTHER_PARTITION, Fates, in_every_state, kinds, verified, walk
from tests.store.world import World, event, new_id, only
from tests.support.database import Server
from tests.support.verified import assert_right

K = FaultKind
DATABASE = f"relay_faults_{os.getpid()}"


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault: what makes it, of one of the receipts in `Fates` ($1), and what is to be found of it."""

    name: str
    sql: str
    kinds: set[FaultKind]
    unaccounted: int = 0
    fate: str | None = None


NEW = "overlay(id::text placing '{}' from 36)::uuid"
"""Another id of the same family."""

COPY = (
    "insert into deliveries (id, receipt_id, endpoint_id, tenant, journal_day, due_at)"
    " select {id}, {receipt}, endpoint_id, tenant, journal_day, now() from deliveries where receipt_id = $1 limit 1"
)

FAULTS = [
    # Positions.
    Planted("a position is missing", "select remove(4)", {K.MISSING_POSITION}),
    Planted("the last position is missing", "select remove(13)", {K.MISSING_POSITION}),
    Planted("the first position is missing", "select remove(1)", {K.MISSING_POSITION}),
    Planted(
        "a head is behind", "update journal_heads set next_number = next_number - 1 where partition = 6",
        {K.STRAY_POSITION},
    ),
    Planted(
        "a head is ahead", "update journal_heads set next_number = next_number + 1 where partition = 6",
        {K.MISSING_POSITION},
    ),
    Planted("a head is gone", "delete from journal_heads where partition = 9", {K.STRAY_POSITION}),
    Planted(
        "a number is below 1", "update journal set number = 0 where partition = 6 and number = 1",
        {K.STRAY_POSITION, K.MISSING_POSITION},
    ),
    Planted(
        "a partition that there is not", "update journal set partition = 16 where partition = 9 and number = 3",
        {K.STRAY_POSITION, K.MISSING_POSITION},
    ),
    Planted(
        "a number is there twice",
        "with cut as (update journal_heads set next_number = 3 where partition = 9)"
        " update journal set number = 2 where partition = 9 and number = 3",
        {K.DUPLICATE_POSITION},
    ),
    Planted(
        "a pruned position is there",
        "insert into pruned_ranges (day, partition, first, last) values ('2020-02-02', 6, 3, 4)",
        {K.PRUNED_POSITION},
    ),
    # Events.
    Planted(
        "a byte of a payload is another",
        "update journal set payload = set_byte(payload, 3, get_byte(payload, 3) # 1) where receipt_id = $1",
        {K.HASH_MISMATCH}, fate="dead",
    ),
    Planted(
        "a hash is another", "update journal set payload_sha256 = sha256('') where receipt_id = $1",
        {K.HASH_MISMATCH}, fate="waiting",
    ),
    Planted(
        "an event is gone but for all that hangs on it", "delete from journal where receipt_id = $1",
        {K.MISSING_POSITION, K.RECEIPT_WITHOUT_EVENT, K.KEY_WITHOUT_EVENT}, 2, fate="waiting",
    ),
    Planted(
        "an event lies in another day", "update journal set day = day - 1 where receipt_id = $1",
        {K.WRONG_DAY, K.RECEIPT_WITHOUT_EVENT, K.KEY_WITHOUT_EVENT}, 2, fate="waiting",
    ),
    # Receipts.
    Planted("a receipt is gone", "delete from receipts where id = $1", {K.EVENT_WITHOUT_RECEIPT}, 2, fate="dead"),
    Planted(
        "the receipt of an event that is owed to nobody is gone", "delete from receipts where id = $1",
        {K.EVENT_WITHOUT_RECEIPT}, 1, fate="unrouted",
    ),
    Planted(
        "a receipt of nothing",
        "insert into receipts (id, tenant, journal_day, event_id, type, rules_version, expected)"
        " select overlay(id::text placing 'ffff' from 20)::uuid, tenant, journal_day, 'x', type, 1, 1"
        " from receipts where id = $1",
        {K.RECEIPT_WITHOUT_EVENT}, 1, fate="dead",
    ),
    Planted(
        "a receipt whose id is none of ours",
        "insert into receipts (id, tenant, journal_day, event_id, type, rules_version, expected)"
        " values ('f0000000-0000-4000-8000-000000000000', 'acct_default', '2026-01-01', 'x', 'x', 1, 0)",
        {K.RECEIPT_WITHOUT_EVENT},
    ),
    *(
        Planted(f"a receipt differs in {change}", f"update receipts set {change} where id = $1",  # noqa: S608 # fixed
                {K.RECEIPT_DIFFERS}, fate="dead")
        for change in ("tenant = 'acct_other'", "type = 'x'", "event_id = 'x'", "journal_day = journal_day - 1")
    ),
    Planted(
        "a delivery is gone", "delete from deliveries where id = (select max(id::text)::uuid from deliveries"
        " where receipt_id = $1)", {K.MISSING_DELIVERIES}, 1, fate="delivered",
    ),
    Planted(
        "every delivery is gone", "delete from deliveries where receipt_id = $1", {K.MISSING_DELIVERIES}, 2,
        fate="waiting",
    ),
    Planted(
        "a delivery too many", COPY.format(id=NEW.format("7"), receipt="receipt_id"), {K.SURPLUS_DELIVERIES}, 1,
        fate="dead",
    ),
    Planted("too few acks", "update receipts set acked = 1 where id = $1", {K.COUNTERS_DIFFER}, fate="delivered"),
    Planted("too many acks", "update receipts set acked = 2 where id = $1", {K.COUNTERS_DIFFER}, fate="dead"),
    Planted("no discards", "update receipts set discarded = 0 where id = $1", {K.COUNTERS_DIFFER}, fate="given_up"),
    Planted("too many discards", "update receipts set discarded = 1 where id = $1", {K.COUNTERS_DIFFER}, fate="dead"),
    *(
        Planted(
            f"closed although {fate}", "update receipts set outcome = 'delivered', closed_at = now() where id = $1",
            {K.CLOSED_BUT_OWED}, fate=fate,
        )
        for fate in ("dead", "waiting", "in_flight", "awaiting_ack")
    ),
    Planted(
        "closed although it is a dead letter for want of a route",
        "update receipts set outcome = 'closed_incomplete', closed_at = now(), unrouted_at = null where id = $1",
        {K.CLOSED_BUT_OWED}, fate="unrouted",
    ),
    Planted(
        "expired although it is owed", "update receipts set outcome = 'expired', closed_at = now() where id = $1",
        {K.CLOSED_BUT_OWED}, fate="waiting",
    ),
    *(
        Planted(
            f"open although {fate}", "update receipts set outcome = null, closed_at = null where id = $1",
            {K.OPEN_BUT_SETTLED}, fate=fate,
        )
        for fate in ("delivered", "redelivered", "given_up")
    ),
    *(
        Planted(f"{outcome} although {fate}", f"update receipts set outcome = '{outcome}' where id = $1",  # noqa: S608 # fixed
                {K.WRONG_OUTCOME}, fate=fate)
        for fate, outcome in (
            ("delivered", "delivered_after_redrive"),
            ("delivered", "closed_incomplete"),
            ("redelivered", "delivered"),
            ("given_up", "delivered"),
        )
    ),
    Planted(
        "no dead letter for want of a route", "update receipts set unrouted_at = null where id = $1",
        {K.UNEXPLAINED_NO_ROUTE}, fate="unrouted",
    ),
    Planted(
        "a dead letter for want of a route that has one", "update receipts set unrouted_at = now() where id = $1",
        {K.UNEXPLAINED_NO_ROUTE}, fate="waiting",
    ),
    # Deliveries.
    Planted(
        "a delivery of nothing", COPY.format(id="'0197c0de-0000-7000-8000-000000000001'::uuid",
                                             receipt="'0197c0de-0000-7000-8000-000000000000'::uuid"),
        {K.DELIVERY_WITHOUT_RECEIPT}, 1, fate="dead",
    ),
    Planted(
        "a delivery whose id is none of ours", COPY.format(id="'f0000000-0000-4000-8000-000000000001'::uuid",
                                                           receipt="'f0000000-0000-4000-8000-000000000002'::uuid"),
        {K.DELIVERY_WITHOUT_RECEIPT}, 1, fate="dead",
    ),
    Planted(
        "a delivery that its receipt does not find",
        COPY.format(id="'0197c0de-0000-7000-8000-000000000001'::uuid", receipt="receipt_id"),
        {K.MISPLACED_DELIVERY}, 1, fate="dead",
    ),
    *(
        Planted(
            f"a delivery differs in {change}",
            f"update deliveries set {change} where id = (select max(id::text)::uuid from deliveries"  # noqa: S608 # fixed
            " where receipt_id = $1)",
            {K.DELIVERY_DIFFERS}, 1, fate="waiting",
        )
        for change in ("tenant = 'acct_other'", "journal_day = journal_day + 1")
    ),
    Planted(
        "deliveries to an endpoint that never was",
        "update deliveries set endpoint_id = gen_random_uuid() where receipt_id = $1",
        {K.DELIVERY_WITHOUT_ENDPOINT}, 2, fate="waiting",
    ),
    Planted(
        "deliveries to another tenant's endpoint",
        "update deliveries set endpoint_id = (select id from endpoints where name = 'theirs') where receipt_id = $1",
        {K.DELIVERY_WITHOUT_ENDPOINT}, 2, fate="waiting",
    ),
    *(
        Planted(
            f"a state that nothing leads to: {fate}, {change}", f"update deliveries set {change} where receipt_id = $1",  # noqa: S608 # fixed
            {K.IMPOSSIBLE_STATE}, 2, fate=fate,
        )
        for change, fate in (
            ("lease_until = null", "in_flight"),
            ("lease_until = now()", "waiting"),
            ("due_at = 'infinity'", "waiting"),
            ("dead_at = now()", "waiting"),
            ("dead_at = now()", "in_flight"),
            ("dead_at = now()", "void"),
            ("attempts = -1", "waiting"),
            ("generation_attempts = 5", "waiting"),
        )
    ),
    Planted(
        "deliveries are void and their event is not", "update deliveries set status = 'void' where receipt_id = $1",
        {K.VOID_MISMATCH}, 2, fate="waiting",
    ),
    Planted(
        "an event is void and its deliveries are not",
        "update receipts set void_at = now() where id = $1", {K.VOID_MISMATCH}, 2, fate="waiting",
    ),
    Planted(
        "an event counts again and its deliveries are void",
        "update receipts set void_at = null where id = $1", {K.VOID_MISMATCH}, 2, fate="void",
    ),
    Planted(
        "an event counts again that is owed to nobody, and is no dead letter",
        "update receipts set void_at = null where id = $1", {K.UNEXPLAINED_NO_ROUTE}, fate="void_unrouted",
    ),
    Planted(
        "a void event's delivery is gone", "delete from deliveries where id in (select id from deliveries"
        " where receipt_id = $1 limit 1)", {K.MISSING_DELIVERIES}, fate="void",
    ),
    Planted(
        "a void event's payload is another", "update journal set payload = '' where receipt_id = $1",
        {K.HASH_MISMATCH}, fate="void",
    ),
    Planted(
        "a delivery is not what its receipt counted",
        "update deliveries set status = 'pending', acked_at = null, dead_at = null where receipt_id = $1",
        {K.COUNTERS_DIFFER, K.CLOSED_BUT_OWED}, fate="delivered",
    ),
    # Keys.
    Planted(
        "a key of nothing", "update idempotency_keys set receipt_id = gen_random_uuid() where receipt_id = $1",
        {K.KEY_WITHOUT_EVENT}, fate="waiting",
    ),
    Planted(
        "a key of another tenant's event", "update idempotency_keys set tenant = 'acct_other' where receipt_id = $1",
        {K.KEY_WITHOUT_EVENT}, fate="waiting",
    ),
]  # fmt: skip # a table, each fault as few lines as it takes

REMOVE = """
create function remove(gone bigint) returns void language sql as $$
    delete from deliveries where receipt_id in (select receipt_id from journal where partition = 6 and number = gone);
    delete from receipts where id in (select receipt_id from journal where partition = 6 and number = gone);
    delete from idempotency_keys
    where receipt_id in (select receipt_id from journal where partition = 6 and number = gone);
    delete from journal where partition = 6 and number = gone;
$$
"""


@pytest.fixture(scope="module")
def healthy(database_server: Server) -> Iterator[tuple[str, Fates]]:
    """A database with every state, for tests that undo what they plant into it."""

    async def make() -> Fates:
        await database_server.run(f"create database {DATABASE} template relay_template")
        database = await Database.connect(database_server.dsn(DATABASE), name="relay-tests", size=1)
        world = World.over(database)
        fates = await in_every_state(world)
        await world.sql(REMOVE)
        await database.close()
        return fates

    yield database_server.dsn(DATABASE), asyncio.run(make())
    asyncio.run(database_server.run(f"drop database {DATABASE} with (force)"))


@pytest.mark.parametrize("planted", FAULTS, ids=lambda each: each.name)
async def test_a_fault_is_found_and_named_and_nothing_else_is(healthy: tuple[str, Fates], planted: Planted) -> None:
    dsn, fates = healthy
    connection = await asyncpg.connect(dsn)
    undone = connection.transaction()
    await undone.start()
    try:
        world = World.over(only(connection))
        arguments = [] if planted.fate is None else [getattr(fates, planted.fate)]
        assert (await verified(world)).ok
        await world.sql(planted.sql, *arguments)
        found = await verified(world)
    finally:
        await undone.rollback()
        await connection.close()
    assert kinds(found) == planted.kinds
    assert found.unaccounted == planted.unaccounted
    assert not found.ok
    assert found.gapless == (K.MISSING_POSITION not in planted.kinds)


def test_every_kind_of_fault_is_planted() -> None:
    left_behind = {K.LEFTOVER_RECEIPT, K.LEFTOVER_DELIVERY}  # by pruning, see test_verify
    assert set().union(*(planted.kinds for planted in FAULTS)) == set(FaultKind) - left_behind


async def faults_of(found: Verification) -> dict[FaultKind, tuple[int, tuple[str, ...]]]:
    return {each.kind: (each.count, each.first) for each in found.faults}


async def test_a_fault_is_named_by_what_it_is_found_under(world: World) -> None:
    fates = await in_every_state(world)
    await world.sql("update receipts set acked = 1 where id = $1", fates.delivered)
    await world.sql("update journal set payload = '' where receipt_id = $1", fates.dead)
    await world.sql("update journal_heads set next_number = next_number + 3 where partition = $1", OTHER_PARTITION)
    (strange,) = await world.sql(
        "update deliveries set due_at = 'infinity' where id = (select id from deliveries where receipt_id = $1 limit 1)"
        " returning id",
        fates.waiting,
    )
    await world.sql("update idempotency_keys set journal_day = '2020-02-02' where receipt_id = $1", fates.waiting)
    assert await faults_of(await verified(world)) == {
        K.MISSING_POSITION: (3, ("p09:4-p09:6",)),
        K.HASH_MISMATCH: (1, (f"rcp_{fates.dead.hex}",)),
        K.COUNTERS_DIFFER: (1, (f"rcp_{fates.delivered.hex}",)),
        K.IMPOSSIBLE_STATE: (1, (str(strange["id"]),)),
        K.KEY_WITHOUT_EVENT: (1, (f"acct_default anonymous {fates.waiting.hex}",)),
    }


async def test_a_key_that_is_over_may_point_to_nothing(world: World) -> None:
    fates = await in_every_state(world)
    await world.sql(
        "update idempotency_keys set receipt_id = gen_random_uuid(), expires_at = now() where receipt_id = $1",
        fates.waiting,
    )
    assert (await verified(world)).ok


async def test_an_expired_receipt_may_leave_dead_letters(world: World) -> None:
    fates = await in_every_state(world)
    await world.sql("update receipts set outcome = 'expired', closed_at = now() where id = $1", fates.dead)
    assert (await verified(world)).ok


async def test_every_key_is_looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.app.verification.KEYS_WINDOW", 2)
    await in_every_state(world)
    await world.sql("update idempotency_keys set journal_day = '2020-02-02'")
    (fault,) = (await verified(world)).faults
    assert (fault.kind, fault.count) == (K.KEY_WITHOUT_EVENT, await world.rows_in("idempotency_keys"))


@pytest.mark.parametrize("window", [1, 2, 3])
async def test_positions_are_right_however_small_the_windows_are(
    world: World, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """Numbers 2, 4 and 5 of five are gone, and an event of another day bears the 3 as well."""
    monkeypatch.setattr("relay.app.verification.POSITIONS_WINDOW", window)
    await world.add_tenant(OTHER, OTHER_PARTITION)
    await world.append(*(event() for _ in range(5)))
    twin = event(receipt=new_id(unix_ms=(new_id().int >> 80) - DAY_MS), partition=OTHER_PARTITION, tenant=OTHER)
    await world.append(twin)
    await world.sql("update journal set partition = 6, number = 3 where receipt_id = $1", twin.envelope.receipt_id)
    await world.sql("update journal_heads set next_number = 1 where partition = $1", OTHER_PARTITION)
    await world.sql("delete from receipts where id in (select receipt_id from journal where number in (2, 4, 5))")
    await world.sql("delete from journal where number in (2, 4, 5)")
    found = await verified(world)
    assert await faults_of(found) == {
        K.MISSING_POSITION: (3, ("p06:2", "p06:4-p06:5")),
        K.DUPLICATE_POSITION: (1, ("p06:3",)),
    }
    assert (found.partitions[0].gaps, found.partitions[0].missing) == (2, 3)


async def test_what_is_right_when_it_is_looked_at_again_is_no_fault(world: World) -> None:
    fates = await in_every_state(world)
    await world.sql("update receipts set acked = 1 where id = $1", fates.delivered)

    class Mended(Verifying):
        async def records(self, day: date, first: UUID, last: UUID) -> Records:
            seen = await super().records(day, first, last)
            await world.sql("update receipts set acked = 2 where id = $1", fates.delivered)
            return seen

    assert (await walk(Mended(world.database))).ok


async def test_however_many_faults_there_are_only_the_first_are_named(world: World) -> None:
    await world.append(*(event(payload=os.urandom(8)) for _ in range(50)))
    await world.sql("update journal set payload = ''")
    (fault,) = (await verified(world, window=7)).faults
    assert (fault.count, len(fault.first)) == (50, 20)


async def test_the_last_word_of_a_test_of_the_whole_tells_what_is_wrong(world: World, database_dsn: str) -> None:
    fates = await in_every_state(world)
    await assert_right(database_dsn)
    await world.sql("update journal set payload = '' where receipt_id = $1", fates.dead)
    with pytest.raises(AssertionError, match="hash_mismatch"):
        await assert_right(database_dsn)
