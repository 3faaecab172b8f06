"""What the dispatcher's parts are told, by the settings."""

import pytest

from relay.app.dispatcher import send_limits_of
from relay.settings import read


@pytest.mark.parametrize("concurrency", ["2", "512", "10000"])
def test_nothing_that_was_launched_waits_in_the_sender(concurrency: str) -> None:
    limits = send_limits_of(read({"RELAY_GLOBAL_CONCURRENCY": concurrency, "RELAY_ENDPOINT_CONCURRENCY": "1"}))
    assert (limits.connections, limits.connections_per_host) == (int(concurrency), int(concurrency))
