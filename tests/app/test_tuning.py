"""What the dispatcher's parts are told, by the settings."""

import pytest

from relay.app.dispatcher import send_limits_of
from relay.settings import read


@pytest.mark.parametrize(("concurrency", "per_host"), [("2", 1), ("512", 256), ("10000", 5000)])
def test_a_host_has_as_many_connections_as_an_endpoint_may_have_requests(concurrency: str, per_host: int) -> None:
    limits = send_limits_of(read({"RELAY_GLOBAL_CONCURRENCY": concurrency, "RELAY_ENDPOINT_CONCURRENCY": "1"}))
    assert (limits.connections, limits.connections_per_host) == (int(concurrency), per_host)
