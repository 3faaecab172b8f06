"""The rules as a gateway reads them: once all of them, and then what changed, always as of one moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from relay.domain.endpoint import EndpointConfig
from relay.store import rules
from relay.store.database import Connection, Database
from relay.store.rules import Snapshot
from tests.store.world import TENANT, World, new_id

OTHER = "acct_other"


def named(name: str, *patterns: str) -> EndpointConfig:
    return EndpointConfig(name=name, url="http://127.0.0.1/", event_types=patterns or ("*",))


def routed(snapshot: Snapshot, event_type: str = "a", tenant: str = TENANT) -> list[str]:
    return sorted(rule.consumer for rule in snapshot.rules.route(tenant, event_type))


@pytest.fixture
def whole_readings(monkeypatch: pytest.MonkeyPatch) -> list[Database]:
    """An entry for each time that all rules were read."""
    seen: list[Database] = []
    read = rules._whole  # what is to be counted is inside

    async def counted(database: Database) -> Snapshot:
        seen.append(database)
        return await read(database)

    monkeypatch.setattr(rules, "_whole", counted)
    return seen


async def test_what_was_made_changed_and_removed_since_is_brought_up_to_date_without_reading_all(
    world: World, whole_readings: list[Database]
) -> None:
    await world.add_endpoint(named("stays"))
    changing, leaving = await world.add_endpoint(named("changing", "b")), await world.add_endpoint(named("leaving"))
    known = await world.endpoints.snapshot()

    await world.add_endpoint(named("new"))
    await world.endpoints.update(TENANT, changing, lambda config: replace(config, name="changed", event_types=("*",)))
    await world.endpoints.remove(TENANT, leaving)
    now = await world.endpoints.snapshot(known)

    assert routed(known) == ["leaving", "stays"]
    assert routed(now) == ["changed", "new", "stays"]
    assert len(whole_readings) == 1
    assert now.versions == await world.versions()
    assert now.rules.version == now.versions.rules


async def test_a_tenant_that_was_made_since_has_its_partition(world: World) -> None:
    known = await world.endpoints.snapshot()

    await world.add_tenant(OTHER, 13)
    await world.sql("update versions set credentials = credentials + 1")
    await world.add_endpoint(named("theirs"), tenant=OTHER)
    now = await world.endpoints.snapshot(known)

    assert now.partitions == {TENANT: 6, OTHER: 13}
    assert routed(now, tenant=OTHER) == ["theirs"]


async def test_nothing_that_changed_leaves_everything_as_it_was(world: World, whole_readings: list[Database]) -> None:
    await world.add_endpoint(named("stays"))
    known = await world.endpoints.snapshot()

    now = await world.endpoints.snapshot(known)

    assert (now.versions, now.mark, routed(now)) == (known.versions, known.mark, ["stays"])
    assert len(whole_readings) == 1


async def test_a_change_that_is_not_on_record_has_all_rules_read_anew(
    world: World, whole_readings: list[Database]
) -> None:
    """As by a process of the version before, while Relay is upgraded."""
    known = await world.endpoints.snapshot()

    await world.add_endpoint(named("new"))
    await world.sql("update versions set rules = rules + 1")
    now = await world.endpoints.snapshot(known)

    assert routed(now) == ["new"]
    assert len(whole_readings) == 2


async def test_a_version_of_the_same_number_that_is_another_one_has_all_rules_read_anew(world: World) -> None:
    """As after a failover that lost the last change, and one more was made since."""
    lost = await world.add_endpoint(named("lost"))
    known = await world.endpoints.snapshot()

    # what the other server has: that endpoint never was, another change bears its number
    await world.sql("delete from endpoint_state where endpoint_id = $1", lost)
    await world.sql("delete from endpoints where id = $1", lost)
    await world.sql("delete from rule_changes where version = $1", known.versions.rules)
    await world.sql("update versions set rules = rules - 1")
    for name in ("other", "next"):
        await world.add_endpoint(named(name))
    now = await world.endpoints.snapshot(known)

    assert now.versions.rules == known.versions.rules + 1
    assert routed(now) == ["next", "other"]


async def test_versions_that_went_back_have_all_rules_read_anew(world: World) -> None:
    known = await world.endpoints.snapshot()
    ahead = replace(known, versions=replace(known.versions, rules=known.versions.rules + 5))

    assert (await world.endpoints.snapshot(ahead)).versions == known.versions


class Interrupted(Database):
    """The same database, with something done before a connection is borrowed for the n-th time."""

    def __init__(self, inner: Database, before: int, happens: Callable[[], Awaitable[object]]) -> None:
        self._inner = inner
        self._left = before
        self._happens = happens

    @asynccontextmanager
    async def connection(self, within: float | None = None) -> AsyncIterator[Connection]:
        self._left -= 1
        if self._left == 0:
            await self._happens()
        async with self._inner.connection(within) as connection:
            yield connection


async def test_what_changes_while_the_pages_are_read_is_in_the_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of one: once the first two are read, what was on them changes and goes, and something comes."""
    monkeypatch.setattr(rules, "PAGE", 1)
    first, second = [await world.add_endpoint(named(name)) for name in ("first", "second")]
    await world.add_endpoint(named("third"))

    async def change() -> None:
        await world.endpoints.update(TENANT, first, lambda config: replace(config, name="changed"))
        await world.endpoints.remove(TENANT, second)
        await world.add_endpoint(named("new"))

    found = await rules.snapshot(Interrupted(world.database, 4, change))

    assert routed(found) == ["changed", "new", "third"]
    assert found.versions == await world.versions()


async def test_the_newest_ten_thousand_changes_are_kept(world: World) -> None:
    await world.sql("update versions set rules = 10004")
    await world.sql(
        "insert into rule_changes (version, endpoint_id) select n, $1 from generate_series(5, 10004) n", new_id()
    )

    await world.add_endpoint(named("new"))

    (row,) = await world.sql("select count(*) as rows, min(version) as first, max(version) as last from rule_changes")
    assert tuple(row) == (10_000, 6, 10_005)
