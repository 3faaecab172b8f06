"""What the tests of `ops/` share: the programs, and a real Relay that a real Prometheus has watched."""

from __future__ import annotations

import pytest

from tests.support.programs import Programs, find_programs


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Prometheus and promtool."""
    return find_programs(request.config, tmp_path_factory)
