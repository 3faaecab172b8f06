"""What real processes say of themselves while nobody takes what is due, while an endpoint holds it up, and while the
database is away. What each check says is claimed by the tests of the API, what is said in a drain by those of the stop.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from tests.support.gate import Gate
from tests.support.installation import Installation, Service, add_endpoint, eventually, kill
from tests.support.link import Link
from tests.support.producer import numbered, until_accepted
from tests.support.receiver import Receiver
from tests.support.wire import Wire, request

DEADLINE = 60.0


async def readiness(gateway: Service) -> tuple[int, dict[str, Any]]:
    async with await Wire.connect(gateway.url) as wire:
        reply = await wire.ask(request("GET", "/readyz"))
    return reply.status, reply.json()


async def is_ready(gateway: Service) -> bool:
    return (await readiness(gateway))[0] == 200


async def test_what_is_due_and_taken_by_nobody_is_late_after_the_time_that_is_set(
    installation: Installation, receiver: Receiver
) -> None:
    gateway, dispatcher = installation.gateway(ready_late_secs="1"), installation.dispatcher()
    add_endpoint(gateway, receiver.url())
    worker = await asyncio.to_thread(dispatcher.worker)
    await eventually(lambda: is_ready(gateway), DEADLINE, "the gateway is ready")
    kill(worker, signal.SIGSTOP)
    try:
        await until_accepted(gateway.url, numbered(1)[0], DEADLINE)

        async def is_late() -> bool:
            status, told = await readiness(gateway)
            assert told["checks"]["database"] == told["checks"]["journal"] == "ok"
            return status == 503 and told["checks"]["queue"].endswith("s late; RELAY_READY_LATE_SECS allows 1 s")

        await eventually(is_late, DEADLINE, "the queue is late")
    finally:
        kill(worker, signal.SIGCONT)
    await eventually(lambda: is_ready(gateway), DEADLINE, "the gateway is ready again")
    await installation.all_closed(1, DEADLINE)


async def test_what_an_endpoint_holds_up_is_never_late(installation: Installation) -> None:
    gateway = installation.gateway(ready_late_secs="1")
    installation.dispatcher()
    async with Gate() as gate:
        add_endpoint(gateway, gate.url)
        await until_accepted(gateway.url, numbered(1)[0], DEADLINE)
        (await gate.visit(DEADLINE)).answer(429, retry_after=600)

        async def is_held() -> bool:
            return bool(await installation.value("select count(*) from endpoint_state where held_until > now()"))

        await eventually(is_held, DEADLINE, "the lane is held")
        await installation.fetch("update deliveries set due_at = now() - interval '1 hour'")
        await eventually(lambda: is_ready(gateway), DEADLINE, "the gateway is ready")


async def test_a_dispatcher_lives_and_shows_its_numbers_whatever_becomes_of_its_database(
    installation: Installation,
) -> None:
    assert installation.dsn is not None
    async with Link(installation.dsn) as link:
        installation.environment["DATABASE_URL"] = link.dsn
        dispatcher = installation.dispatcher()
        assert await asyncio.to_thread(lambda: dispatcher.started)
        link.go_down()

        async def is_held_up() -> bool:
            return '"loop_held_up"' in dispatcher.log_tail()

        await eventually(is_held_up, DEADLINE, "the dispatcher misses its database")
        async with await Wire.connect(dispatcher.url) as wire:
            alive, numbers = await wire.ask(request("GET", "/healthz")), await wire.ask(request("GET", "/metrics"))
        assert (alive.status, alive.json()) == (200, {"status": "ok"})
        assert numbers.status == 200
        link.come_up()
        assert await asyncio.to_thread(dispatcher.stop) == 0
