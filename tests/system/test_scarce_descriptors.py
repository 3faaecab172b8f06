"""A dispatcher that has no descriptors left: trouble of its own, which no endpoint and no delivery pays for (C17)."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.support.installation import Installation, add_endpoint, eventually, post
from tests.support.receiver import Receiver

WITHIN = 60.0
ENDPOINTS = 20

OWED = "select attempts, status::text from deliveries"
LANES = "select distinct breaker::text, failures from endpoint_state"


@contextmanager
def no_descriptor_left(pid: int) -> Iterator[None]:
    """Take from a running process every number that it does not use; what is open stays open."""
    used = {int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()}
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (next(n for n in count() if n not in used), hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


async def test_without_descriptors_nothing_is_charged_and_all_is_delivered_once_there_are_some(
    installation: Installation,
) -> None:
    with Receiver(host="0.0.0.0") as receiver:
        gateway = installation.gateway()
        dispatcher = installation.dispatcher()
        for number in range(ENDPOINTS):
            host = f"127.0.3.{number + 1}"
            add_endpoint(gateway, f"http://{host}:{receiver.port}/ok/{number}", event_types=["scarce.sent"])

        with no_descriptor_left(dispatcher.worker()):
            assert post(gateway, b"{}", relay_event_type="scarce.sent").status_code == 202

            async def told() -> bool:
                return '"sends_failed_here"' in dispatcher.log.read_text()

            await eventually(told, WITHIN, "the dispatcher tells of its trouble")

            async def back() -> bool:
                return {tuple(row) for row in await installation.fetch(OWED)} == {(0, "pending")}

            await eventually(back, WITHIN, "all deliveries went back with no attempt charged")
            assert receiver.received() == []

        await installation.all_closed(1, WITHIN)
        assert {tuple(row) for row in await installation.fetch(OWED)} == {(1, "delivered")}
        assert [tuple(row) for row in await installation.fetch(LANES)] == [("closed", 0)]
        assert await installation.value("select count(*) from delivery_attempts where outcome_class <> 'success'") == 0
        assert len(receiver.received()) == ENDPOINTS
    assert "Too many open files" in dispatcher.log.read_text()
