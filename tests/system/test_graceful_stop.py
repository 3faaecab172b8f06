"""SIGTERM: what is under way is finished or handed back, nothing accepted is lost, and the exit status is 0."""

from __future__ import annotations

import asyncio
import signal

import pytest

from relay.app.interruption import SAME_SECONDS
from tests.support.gate import Gate
from tests.support.installation import Installation, Service, add_endpoint, eventually
from tests.support.producer import Producer, numbered
from tests.support.receiver import Receiver
from tests.support.wire import Wire, request

DEADLINE = 60.0
SOON_GIVEN_UP = {"connect_timeout_secs": "3", "read_timeout_secs": "6", "total_timeout_secs": "6"}


@pytest.mark.usefixtures("patient")
async def test_a_dispatcher_that_stops_finishes_what_it_sent_and_hands_back_the_rest_unattempted(
    installation: Installation,
) -> None:
    sending, claimed = 4, 20
    async with Gate() as gate:
        gateway = installation.gateway()
        dispatcher = installation.dispatcher(global_concurrency=str(sending), endpoint_concurrency="2", **SOON_GIVEN_UP)
        add_endpoint(gateway, gate.url, max_in_flight=2, name="one")
        add_endpoint(gateway, gate.url, max_in_flight=2, name="two")
        await installation.all_answering()
        await Producer([gateway.url]).post(numbered(claimed), DEADLINE)
        visits = await gate.visits(sending, DEADLINE)

        dispatcher.signal(signal.SIGTERM)
        ending = asyncio.create_task(asyncio.to_thread(dispatcher.wait))

        async def drains() -> bool:
            async with await Wire.connect(dispatcher.url) as wire:
                return (await wire.ask(request("GET", "/healthz"))).status == 503

        await eventually(drains, DEADLINE, "the dispatcher says that it drains")
        for visit in visits[:3]:
            visit.answer(200)
        assert await ending == 0
        assert gate.waiting == 0, "nothing new was sent while it drained"

    states = {
        (r[0], r[1]): r[2]
        for r in await installation.fetch("select status::text, attempts, count(*) from deliveries group by 1, 2")
    }
    # the one that nobody answered ran into its timeout and waits for its next try
    assert states == {("delivered", 1): 3, ("pending", 1): 1, ("pending", 0): 2 * claimed - sending}
    assert await installation.value("select count(*) = 0 from deliveries where lease_token is not null")
    await installation.no_strays()


@pytest.mark.usefixtures("patient")
async def test_a_dispatcher_that_stops_under_load_leaves_nothing_in_flight(
    installation: Installation, receiver: Receiver
) -> None:
    gateway = installation.gateway()
    add_endpoint(gateway, receiver.url("/slow?ms=100"))
    events = numbered(600)
    await Producer([gateway.url]).post(events, DEADLINE)
    dispatcher = installation.dispatcher(workers="2")
    await receiver.arrive(100, DEADLINE)
    assert await asyncio.to_thread(dispatcher.stop) == 0

    assert await installation.value("select count(*) from deliveries where status = 'in_flight'") == 0
    arrived = len(receiver.received())
    assert arrived < len(events), "it was stopped in the middle"
    # each request was one recorded attempt: nothing was cut off, nothing is counted that was not sent
    assert await installation.value("select sum(attempts) from deliveries") == arrived
    assert await installation.value("select count(*) from deliveries where status = 'delivered'") == arrived
    assert await installation.value("select count(*) from delivery_attempts") == arrived

    dispatcher.start()
    await installation.all_closed(len(events), DEADLINE)
    assert len(receiver.received()) == len(events), "nothing came twice"


@pytest.mark.usefixtures("patient")
async def test_a_gateway_that_stops_under_load_loses_no_event_that_it_accepted(
    installation: Installation, receiver: Receiver
) -> None:
    staying, leaving = installation.gateway(), installation.gateway(workers="2")
    installation.dispatcher()
    add_endpoint(staying, receiver.url())
    events = numbered(2_000)
    producer = Producer([leaving.url, staying.url])
    posting = asyncio.create_task(producer.post(events, DEADLINE))
    await producer.has_accepted(200, DEADLINE)
    leaving.signal(signal.SIGTERM)
    assert len(producer.accepted) < len(events) / 2, "it is stopped in the middle"
    assert await asyncio.to_thread(leaving.wait) == 0
    await posting

    assert await installation.value("select count(*) from journal") == len(events)
    await installation.all_closed(len(events), DEADLINE)
    assert len(receiver.received()) == len(events)


@pytest.mark.usefixtures("patient")
async def test_a_gateway_that_stops_still_takes_the_event_whose_request_it_is_reading(
    installation: Installation,
) -> None:
    gateway = installation.gateway()
    body = b'{"type": "order.paid"}'
    post = request("POST", "/v1/events", headers={"content-type": "application/json"}, body=body)
    async with await Wire.connect(gateway.url) as wire:
        await wire.write(post[:-5])
        # the worker has read that when it has answered what another connection asked later
        async with await Wire.connect(gateway.url) as other:
            assert (await other.ask(request("GET", "/healthz"))).status == 200

        gateway.signal(signal.SIGTERM)
        ending = asyncio.create_task(asyncio.to_thread(gateway.wait))

        async def drains() -> bool:
            try:
                async with await Wire.connect(gateway.url):
                    return False
            except ConnectionRefusedError:
                return True

        await eventually(drains, DEADLINE, "the gateway lets nobody in")
        await wire.write(post[-5:])
        reply = await wire.reply()
        assert reply.status == 202, reply.body
        assert await ending == 0
    assert await installation.value("select count(*) from journal") == 1


async def _says_that_it_stops(gateway: Service) -> bool:
    async with await Wire.connect(gateway.url) as wire:
        reply = await wire.ask(request("GET", "/readyz?for=intake"))
    return (reply.status, b"this process is stopping" in reply.body) == (503, True)


async def _told_to_stop(gateway: Service) -> float:
    """Tell it, and answer when, once its readiness says so."""
    assert gateway.started
    told = asyncio.get_running_loop().time()
    gateway.signal(signal.SIGTERM)
    await eventually(lambda: _says_that_it_stops(gateway), DEADLINE, "readiness says no")
    return told


@pytest.mark.usefixtures("patient")
async def test_a_gateway_that_delays_its_stop_says_not_ready_and_takes_events_until_a_second_signal(
    installation: Installation,
) -> None:
    gateway = installation.gateway(workers="2", shutdown_delay_secs="600")
    told = await _told_to_stop(gateway)
    await Producer([gateway.url]).post(numbered(20), DEADLINE)

    async def is_another_signal() -> bool:
        return asyncio.get_running_loop().time() > told + SAME_SECONDS

    await eventually(is_another_signal, DEADLINE, "a signal is no longer the same one")
    gateway.signal(signal.SIGTERM)
    assert await asyncio.to_thread(gateway.wait) == 0
    assert "is killed" not in gateway.log_tail()
    assert await installation.value("select count(*) from journal") == 20


@pytest.mark.usefixtures("patient")
async def test_a_delayed_stop_comes_by_itself(installation: Installation) -> None:
    gateway = installation.gateway(shutdown_delay_secs="2")
    told = await _told_to_stop(gateway)
    assert await asyncio.to_thread(gateway.wait) == 0
    assert asyncio.get_running_loop().time() >= told + 2.0
    assert "is killed" not in gateway.log_tail()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_everything_on_one_machine_stops_in_order_and_leaves_no_process(
    alone: Installation, number: signal.Signals
) -> None:
    everything = alone.up("--dev")
    receiver = everything.started["receiver"]
    add_endpoint(everything, f"{receiver}/ok")
    await Producer([everything.url]).post(numbered(50), DEADLINE)
    assert len(alone.processes()) >= 4
    everything.signal(number)
    assert everything.wait() == 0
    await alone.no_strays()
