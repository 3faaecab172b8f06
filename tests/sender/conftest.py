"""What the sender's tests have in common: the loop of production, and a sender whose facts can be awaited."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import uvloop

from relay.domain.egress import EgressPolicy
from relay.domain.sending import OutboundRequest, SendFacts
from relay.sender import HttpSender, SendLimits

DEADLINE_SECONDS = 30.0
DESCRIPTORS = Path("/proc/self/fd")

OPEN = EgressPolicy(allow_private=True, require_https=False, allowed_ports=None)
"""Loopback, any port and plain http: what a development machine permits."""


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The sender is a reader of the loop, so it is tested on the loop that it runs on."""
    return {"uvloop": uvloop.new_event_loop}


def open_descriptors() -> int:
    return len(list(DESCRIPTORS.iterdir()))


def resident_bytes() -> int:
    """Memory of this process, libcurl's and all."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def request(
    url: str, body: bytes = b"{}", *headers: tuple[str, str], seconds: float = 10.0, silence: float = 0.0
) -> OutboundRequest:
    return OutboundRequest(url, url, headers, body, seconds, silence)


@dataclass(slots=True)
class Sending:
    """A running sender. `batches` are the sizes of what was delivered at once, `faults` what it complained of."""

    sender: HttpSender[int]
    results: dict[int, "asyncio.Future[SendFacts]"] = field(default_factory=dict)
    batches: list[int] = field(default_factory=list)
    faults: list[tuple[str, BaseException]] = field(default_factory=list)
    submitted: int = 0

    def begin(self, *requests: OutboundRequest) -> "list[asyncio.Future[SendFacts]]":
        numbers = range(self.submitted, self.submitted + len(requests))
        self.submitted += len(requests)
        for number in numbers:
            self.results[number] = asyncio.get_running_loop().create_future()
        self.sender.submit(list(zip(numbers, requests, strict=True)))
        return [self.results[number] for number in numbers]

    async def send_all(self, *requests: OutboundRequest) -> list[SendFacts]:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await asyncio.gather(*self.begin(*requests))

    async def in_turn(self, *requests: OutboundRequest, at_once: int) -> AsyncIterator[SendFacts]:
        """Send many, so many of them at once."""
        for start in range(0, len(requests), at_once):
            for facts in await self.send_all(*requests[start : start + at_once]):
                yield facts

    async def send(self, one: OutboundRequest) -> SendFacts:
        return (await self.send_all(one))[0]

    async def post(self, url: str, body: bytes = b"{}", *headers: tuple[str, str], seconds: float = 10.0) -> SendFacts:
        return await self.send(request(url, body, *headers, seconds=seconds))

    def deliver(self, batch: list[tuple[int, SendFacts]]) -> None:
        self.batches.append(len(batch))
        for number, facts in batch:
            self.results.pop(number).set_result(facts)


@contextlib.asynccontextmanager
async def sending(
    *, policy: EgressPolicy = OPEN, limits: SendLimits | None = None, dns: str | None = None, close_within: float = 1.0
) -> AsyncIterator[Sending]:
    """A sender for the length of the block; it must not have complained by its end."""
    limits = limits or SendLimits()
    if dns is not None:
        limits = replace(limits, resolver=replace(limits.resolver, servers=(dns,)))
    here: Sending
    sender: HttpSender[int] = HttpSender(
        policy=policy,
        limits=limits,
        clock=time.monotonic,
        deliver=lambda batch: here.deliver(batch),  # noqa: PLW0108 - `here` comes later
        on_fault=lambda sentence, fault: here.faults.append((sentence, fault)),
    )
    here = Sending(sender)
    await sender.start()
    try:
        yield here
    finally:
        await sender.close(close_within)
    assert here.faults == []


@pytest.fixture
def quick() -> SendLimits:
    """Limits short enough to wait for, and longer than anything takes on a busy machine."""
    return SendLimits(silence_seconds=2.0)
