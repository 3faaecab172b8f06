"""Whatever real processes write at `debug` is one JSON object a line, and has no word that is not documented."""

from __future__ import annotations

import json
import signal

from relay.metrics.glossary import FIELDS, events
from tests.support.installation import Installation, add_endpoint, eventually, free_port, kill, post
from tests.support.receiver import Receiver

WITHIN = 60.0
MOST_TIMES = {"claim_ms", "gate_ms", "send_ms", "persist_ms", "total_ms"}
IDS = {"delivery_id", "receipt_id", "event_id", "event_type", "tenant", "consumer", "attempt", "generation"}


async def test_every_line_is_an_object_of_documented_words(installation: Installation, receiver: Receiver) -> None:
    installation.environment |= {"RELAY_LOG_LEVEL": "debug", "RELAY_RETRY_MAX_ATTEMPTS": "2"}
    gateway, dispatcher = installation.gateway(), installation.dispatcher()
    add_endpoint(gateway, receiver.url("/ok"), name="ledger")
    add_endpoint(gateway, f"http://127.0.0.1:{free_port()}/gone", name="gone", retry={"max_attempts": 2})
    add_endpoint(gateway, receiver.url("/status/404"), name="refusing")
    post(gateway, b"{}", relay_event_type="invoice.paid")
    post(gateway, b"no type")

    async def told() -> bool:
        log = dispatcher.log.read_text()
        return log.count('"event":"delivery_dead"') == 2 and '"event":"delivery_acked"' in log

    await eventually(told, WITHIN, "how each delivery ended is told")
    worker = dispatcher.worker()
    kill(worker, signal.SIGKILL)

    async def succeeded() -> bool:
        return dispatcher.log.read_text().count('"event":"process_started"') == 2

    await eventually(succeeded, WITHIN, "the next worker starts")
    assert gateway.stop() == dispatcher.stop() == 0

    lines = [json.loads(line) for each in installation.services for line in each.log.read_text().splitlines()]
    assert {line["event"] for line in lines} - set(events()) == set()
    assert {name for line in lines for name in line} - set(FIELDS) == set()
    assert {"notice", "request_served", "deliveries_claimed"} <= {line["event"] for line in lines}
    ended = [line for line in lines if line["event"].startswith("delivery_")]
    assert {line["event"] for line in ended} == {"delivery_acked", "delivery_retries", "delivery_dead"}
    assert [line for line in ended if not line.keys() >= IDS | MOST_TIMES] == []
    assert {line["error_class"] or line["status_code"] for line in ended} == {200, 404, "connect_refused"}
