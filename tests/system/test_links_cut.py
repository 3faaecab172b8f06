"""The way to the database is cut under load, with a reset or without a word: every process goes on by itself within
seconds, each sender is answered meanwhile, and nothing that was accepted is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import pytest

from tests.support.accounting import assert_complete
from tests.support.installation import BRIEF_LEASE, Installation, Service, add_endpoint, eventually, metrics
from tests.support.link import Link
from tests.support.producer import Event, Producer, ask, numbered
from tests.support.receiver import Receiver

EVENTS = 600
DEADLINE = 90.0
ANSWERED_SECONDS = 20.0
"""The documentation says 5; the machine may be busy with other tests."""

LOOPS = ("claimer", "recorder", "heartbeat", "reaper", "reconciler")

CUTS: Mapping[str, Callable[[Link], None]] = {
    "reset": Link.go_down,
    "without a word": lambda link: link.strand(new_ones_too=True),
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
async def test_processes_whose_links_are_cut_under_load_go_on_by_themselves_and_lose_nothing(
    installation: Installation, receiver: Receiver, transport: Mapping[str, str], cut: Callable[[Link], None]
) -> None:
    assert installation.dsn is not None
    async with Link(installation.dsn) as link:
        installation.environment |= {**transport, "DATABASE_URL": link.dsn}
        gateway = installation.gateway()
        dispatchers = [installation.dispatcher(**BRIEF_LEASE) for _ in range(2)]
        everybody = [gateway, *dispatchers]
        workers = await asyncio.to_thread(lambda: [service.worker() for service in everybody])
        await asyncio.to_thread(add_endpoint, gateway, receiver.url("/slow?ms=50"))
        events, producer = numbered(EVENTS), Producer([gateway.url])
        posting = asyncio.create_task(producer.post(events, DEADLINE))
        await producer.has_accepted(EVENTS // 5, DEADLINE)

        cut(link)
        began = time.monotonic()
        assert (await ask(gateway.url, Event("meanwhile", b"{}"), ANSWERED_SECONDS)).status == 503
        print(f"a sender was answered after {time.monotonic() - began:.1f} s")  # noqa: T201 - to read
        link.come_up()
        came_up, began = time.time(), time.monotonic()
        await posting
        await installation.all_closed(EVENTS, DEADLINE)
        print(f"all is delivered {time.monotonic() - began:.1f} s after the link was back")  # noqa: T201 - to read
        await eventually(lambda: have_gone_round(dispatchers, came_up), DEADLINE, "each loop has gone on")
        print(f"each loop has gone on after {time.monotonic() - began:.1f} s")  # noqa: T201 - to read
        assert [service.worker() for service in everybody] == workers, "nobody had to be restarted"
        await asyncio.to_thread(installation.close)

    assert_complete(receiver.received(), producer.accepted, events)
    assert len(producer.accepted) == EVENTS
    for service in everybody:
        assert "traceback" not in service.log.read_text().lower(), "a link that is cut is no bug"


async def have_gone_round(dispatchers: list[Service], since: float) -> bool:
    """Whether each loop of each has succeeded since an instant."""
    said = await asyncio.to_thread(lambda: [metrics(each) for each in dispatchers])
    return all(
        each[f'relay_loop_last_success_timestamp_seconds{{loop="{loop}"}}'] > since for each in said for loop in LOOPS
    )
