"""An installation of one test, ended in any case, for claims about the processes themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installation import LOOPBACK, Installation, Service, free_port


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Installation]:
    """An installation with a database of its own."""
    installation = Installation(tmp_path, None)
    try:
        yield installation
    finally:
        installation.close()


@pytest.fixture
def testkit(alone: Installation) -> Service:
    """The smallest service: a parent and the receiver as its one worker. It needs no database."""
    environment = alone.environment | {"RELAY_TESTKIT_BIND": f"{LOOPBACK}:{free_port()}"}
    service = Service("testkit", ("testkit",), environment, alone.folder / "testkit.log")
    alone.services.append(service)
    service.start()
    assert service.started
    return service
