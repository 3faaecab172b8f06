"""A server that promises less than it did is noticed before the next 202, told by /readyz in words, and forgiven."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from tests.support.cluster import Cluster
from tests.support.installation import Installation, Service, api, eventually
from tests.support.producer import ask, numbered, until_accepted
from tests.system.conftest import QUORUM, ended

DEADLINE = 60.0


@pytest.fixture(scope="module")
def gateway(
    session_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Service]:
    """One gateway for all tests of this module."""

    async def database() -> str:
        await session_cluster.heal()
        return await session_cluster.create_database()

    name = asyncio.run(database())
    made = Installation(tmp_path_factory.mktemp("promise"), session_cluster.dsn(name), QUORUM)
    for installation in ended(made, request):
        yield installation.gateway()


Change = Callable[[Cluster], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Weakening:
    """What an operator does, how it is undone, and what `/readyz` says of it meanwhile."""

    name: str
    do: Change
    undo: Change
    words: str


async def _rename_both(cluster: Cluster) -> None:
    for name in cluster.standbys:
        await cluster.rename_standby(name, f"{name}x")


WEAKENINGS = (
    Weakening(
        "no standby is listed",
        lambda cluster: cluster.alter_system(synchronous_standby_names=""),
        lambda cluster: cluster.alter_system(synchronous_standby_names=None),
        "synchronous_standby_names is empty",
    ),
    Weakening(
        "any client will do",
        lambda cluster: cluster.alter_system(synchronous_standby_names="ANY 1 (*)"),
        lambda cluster: cluster.alter_system(synchronous_standby_names=None),
        "name the standbys",
    ),
    Weakening(
        "the standbys are renamed",
        _rename_both,
        lambda cluster: cluster.join(*cluster.standbys),
        "no standby has confirmed the journal",
    ),
    Weakening(
        "the role commits less",
        lambda cluster: cluster.fetch(cluster.primary, "alter role relay set synchronous_commit = local"),
        lambda cluster: cluster.fetch(cluster.primary, "alter role relay reset synchronous_commit"),
        "synchronous_commit is 'local'",
    ),
    Weakening(
        "the server commits less",
        lambda cluster: cluster.alter_system(synchronous_commit="remote_write"),
        lambda cluster: cluster.alter_system(synchronous_commit=None),
        "synchronous_commit is 'remote_write'",
    ),
)


@pytest.mark.parametrize("weakening", WEAKENINGS, ids=lambda weakening: weakening.name.replace(" ", "-"))
async def test_a_weaker_promise_is_noticed_before_the_next_202_and_forgiven_when_it_is_mended(
    cluster: Cluster, gateway: Service, weakening: Weakening, request: pytest.FixtureRequest
) -> None:
    first, second = numbered(2, prefix=weakening.name.replace(" ", "-"))
    await until_accepted(gateway.url, first, DEADLINE)
    await weakening.do(cluster)

    refused = await ask(gateway.url, second, DEADLINE)
    assert (refused.status, refused.json()["code"]) == (503, "journal_quorum")
    await eventually(partial(says, gateway, weakening.words), DEADLINE, "/readyz says why")

    await weakening.undo(cluster)
    await until_accepted(gateway.url, second, DEADLINE)
    await eventually(partial(says, gateway, "ok"), DEADLINE, "the journal is there again")


async def says(gateway: Service, words: str) -> bool:
    """Whether `/readyz` says that of the journal."""
    with api(gateway) as client:
        answer = await asyncio.to_thread(client.get, "/readyz")
    return words in answer.json()["checks"]["journal"]
