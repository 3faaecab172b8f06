"""Barriers for tests."""

from __future__ import annotations

from relay.domain.telemetry import Happening
from relay.store.barrier import Barrier
from relay.store.database import Database
from tests.support.world import real_ambient


def barrier_of_one(database: Database) -> Barrier:
    """A journal on one machine, where there is nothing to wait for."""
    return Barrier(database, quorum=1, seconds=0.25, ambient=real_ambient(), emit=_unheard)


def _unheard(_: Happening) -> None:
    """Tell nobody."""
