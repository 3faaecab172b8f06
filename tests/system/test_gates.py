"""The gates with real processes: four dispatchers send no more than one would, and what waits loses nothing."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise

from tests.support.gate import Gate
from tests.support.installation import (
    BRIEF_LEASE,
    Installation,
    Service,
    add_endpoint,
    api,
    eventually,
    kill,
    metrics,
    replaced,
)
from tests.support.producer import Producer, numbered
from tests.support.receiver import Receiver

DEADLINE = 90.0

DISPATCHERS = 4

RATE, BURST, BACKLOG = 5.0, 5, 40

PROBE_SECONDS = 1.0 + 5.0
"""What a probe has before another one may try: its timeout and the grace."""

COOLDOWN, LONGEST_COOLDOWN = 0.3, 0.6
COOLDOWNS = {"breaker_cooldown_secs": str(COOLDOWN), "breaker_max_cooldown_secs": str(LONGEST_COOLDOWN)}
FIRST_FAILURES = 10 * DISPATCHERS
"""Each begins with a window of four, and may send one at a time after the first failure, until the fifth is on
record."""

FAR_POLL = {"poll_secs": "60"}
AT_ONCE_SECONDS = 20.0
"""On a machine that is busy with other tests; the poll comes much later."""


async def claims(installation: Installation) -> list[tuple[str, float]]:
    """The instants, in order, at which deliveries were claimed that were then sent or lost, and which they were."""
    rows = await installation.fetch(
        "select delivery_id::text, extract(epoch from at - coalesce(wait_ms, 0) * interval '1 millisecond')::float8"
        " from delivery_attempts where outcome_class <> 'deferred' order by 2"
    )
    return [(row[0], row[1]) for row in rows]


def most_over_the_limit(instants: Sequence[float]) -> float:
    """By how many the fullest of all intervals exceeds burst + rate * t."""
    return max(
        count - (BURST + RATE * (last - first))
        for place, first in enumerate(instants)
        for count, last in enumerate(instants[place:], 1)
    )


def slowest_way(arrivals: Sequence[tuple[str, float]], claimed: Sequence[tuple[str, float]]) -> float:
    """The longest time from a claim to its arrival. By so much two requests can come closer together than they left."""
    return max(at - max(left for who, left in claimed if who == delivery and left <= at) for delivery, at in arrivals)


async def assert_within_the_limit(installation: Installation, receiver: Receiver) -> None:
    """What was claimed never exceeds the limit, and what arrives never by more than the ways' different lengths."""
    claimed = await claims(installation)
    # records keep the wait in 4 bytes: a millisecond is a hundredth of a token here
    assert most_over_the_limit([at for _, at in claimed]) <= 0.01
    arrivals = [(str(arrival.delivery_id), arrival.at) for arrival in receiver.received()]
    jitter = slowest_way(arrivals, claimed)
    print(f"slowest way from claim to arrival: {jitter * 1000:.0f} ms")  # noqa: T201 - to read
    assert most_over_the_limit([at for _, at in arrivals]) <= RATE * jitter + 0.01


async def test_four_dispatchers_send_a_limited_endpoint_no_more_than_one_would(
    installation: Installation, receiver: Receiver, transport: Mapping[str, str]
) -> None:
    installation.environment |= transport
    gateway = installation.gateway()
    dispatchers = [installation.dispatcher() for _ in range(DISPATCHERS)]
    assert all(dispatcher.started for dispatcher in dispatchers)
    add_endpoint(gateway, receiver.url(), rate_per_second=RATE, burst=BURST)
    await Producer([gateway.url]).post(numbered(BACKLOG), DEADLINE)
    await installation.all_closed(BACKLOG, DEADLINE)

    await assert_within_the_limit(installation, receiver)
    arrivals = [arrival.at for arrival in receiver.received()]
    assert len(arrivals) == BACKLOG
    assert arrivals[-1] - arrivals[0] < 3 * BACKLOG / RATE, "the backlog drains at about the rate"
    assert await installation.value("select bool_and(attempts = 1) from deliveries")
    told = sum(metrics(each)['relay_deliveries_deferred_total{reason="rate_limit"}'] for each in dispatchers)
    assert told > 0
    await assert_told_as_deferred(installation, gateway)


async def assert_told_as_deferred(installation: Installation, gateway: Service) -> None:
    """A delivery that waited for the rate says so, and that the wait was no attempt."""
    waited = await installation.value(
        "select delivery_id::text from delivery_attempts where outcome_class = 'deferred' order by at limit 1"
    )
    with api(gateway) as client:
        shown = client.get(f"/v1/deliveries/{waited}").json()
    deferred, sent = sorted(shown["attempts"], key=lambda attempt: attempt["outcome_class"])
    assert (shown["attempt_count"], sent["attempt"], sent["outcome_class"]) == (1, 1, "success")
    assert (deferred["outcome_class"], deferred["reason"]) == ("deferred", "rate_limit")
    assert deferred["deferred_for_ms"] > 0


async def test_a_limit_holds_while_a_dispatcher_is_killed_and_started_again(
    installation: Installation, receiver: Receiver
) -> None:
    gateway = installation.gateway()
    dispatchers = [installation.dispatcher(**BRIEF_LEASE) for _ in range(2)]
    assert all(dispatcher.started for dispatcher in dispatchers)
    add_endpoint(gateway, receiver.url("/slow?ms=300"), rate_per_second=RATE, burst=BURST)
    await Producer([gateway.url]).post(numbered(BACKLOG), DEADLINE)
    for count, dispatcher in zip((BACKLOG // 4, BACKLOG // 2), dispatchers, strict=True):
        await receiver.arrive(count, DEADLINE)
        killed = dispatcher.worker()
        kill(killed, signal.SIGKILL)
        await replaced(dispatcher, killed)
    await installation.all_closed(BACKLOG, DEADLINE)
    await assert_within_the_limit(installation, receiver)


@dataclass(slots=True)
class Doorman:
    """An endpoint that hangs up on every request, until it `answers`. It keeps who came when (monotonic seconds)."""

    gate: Gate
    answers: bool = False
    came: list[tuple[float, str]] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def serve(self) -> None:
        while True:
            visit = await self.gate.visit(DEADLINE)
            async with self._changed:
                self.came.append((time.monotonic(), visit.delivery_id))
                self._changed.notify_all()
            if self.answers:
                visit.answer(200)
            else:
                visit.writer.close()

    async def visited(self, times: int, within: float) -> None:
        """Return when so many have come. Raises `TimeoutError`."""
        async with asyncio.timeout(within), self._changed:
            await self._changed.wait_for(lambda: len(self.came) >= times)


@asynccontextmanager
async def doorman() -> AsyncIterator[Doorman]:
    async with Gate() as gate:
        made = Doorman(gate)
        serving = asyncio.create_task(made.serve())
        try:
            yield made
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving


def probes(came: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Those that came after the first pause as long as a cooldown."""
    first = next(place for place, (a, b) in enumerate(pairwise(came), 1) if b[0] - a[0] >= COOLDOWN)
    return list(came[first:])


async def test_a_thousand_deliveries_behind_an_open_breaker_cost_one_connection_per_cooldown_and_no_attempt(
    installation: Installation, transport: Mapping[str, str]
) -> None:
    """Cases C78 and C90: the dead endpoint of many cooldowns, over four dispatchers."""
    owed, windows = 1_000, 12
    installation.environment |= transport
    async with doorman() as door:
        gateway = installation.gateway()
        endpoint = add_endpoint(gateway, door.gate.url)
        await Producer([gateway.url]).post(numbered(owed), DEADLINE)
        limits = COOLDOWNS | {"retry_max_attempts": "3"}
        dispatchers = [installation.dispatcher(**limits) for _ in range(DISPATCHERS)]
        await enough_probes(door, windows)

        probed = probes(door.came)
        assert len(door.came) - len(probed) <= FIRST_FAILURES
        gaps = [b[0] - a[0] for a, b in pairwise(door.came[-len(probed) - 1 :])]
        print("seconds between probes:", [round(gap, 2) for gap in gaps])  # noqa: T201 - to read
        # a cooldown begins with the record, after the visit: the next one cannot come sooner
        assert min(gaps) >= COOLDOWN
        assert min(gaps[1:]) >= LONGEST_COOLDOWN
        asked = [delivery for _, delivery in probed]
        assert len(set(asked)) == len(asked), "another one probes each time"
        gauge = f'relay_breaker_open{{consumer="{endpoint["name"]}"}}'
        await eventually(lambda: reported(dispatchers, gauge, 1.0), DEADLINE, "the gauge tells of the open breaker")

        door.answers = True
        await installation.all_closed(owed, DEADLINE)
        await eventually(lambda: reported(dispatchers, gauge, 0.0), DEADLINE, "the gauge tells of the recovery")
    assert await installation.value("select sum(attempts) from deliveries") == len(door.came)
    assert await installation.value("select count(*) from deliveries where dead_at is not null") == 0


async def enough_probes(door: Doorman, number: int) -> None:
    while True:
        await door.visited(len(door.came) + 1, DEADLINE)
        with suppress(StopIteration):
            if len(probes(door.came)) >= number:
                return


async def reported(dispatchers: Sequence[Service], gauge: str, value: float) -> bool:
    return sum(metrics(each).get(gauge, 0.0) for each in dispatchers) == value


async def test_a_probe_whose_process_was_killed_is_replaced_after_its_deadline(installation: Installation) -> None:
    owed = 50
    async with Gate() as gate:
        gateway = installation.gateway()
        add_endpoint(gateway, gate.url, max_in_flight=4)
        await Producer([gateway.url]).post(numbered(owed), DEADLINE)
        doomed = installation.dispatcher(**BRIEF_LEASE, **COOLDOWNS)

        async def half_open() -> bool:
            return bool(await installation.value("select breaker = 'half_open' from endpoint_state"))

        async def fails() -> None:
            while True:
                (await gate.visit(DEADLINE)).writer.close()

        failing = asyncio.create_task(fails())

        async def opened() -> bool:
            return bool(await installation.value("select trips >= 1 from endpoint_state"))

        await eventually(opened, DEADLINE, "the breaker has opened")
        failing.cancel()
        with suppress(asyncio.CancelledError):
            await failing
        probe = await gate.visit(DEADLINE)
        probed_at = time.monotonic()
        assert await half_open()
        doomed.kill()
        heir = installation.dispatcher(**BRIEF_LEASE, **COOLDOWNS)
        assert heir.started

        second = await gate.visit(DEADLINE)
        waited = time.monotonic() - probed_at
        print(f"the next probe came after {waited:.1f} s")  # noqa: T201 - to read
        # the first one's deadline began with its claim, a little before its visit
        assert waited > PROBE_SECONDS - 1.0
        assert second.delivery_id != probe.delivery_id
        assert gate.waiting == 0, "one probe, not more"
        second.answer(200)
        for _ in range(owed - 1):
            (await gate.visit(DEADLINE)).answer(200)
        await installation.all_closed(owed, DEADLINE)


async def test_an_endpoint_that_is_resumed_gets_what_it_is_owed_at_once(
    installation: Installation, receiver: Receiver
) -> None:
    gateway = installation.gateway()
    installation.environment["RELAY_URL"] = gateway.url
    endpoint = add_endpoint(gateway, receiver.url())
    assert installation.dispatcher(**FAR_POLL).started
    assert installation.run("endpoints", "pause", endpoint["name"]).returncode == 0
    await Producer([gateway.url]).post(numbered(20), DEADLINE)
    assert receiver.received() == []
    assert installation.run("endpoints", "resume", endpoint["name"]).returncode == 0
    await receiver.arrive(20, AT_ONCE_SECONDS)
    await installation.all_closed(20, DEADLINE)
    assert await installation.value("select bool_and(attempts = 1) from deliveries")


async def test_a_limit_that_is_widened_holds_from_the_next_claim_on(
    installation: Installation, receiver: Receiver
) -> None:
    gateway = installation.gateway()
    change = {"rate_per_second": 1_000, "burst": 1_000}
    endpoint = add_endpoint(gateway, receiver.url(), rate_per_second=0.01, burst=1)
    assert installation.dispatcher(**FAR_POLL).started
    await Producer([gateway.url]).post(numbered(20), DEADLINE)
    await receiver.arrive(1, DEADLINE)
    with api(gateway) as client:
        assert client.patch(f"/v1/endpoints/{endpoint['id']}", json=change).status_code == 200
    # tokens that the old rate did not give are not there: the new one gives one each millisecond
    await receiver.arrive(20, AT_ONCE_SECONDS)
    await installation.all_closed(20, DEADLINE)
