"""What the tests of the whole share: an empty, migrated database, and an installation on it that is ended in any case.

The database belongs to an ordinary role, as the contract asks of operators, and `relay migrate` has made its shape.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from relay.embedded import EmbeddedServer
from tests.support.cluster import Cluster
from tests.support.database import Server
from tests.support.github_payloads import Payload, read_payloads
from tests.support.installation import Installation, Service
from tests.support.npm import kept_folder
from tests.support.postgres import throwaway_server
from tests.support.programs import Programs, find_programs
from tests.support.receiver import Receiver
from tests.support.stream_server import StreamServer, valkey
from tests.support.vendors import Vendors
from tests.support.verified import assert_right

ROLE = "relay_system_tests"
PASSWORD = "not-a-secret"
_numbers = count(1)
_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember a failure, for the fixtures that end after it."""
    report = yield
    if report.failed:
        for node in item.listchain():
            node.stash[_failed] = True
    return report


def owners_dsn(server: Server, database: str) -> str:
    """The address of a database for the ordinary role."""
    parts = urlsplit(server.dsn(database))
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{ROLE}:{PASSWORD}@{place}"))


@pytest.fixture(scope="session")
def template_database(database_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a database that `relay migrate` has migrated, to be cloned.

    A process that runs tests of two folders has two of them, each with a name of its own.
    """
    template = f"relay_system_{os.getpid()}_{next(_numbers)}"

    async def create() -> None:
        await database_server.run(
            f"do $$ begin create role {ROLE} login password '{PASSWORD}';"
            " exception when duplicate_object then null; end $$"
        )
        await database_server.run(f"create database {template} owner {ROLE}")

    asyncio.run(create())
    migration = Installation(tmp_path_factory.mktemp("migration"), owners_dsn(database_server, template))
    done = migration.run("migrate")
    assert done.returncode == 0, done.stderr
    yield template
    asyncio.run(database_server.drop(template))


@contextmanager
def fresh_database(server: Server, template: str) -> Iterator[str]:
    """The address of a fresh, migrated database, for its owner; dropped at the end of the block."""
    name = f"{template}_{next(_numbers)}"
    asyncio.run(server.clone(template, name, ROLE))
    try:
        yield owners_dsn(server, name)
    finally:
        asyncio.run(server.drop(name))


@pytest.fixture
def database_owner_dsn(database_server: Server, template_database: str) -> Iterator[str]:
    """The address of a fresh, migrated database of one test."""
    with fresh_database(database_server, template_database) as dsn:
        yield dsn


PATIENT = {"RELAY_READ_TIMEOUT_SECS": "30", "RELAY_TOTAL_TIMEOUT_SECS": "30", "RELAY_LEASE_SECS": "40"}
"""A receiver of one thread that hundreds of deliveries wait for is slow, not away."""


@pytest.fixture
def installation(database_owner_dsn: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Installation]:
    """An installation that nothing runs of yet."""
    yield from ended(Installation(tmp_path, database_owner_dsn), request)


@pytest.fixture
def patient(installation: Installation) -> Installation:
    """The test's installation, before anything runs of it, for claims about how often something arrives."""
    installation.environment |= PATIENT
    return installation


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    """A server of this test alone, that syncs its writes as the product's does."""
    with throwaway_server({}) as running:
        yield running


@pytest.fixture
def on_that_server(server: EmbeddedServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Installation]:
    """An installation on that server."""
    yield from ended(Installation(tmp_path, server.dsn), request)


@pytest.fixture
def alone(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Installation]:
    """An installation with a database of its own, for `relay up`."""
    yield from ended(Installation(tmp_path, None), request)


def ended(installation: Installation, request: pytest.FixtureRequest) -> Iterator[Installation]:
    """Hand out an installation and end it. Whatever was done to it, its database must be right then.

    After a failed test, print what its processes had to say.
    """
    try:
        yield installation
    finally:
        try:
            installation.close()
        finally:
            if request.node.stash.get(_failed, False):
                print(installation.log_tails())  # noqa: T201 - pytest shows it beside the failure
    if installation.dsn is not None and not request.node.stash.get(_failed, False):
        asyncio.run(assert_right(installation.dsn))


QUORUM = {"RELAY_JOURNAL_QUORUM": "2"}
"""Settings of an installation on three servers, of which each 202 waits for two."""


@pytest.fixture
def on_three(
    cluster: Cluster, cluster_database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Installation]:
    """An installation on three servers that nothing runs of yet."""
    for made in ended(Installation(tmp_path, cluster.dsn(cluster_database), QUORUM), request):
        try:
            yield made
        finally:
            cluster.thaw()


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Prometheus and promtool."""
    return find_programs(request.config, tmp_path_factory)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """The testkit's receiver, keeping what arrives."""
    with Receiver() as running:
        yield running


TRANSPORTS = ("polling", "broker")
"""The ways in which dispatchers learn of what is due."""


@pytest.fixture(scope="module", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """Settings of an installation; whatever asks for them is claimed of each way."""
    if request.param == "polling":
        yield {}
        return
    with StreamServer(valkey(), tmp_path_factory.mktemp("broker")) as broker:
        # what a killed process had read is announced again that soon
        yield {"RELAY_BROKER_URL": broker.url, "RELAY_BROKER_SWEEP_SECS": "2"}


@dataclass(frozen=True, slots=True)
class Running:
    """An installation that runs, for all tests of a module."""

    installation: Installation
    gateway: Service


@pytest.fixture(scope="module")
def running(
    database_server: Server,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Running]:
    """One gateway and one dispatcher for all tests of a module; each has endpoints and event types of its own."""
    with fresh_database(database_server, template_database) as dsn:
        for installation in ended(Installation(tmp_path_factory.mktemp("running"), dsn, PATIENT), request):
            gateway = installation.gateway()
            installation.dispatcher()
            yield Running(installation, gateway)


@pytest.fixture(scope="session")
def vendors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vendors]:
    """The receivers around the vendors' own libraries."""
    with ExitStack() as stack:
        yield Vendors(stack, lambda: kept_folder("vendors", request.config, tmp_path_factory))


@pytest.fixture(scope="session")
def payloads(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Payload]:
    """What GitHub sent."""
    return read_payloads(kept_folder("github-payloads", request.config, tmp_path_factory))
