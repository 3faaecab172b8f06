"""Fixtures of the gateway's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.gateway.world import World


@pytest.fixture
async def world(database_dsn: str) -> AsyncIterator[World]:
    """A gateway over a fresh database."""
    async with World.over(database_dsn) as made:
        yield made
