"""A log that nobody reads stops neither events nor deliveries nor the end of a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.installation import Installation, add_endpoint, api
from tests.support.receiver import Receiver

EVENTS = 400
WITHIN = 90.0
PIPE_BYTES = 65_536


@contextmanager
def unread(folder: Path, *names: str) -> Iterator[None]:
    """Pipes in place of log files, that are full from the start."""
    held = []
    for name in names:
        os.mkfifo(folder / name)
        descriptor = os.open(folder / name, os.O_RDWR | os.O_NONBLOCK)
        while True:
            try:
                os.write(descriptor, b"\n" * PIPE_BYTES)
            except BlockingIOError:
                break
        held.append(descriptor)
    try:
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)


@pytest.mark.parametrize("level", ["info", "debug"])
async def test_everything_goes_on_while_nobody_takes_a_line(
    installation: Installation, receiver: Receiver, level: str
) -> None:
    installation.environment["RELAY_LOG_LEVEL"] = level
    with unread(installation.folder, "gateway-0.log", "dispatcher-0.log"):
        gateway, dispatcher = installation.gateway(), installation.dispatcher()
        add_endpoint(gateway, receiver.url("/ok"), name="ledger")
        with api(gateway) as client:
            events = [{"type": "invoice.paid", "payload": number} for number in range(EVENTS)]
            assert client.post("/v1/events/batch", json=events).status_code == 202
        await receiver.arrive(EVENTS, WITHIN)
        assert gateway.stop() == dispatcher.stop() == 0
