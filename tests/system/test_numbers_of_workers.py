"""Several workers behind one port show one set of numbers, also while they are killed (C168)."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from itertools import pairwise

from relay.domain.telemetry import Process
from relay.metrics.names import Kind, exported_by
from tests.support.installation import Installation, Service, add_endpoint, eventually, kill, metrics
from tests.support.producer import Producer, numbered
from tests.support.receiver import Receiver

EVENTS = 1_000
SCRAPES = 50
WORKERS = 4
ROUNDS = 2
DEADLINE = 90.0
IN_FLIGHT = 7
COUNTING = ("_total", "_count", "_sum", "_bucket")


def counters(service: Service) -> dict[str, float]:
    """Everything that may only grow, as one scrape of its own connection shows it, of whichever worker gets that."""
    return {name: value for name, value in metrics(service).items() if name.partition("{")[0].endswith(COUNTING)}


def went_back(scrapes: list[dict[str, float]]) -> Counter[str]:
    """The series of which a later scrape showed less than an earlier one, or nothing any more."""
    return Counter(
        name for before, after in pairwise(scrapes) for name, value in before.items() if after.get(name, -1.0) < value
    )


def files_of(installation: Installation, role: str) -> list[str]:
    """The files in which the workers of a role keep their numbers."""
    (folder,) = installation.folder.glob(f"relay-{role}-*")
    return sorted(path.name for path in folder.iterdir())


async def test_everything_is_there_at_zero_before_anything_happens(installation: Installation) -> None:
    gateway, dispatcher = installation.gateway(workers="2"), installation.dispatcher(workers="2")
    for process, service in ((Process.GATEWAY, gateway), (Process.DISPATCHER, dispatcher)):
        shown = await asyncio.to_thread(metrics, service)
        assert [name for name, value in counters(service).items() if value] == []
        for metric in exported_by(process):
            first = [label.values[0] if label.values else "other" for label in metric.labels]
            labels = ",".join(f'{label.name}="{value}"' for label, value in zip(metric.labels, first, strict=True))
            part = "_count" if metric.kind is Kind.HISTOGRAM else ""
            assert metric.name + part + (f"{{{labels}}}" if labels else "") in shown


async def test_every_scrape_tells_of_all_workers(installation: Installation) -> None:
    gateway = installation.gateway(workers=str(WORKERS))
    producer = Producer([gateway.url])
    posting = asyncio.create_task(producer.post(numbered(EVENTS), DEADLINE))
    scrapes = [await asyncio.to_thread(counters, gateway) for _ in range(SCRAPES)]
    await posting
    scrapes += [await asyncio.to_thread(counters, gateway) for _ in range(SCRAPES)]

    assert went_back(scrapes) == Counter()
    assert {scrape["journal_commit_seconds_count"] for scrape in scrapes[SCRAPES:]} == {EVENTS}
    assert {scrape['dlq_inflow_total{consumer="",reason="no_route"}'] for scrape in scrapes[SCRAPES:]} == {EVENTS}


async def test_no_counter_goes_back_while_workers_are_killed(installation: Installation) -> None:
    gateway = installation.gateway(workers=str(WORKERS))
    producer = Producer([gateway.url])
    posting = asyncio.create_task(producer.post(numbered(EVENTS), DEADLINE))
    scrapes = [await asyncio.to_thread(counters, gateway)]
    before = files_of(installation, "gateway")
    for _ in range(ROUNDS):
        for slot, killed in gateway.workers().items():
            kill(killed, signal.SIGKILL)
            scrapes.append(await asyncio.to_thread(counters, gateway))

            async def is_replaced(slot: int = slot, killed: int = killed) -> bool:
                return gateway.workers().get(slot, killed) != killed

            await eventually(is_replaced, DEADLINE, "a successor")
            scrapes += [await asyncio.to_thread(counters, gateway) for _ in range(SCRAPES // WORKERS // ROUNDS)]
    await posting
    scrapes.append(await asyncio.to_thread(counters, gateway))

    assert len(scrapes) >= SCRAPES
    assert went_back(scrapes) == Counter()
    assert len(producer.accepted) == EVENTS
    assert files_of(installation, "gateway") == before
    assert scrapes[-1]["relay_workers_lost_total"] == ROUNDS * WORKERS


async def test_what_killed_workers_had_under_way_is_not_under_way_any_more(
    installation: Installation, receiver: Receiver
) -> None:
    """That is told at once, while the leases of these deliveries go on and nobody has taken them yet."""
    gateway, dispatcher = installation.gateway(), installation.dispatcher(workers="2", lease_secs="30")
    add_endpoint(gateway, receiver.url("/slow?ms=4000"), max_in_flight=IN_FLIGHT)
    await installation.all_answering()
    producer = Producer([gateway.url])
    await producer.post(numbered(IN_FLIGHT), DEADLINE)

    async def under_way(count: float) -> bool:
        return (await asyncio.to_thread(metrics, dispatcher))["relay_in_flight"] == count

    await eventually(lambda: under_way(IN_FLIGHT), DEADLINE, f"{IN_FLIGHT} are under way")
    for killed in dispatcher.workers().values():
        kill(killed, signal.SIGKILL)
    await eventually(lambda: under_way(0), DEADLINE, "none is under way")
    assert await installation.value("select count(*) from deliveries where status = 'in_flight'") == IN_FLIGHT
