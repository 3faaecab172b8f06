"""What the tests of this room share: a house to work in and a receiver to send to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relay.store.database import Database
from tests.support.dispatching import SECRET, House
from tests.support.receiver import Receiver


@pytest.fixture
def house(database_dsn: str, database: Database) -> House:
    return House(database_dsn, database)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver(secret=SECRET) as running:
        yield running
