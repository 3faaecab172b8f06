"""Fixtures of the API's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from relay.api import readiness
from tests.api.world import World


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that is slow because the machine is busy with other tests is not taken for one that hangs."""
    monkeypatch.setattr(readiness, "CHECK_SECONDS", 30.0)


@pytest.fixture
async def world(database_dsn: str) -> AsyncIterator[World]:
    """The API and a gateway over a fresh database."""
    async with World.over(database_dsn) as made:
        yield made


@pytest.fixture
async def shared_world(shared_dsn: str) -> AsyncIterator[World]:
    """The API over the module's database, for tests that do not mind what others leave there."""
    async with World.over(shared_dsn) as made:
        yield made
