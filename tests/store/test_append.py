"""The append: all or nothing, gapless, exact, and never from an old snapshot."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from relay.domain import ids
from relay.domain.delivery import DeadReason, DeliveryStatus
from relay.domain.endpoint import EndpointConfig
from relay.store.database import Database
from relay.store.faults import StoreRefused
from relay.store.journal import AppendResult, Journal, StaleSnapshot, Versions
from tests.store.world import KEY_SECONDS, SOURCE, TENANT, World, event, named, new_id

EVERYTHING_WRITTEN = ("journal", "receipts", "deliveries", "idempotency_keys")


async def rows_in(world: World, *tables: str) -> list[int]:
    """How many rows each of these tables has."""
    return [await world.rows_in(table) for table in tables]


async def test_an_appended_event_is_in_journal_receipt_and_deliveries(world: World) -> None:
    first, second = await world.add_endpoints(2)
    added = event(to=(first, second), payload=b'{"n":1}')
    (appended,) = await world.append(added)
    receipt = await world.receipts.get(TENANT, added.envelope.receipt_id)
    assert receipt is not None
    assert appended.result is AppendResult.APPENDED
    assert appended.position == receipt.position
    assert (receipt.expected, receipt.acked, receipt.outcome, receipt.reason) == (2, 0, None, None)
    assert [each.endpoint_id for each in receipt.deliveries] == [first, second]
    assert {each.status for each in receipt.deliveries} == {DeliveryStatus.PENDING}


async def test_the_envelope_comes_back_as_it_was_given(world: World) -> None:
    added = event(payload=b"{}")
    envelope = added.envelope._replace(
        schema="invoice.paid/v3",
        content_type="application/cloudevents+json; charset=utf-8",
        forwarded=(("traceparent", "00-ab-cd-01"), ("ce-é", 'quote " and \\')),
        hops=3,
        checked_us=11,
        assigned_us=12,
    )
    await world.append(replace(added, envelope=envelope))
    receipt = await world.receipts.get(TENANT, envelope.receipt_id)
    assert receipt is not None
    assert (receipt.schema, receipt.content_type) == (envelope.schema, envelope.content_type)
    assert (receipt.received_at, receipt.checked_us, receipt.assigned_us) == (envelope.received_at, 11, 12)
    assert (receipt.event_id, receipt.type, receipt.source) == (envelope.event_id, envelope.type, SOURCE)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00", b"a\x00b\\000\\x00", bytes(range(256)) * 17, b'{"n":1e400,"n":1,"\\u0000":"\xf0\x9f\x92\xa9"}'],
    ids=["empty", "one NUL", "escapes", "every byte", "odd JSON"],
)
async def test_a_payload_comes_back_byte_for_byte(world: World, payload: bytes) -> None:
    added = event(payload=payload)
    await world.append(added)
    stored = await world.receipts.payload(TENANT, added.envelope.receipt_id)
    assert stored is not None
    assert stored.body == payload


async def test_a_payload_of_a_megabyte_comes_back_byte_for_byte(world: World) -> None:
    added = event(payload=os.urandom(1 << 20))
    await world.append(added)
    stored = await world.receipts.payload(TENANT, added.envelope.receipt_id)
    assert stored is not None
    assert stored.body == added.envelope.payload


async def test_the_events_of_a_group_get_consecutive_numbers_in_their_order(world: World) -> None:
    appended = await world.append(*(event() for _ in range(50)))
    assert [each.position.number for each in appended if each.position] == list(range(1, 51))


async def test_a_tenants_events_are_numbered_in_the_tenants_own_partition(world: World) -> None:
    await world.add_tenant("acct_other", 11)
    group = [event(), event(tenant="acct_other", partition=11), event(), event(tenant="acct_other", partition=11)]
    appended = await world.append(*group)
    assert [str(each.position) for each in appended] == ["p06:1", "p11:1", "p06:2", "p11:2"]


async def test_an_event_without_a_route_is_a_dead_letter_and_its_receipt_stays_open(world: World) -> None:
    added = event()
    await world.append(added)
    receipt = await world.receipts.get(TENANT, added.envelope.receipt_id)
    assert receipt is not None
    assert (receipt.reason, receipt.expected, receipt.outcome) == (DeadReason.NO_ROUTE, 0, None)
    assert receipt.deliveries == ()


async def test_an_event_can_be_owed_to_five_thousand_endpoints(world: World) -> None:
    """Case C120: event and fan-out are one transaction, however many they are."""
    added = event(to=[new_id() for _ in range(5_000)])
    await world.append(added)
    first, last = ids.delivery_range(added.envelope.receipt_id)
    in_range = "select count(distinct endpoint_id) from deliveries where id between $1 and $2"
    assert await world.value(in_range, first, last) == 5_000
    assert await world.value("select expected from receipts") == 5_000


async def test_a_group_may_mix_fan_outs(world: World) -> None:
    lanes = [new_id() for _ in range(40)]
    group = [event(to=lanes[:size]) for size in (0, 1, 40, 0, 3)]
    await world.append(*group)
    owed = await world.sql(
        "select r.id, r.expected, (select count(*) from deliveries d where d.receipt_id = r.id) from receipts r"
    )
    assert {row[0]: (row[1], row[2]) for row in owed} == {
        each.envelope.receipt_id: (len(each.fan_out), len(each.fan_out)) for each in group
    }


async def test_an_empty_group_appends_nothing(world: World) -> None:
    assert await world.append() == []


def broken_payload_hash(added: Any) -> Any:  # what the type forbids is what is tried
    return replace(added, envelope=added.envelope._replace(payload_sha256=None))


def broken_text(added: Any) -> Any:  # as above
    return replace(added, envelope=added.envelope._replace(type="nul\x00inside"))


def broken_partition(added: Any) -> Any:  # as above
    return replace(added, partition=40_000)


@pytest.mark.parametrize("break_it", [broken_payload_hash, broken_text, broken_partition])
async def test_a_group_with_one_bad_event_in_the_middle_leaves_nothing(world: World, break_it: Any) -> None:  # as above
    lanes = await world.add_endpoints(2)
    group = [event(to=lanes, key=named(f"key-{place}")) for place in range(9)]
    group[4] = break_it(group[4])
    with pytest.raises(StoreRefused):
        await world.append(*group)
    assert await rows_in(world, *EVERYTHING_WRITTEN) == [0, 0, 0, 0]
    assert await world.value("select max(next_number) from journal_heads") == 1


async def test_a_receipt_id_that_exists_refuses_the_whole_group(world: World) -> None:
    first = event()
    await world.append(first)
    with pytest.raises(StoreRefused):
        await world.append(event(), event(receipt=first.envelope.receipt_id), event())
    assert await rows_in(world, "journal", "receipts") == [1, 1]
    (appended,) = await world.append(event())
    assert str(appended.position) == "p06:2"


@pytest.mark.parametrize("counter", ["rules", "credentials", "schemas"])
async def test_an_append_from_an_old_snapshot_is_refused_and_writes_nothing(world: World, counter: str) -> None:
    (lane,) = await world.add_endpoints(1)
    versions = await world.versions()
    await world.sql(f"update versions set {counter} = {counter} + 1")  # noqa: S608 # one of three names above
    with pytest.raises(StaleSnapshot):
        await world.journal.append(versions, [event(to=(lane,), key=named("k")), event()])
    assert await rows_in(world, *EVERYTHING_WRITTEN) == [0, 0, 0, 0]


async def test_an_append_of_one_event_from_an_old_snapshot_is_refused(world: World) -> None:
    with pytest.raises(StaleSnapshot):
        await world.journal.append(Versions(0, 1, 1), [event()])


@pytest.mark.parametrize("change", ["create", "update", "remove"])
async def test_a_change_of_an_endpoint_makes_every_snapshot_stale(world: World, change: str) -> None:
    (lane,) = await world.add_endpoints(1)
    versions = await world.versions()
    if change == "create":
        await world.add_endpoint()
    elif change == "update":
        await world.endpoints.update(TENANT, lane, lambda config: replace(config, event_types=("invoice.*",)))
    else:
        assert await world.endpoints.remove(TENANT, lane)
    with pytest.raises(StaleSnapshot):
        await world.journal.append(versions, [event()])


async def test_rules_are_the_newest_for_whoever_starts_after_the_change_was_answered(world: World) -> None:
    """Endpoints are made while appends run; none that was there before an append's snapshot may be missing from it."""
    missed: list[UUID] = []
    answered: list[UUID] = []
    done = asyncio.Event()

    async def make() -> None:
        for _ in range(30):
            answered.append(await world.add_endpoint())  # noqa: PERF401 # the others look at the list as it grows
        done.set()

    async def post() -> None:
        snapshot = await world.endpoints.snapshot()
        while not done.is_set():
            known = set(answered)
            while True:
                lanes = tuple(rule.endpoint_id for rule in snapshot.rules.route(TENANT, "invoice.paid"))
                try:
                    await world.journal.append(snapshot.versions, [event(to=lanes)])
                    break
                except StaleSnapshot:
                    snapshot = await world.endpoints.snapshot()
            missed.extend(known - set(lanes))

    async with asyncio.timeout(60):
        await asyncio.gather(make(), post(), post())
    assert missed == []


async def append_groups(dsn: str, tenants: dict[str, int], groups: int) -> None:
    """One appender: its own pool, groups that mix all tenants."""
    database = await Database.connect(dsn, name="appender", size=2)
    try:
        journal = Journal(database, key_retention_seconds=KEY_SECONDS)
        for _ in range(groups):
            group = [
                event(to=(new_id(),), tenant=tenant, partition=partition)
                for tenant, partition in sorted(tenants.items(), key=lambda _: os.urandom(2))
                for _ in range(3)
            ]
            await journal.append(Versions(1, 1, 1), group)
    finally:
        await database.close()


async def test_numbers_have_no_gap_and_no_double_when_many_append_at_once(world: World, database_dsn: str) -> None:
    tenants = {TENANT: 6, "acct_b": 0, "acct_c": 15, "acct_d": 6}
    for tenant, partition in tenants.items():
        if tenant != TENANT:
            await world.add_tenant(tenant, partition)
    async with asyncio.timeout(60):
        await asyncio.gather(*(append_groups(database_dsn, tenants, 12) for _ in range(6)))
    counted = await world.sql(
        "select partition, min(number), max(number), count(distinct number) from journal group by partition order by 1"
    )
    assert [tuple(row) for row in counted] == [(0, 1, 216, 216), (6, 1, 432, 432), (15, 1, 216, 216)]
    heads = await world.sql("select partition, next_number from journal_heads where next_number > 1 order by 1")
    assert [tuple(row) for row in heads] == [(0, 217), (6, 433), (15, 217)]


async def test_an_append_that_is_rolled_back_leaves_no_gap(world: World) -> None:
    """The head is taken in the same transaction, unlike a sequence."""
    await world.append(event())
    with pytest.raises(StoreRefused):
        await world.append(event(), broken_payload_hash(event()))
    (appended,) = await world.append(event())
    assert str(appended.position) == "p06:2"


async def test_numbers_are_in_the_order_of_the_commits(world: World) -> None:
    """Whoever has seen a number has seen every smaller one of that partition."""
    seen_with_gaps: list[tuple[int, int]] = []
    done = asyncio.Event()

    async def look() -> None:
        while not done.is_set():
            count, highest = (await world.sql("select count(*), coalesce(max(number), 0) from journal"))[0]
            if count != highest:
                seen_with_gaps.append((count, highest))

    async def append() -> None:
        versions = await world.versions()
        for _ in range(25):
            await world.journal.append(versions, [event() for _ in range(4)])

    async def append_all() -> None:
        await asyncio.gather(*(append() for _ in range(4)))
        done.set()

    async with asyncio.timeout(60):
        await asyncio.gather(append_all(), look())
    assert seen_with_gaps == []
    assert await world.value("select count(*) from journal") == 400


async def test_an_event_of_a_day_without_a_partition_is_kept_all_the_same(world: World) -> None:
    """Cases C100 and C101: the default partition takes what no day takes."""
    long_ago = event(receipt=new_id(unix_ms=1_000_000_000_000), payload=b"old")
    await world.append(long_ago)
    assert await world.value("select count(*) from journal_default") == 1
    stored = await world.receipts.payload(TENANT, long_ago.envelope.receipt_id)
    assert stored is not None
    assert stored.body == b"old"


async def test_a_configuration_does_not_matter_to_the_append(world: World) -> None:
    """An endpoint that was removed between routing and append is owed the event; burying it is the queue's."""
    lane = await world.add_endpoint(EndpointConfig(name="gone", url="http://127.0.0.1/"))
    await world.endpoints.remove(TENANT, lane)
    await world.append(event(to=(lane,)))
    assert await world.statuses() == {"pending": 1}
