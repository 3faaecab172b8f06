"""Claims about `relay up`, with everything real: it starts on nothing, shows an event's way, leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

import httpx

from relay.embedded.postmaster import Postmaster
from tests.support.installation import (
    LOOPBACK,
    START_SECONDS,
    STOP_SECONDS,
    Installation,
    Service,
    api,
    eventually,
    free_port,
    kill,
    metrics,
    post,
)


def demonstrated(service: Service) -> dict[str, object]:
    record = service.wait_for(lambda line: "demonstration" in line, START_SECONDS, "shows a receipt")
    return dict(record["demonstration"])


async def closed(service: Service, receipt_id: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def is_closed() -> bool:
        with api(service) as client:
            found.update(client.get(f"/v1/receipts/{receipt_id}").json())
        return bool(found["state"] == "closed")

    await eventually(is_closed, START_SECONDS, "the receipt closes")
    return found


def pasted(command: str, **environment: str) -> dict[str, Any]:
    """What a command that was printed answers in a shell."""
    done = subprocess.run(
        ["sh", "-c", command], env={"PATH": os.environ["PATH"], **environment}, capture_output=True, check=True
    )
    return dict(json.loads(done.stdout))


def up_that_fails(alone: Installation, **settings: str) -> Service:
    binds = {f"RELAY_{name}": f"{LOOPBACK}:{free_port()}" for name in ("BIND", "METRICS_BIND", "TESTKIT_BIND")}
    environment = {**alone.environment, **binds, **settings}
    service = Service("second", ("up", "--dev"), environment, alone.folder / "second.log")
    alone.services.append(service)
    service.start()
    assert service.wait(START_SECONDS) == 1
    return service


async def test_it_sends_an_event_by_itself_shows_its_receipt_closing_and_stops_on_ctrl_c(alone: Installation) -> None:
    service = alone.up("--dev", "--demo")
    receipt = demonstrated(service)
    assert (receipt["state"], receipt["outcome"]) == ("closed", "delivered")

    async with httpx.AsyncClient(trust_env=False) as client:
        arrived = (await client.get(f"{service.started['receiver']}/received?path=/verify/demo")).json()["data"]
    assert [each["status"] for each in arrived] == [200]

    service.signal(signal.SIGINT)
    assert service.wait(STOP_SECONDS) == 0
    assert alone.processes() == []
    assert Postmaster.running(alone.folder / "data" / "pg" / "r1") is None


async def test_a_second_start_on_the_same_data_goes_on_where_the_first_ended(alone: Installation) -> None:
    first = alone.up("--dev", "--demo")
    earlier = demonstrated(first)
    key = (alone.folder / "data" / "secret-keys").read_text()
    first.stop()

    second = alone.up("--dev", "--demo")
    assert demonstrated(second)["outcome"] == "delivered"
    async with httpx.AsyncClient(base_url=second.url, trust_env=False) as client:
        kept = (await client.get(f"/v1/receipts/{earlier['receipt_id']}")).json()
        endpoints = (await client.get("/v1/endpoints")).json()["data"]
    assert kept["outcome"] == "delivered"
    assert [each["name"] for each in endpoints] == ["demo"]
    assert (alone.folder / "data" / "secret-keys").read_text() == key


async def test_the_demonstrations_endpoint_still_gets_events_after_a_start_without_a_demonstration(
    alone: Installation,
) -> None:
    receiver = f"{LOOPBACK}:{free_port()}"
    first = alone.up("--dev", "--demo", testkit_bind=receiver)
    demonstrated(first)
    first.stop()

    second = alone.up("--dev", testkit_bind=receiver)
    sent = post(second, b'{"type": "invoice.paid"}').json()
    assert (await closed(second, sent["receipt_id"]))["outcome"] == "delivered"
    assert stat.S_IMODE((alone.folder / "data" / "receiver-secrets").stat().st_mode) == 0o600


async def test_the_event_that_is_printed_goes_to_the_demonstrations_endpoint(alone: Installation) -> None:
    service = alone.up("--dev", "--demo")
    demonstrated(service)
    receipt = await closed(service, pasted(service.started["first_event"])["receipt_id"])
    assert [(each["consumer"], each["status"]) for each in receipt["deliveries"]] == [("demo", "delivered")]


async def test_a_relay_that_has_keys_prints_commands_that_take_one_and_says_that_a_demonstration_needs_it(
    alone: Installation,
) -> None:
    alone.up("--dev").stop()
    made = alone.run("keys", "create", "--local", "--json")
    secret = json.loads(made.stdout)["secret"]

    receiver = f"{LOOPBACK}:{free_port()}"
    without = alone.up("--dev", "--demo", testkit_bind=receiver)
    record = without.wait_for(lambda line: "demonstration" in line, START_SECONDS, "says why not")
    assert record["demonstration"] is None
    assert "export RELAY_API_KEY=" in record["fault"]
    endpoint = pasted(without.started["first_endpoint"], RELAY_API_KEY=secret)
    event = pasted(without.started["first_event"], RELAY_API_KEY=secret)
    assert [each["endpoint_id"] for each in event["deliveries"]] == [endpoint["id"]]
    without.stop()

    assert demonstrated(alone.up("--dev", "--demo", testkit_bind=receiver, api_key=secret))["outcome"] == "delivered"


async def test_two_on_one_data_folder_are_refused_in_a_line_and_the_first_goes_on(alone: Installation) -> None:
    first = alone.up()
    assert first.started
    second = up_that_fails(alone)
    (line,) = second.log.read_text().splitlines()
    assert "already in the hands of another Relay" in line
    assert post(first, b'{"type": "still.there"}').status_code == 202


async def test_a_port_that_is_taken_is_told_before_anything_starts(alone: Installation) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        address = f"{LOOPBACK}:{taken.getsockname()[1]}"
        second = up_that_fails(alone, RELAY_TESTKIT_BIND=address)
    (line,) = second.log.read_text().splitlines()
    assert f"{address} is in use by another process" in line
    assert "RELAY_TESTKIT_BIND" in line
    assert not (alone.folder / "data").exists()


async def test_an_open_address_is_refused_while_there_are_no_credentials(alone: Installation) -> None:
    second = up_that_fails(alone, RELAY_BIND=f"0.0.0.0:{free_port()}")
    assert "relay keys create --local" in second.log.read_text()


async def test_the_data_folder_and_its_key_are_for_their_owner_alone(alone: Installation) -> None:
    assert alone.up().started
    data = alone.folder / "data"
    assert stat.S_IMODE((data / "secret-keys").stat().st_mode) == 0o600
    assert stat.S_IMODE(data.stat().st_mode) & 0o066 == 0


async def test_a_database_that_dies_is_started_again_and_events_are_taken_again(alone: Installation) -> None:
    service = alone.up()
    assert service.started
    cluster = alone.folder / "data" / "pg" / "r1"
    database = Postmaster.running(cluster)
    assert database is not None
    kill(database.pid, signal.SIGKILL)

    async def lives_again() -> bool:
        now = Postmaster.running(cluster)
        return now is not None and now.pid != database.pid

    async def takes_events() -> bool:
        return post(service, b'{"type": "after.the.crash"}').status_code == 202

    await eventually(lives_again, START_SECONDS, "a new server")
    await eventually(takes_events, START_SECONDS, "an event is taken")


async def test_an_interrupted_start_leaves_no_server_running(alone: Installation) -> None:
    environment = {**alone.environment, "RELAY_BIND": f"{LOOPBACK}:0", "RELAY_METRICS_BIND": f"{LOOPBACK}:0"}
    service = Service("up", ("up",), environment, alone.folder / "up.log")
    alone.services.append(service)
    service.start()
    service.wait_for(lambda record: "creating" in record.get("progress", ""), START_SECONDS, "creates a database")
    service.signal(signal.SIGINT)
    assert service.wait(STOP_SECONDS) == 0
    assert Postmaster.running(alone.folder / "data" / "pg" / "r1") is None
    assert alone.processes() == []


async def test_any_worker_answers_for_the_numbers_of_all(alone: Installation) -> None:
    service = alone.up("--workers", "2")
    assert service.started
    assert len(service.workers()) == 2
    for number in range(20):
        post(service, b'{"type": "counted"}', idempotency_key=f'"{number}"')
    counts = {metrics(service)["gateway_request_seconds_count"] for _ in range(20)}
    assert counts == {20.0}


def test_the_folder_of_a_stopped_installation_holds_nothing_of_its_processes(alone: Installation) -> None:
    service = alone.up()
    assert service.started
    assert service.stop() == 0
    assert list(alone.folder.glob("relay-*")) == []
    assert not list(Path(alone.folder / "data" / "pg").glob("*.new-*"))


async def test_a_key_that_is_gone_is_never_replaced_in_silence(alone: Installation) -> None:
    alone.up("--dev").stop()
    key = alone.folder / "data" / "secret-keys"
    aside = key.rename(key.with_name("moved-away"))
    second = up_that_fails(alone)
    assert "secret-keys is missing" in second.log_tail()
    assert not key.exists()
    aside.rename(key)
    assert alone.up("--dev").stop() == 0
