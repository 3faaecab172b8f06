"""The demonstration of `relay up --demo`: one event on its whole way, as a person can watch it.

Owns the demonstration's endpoint, its event and the showing. It goes through the HTTP API like anybody else, as whoever
the key in `RELAY_API_KEY` is. An endpoint that is there from an earlier run gets a new secret, since nobody shows the
old one again and the receiver may have lost it. Invariant: whatever goes wrong with it is told, and nothing that runs
stops for it.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import Any

import httpx

from relay.app.up import Site
from relay.cli.client import TIMEOUT, Client, connect
from relay.cli.failures import CommandFailed
from relay.cli.receipts import headline, is_settled, line
from relay.cli.rendering import show
from relay.cli.streams import Streams
from relay.settings import Settings

NAME = "demo"
EVENT_TYPE = "demo.hello"
PAYLOAD = {"type": EVENT_TYPE, "message": "Hello from Relay"}

LIMIT_SECONDS = 30.0
"""How long the receipt may take; it takes a few milliseconds."""

PAUSE_SECONDS = 0.02


class Demonstration:
    """One demonstration. It blocks; setting `stopped`, from another thread, ends it within a call's time."""

    def __init__(self, site: Site, settings: Settings, streams: Streams, stopped: threading.Event) -> None:
        self._site = site
        self._settings = replace(settings, url=site.gateway)
        self._streams = streams
        self._stopped = stopped

    def run(self) -> None:
        """Show it."""
        try:
            with connect(self._settings) as relay:
                self._subscribe(relay)
                accepted = relay.call("POST", "/v1/events", body=PAYLOAD)
                receipt = self._follow(relay, accepted["receipt_id"])
        except CommandFailed as fault:
            self._fail(str(fault))
            return
        if not self._stopped.is_set():
            self._conclude(receipt)

    def _subscribe(self, relay: Client) -> None:
        """Have the receiver's verifying endpoint get the event, and the receiver know its secret."""
        url = f"{self._site.receiver}/verify/{NAME}"
        known = next((each for each in relay.pages("/v1/endpoints") if each["name"] == NAME), None)
        if known is None:
            endpoint = relay.call("POST", "/v1/endpoints", body={"url": url, "name": NAME})
        else:
            path = f"/v1/endpoints/{known['id']}"
            relay.call("PATCH", path, body={"url": url})
            relay.call("POST", f"{path}/resume")
            endpoint = relay.call("POST", f"{path}/rotate-secret")
        secret = str(endpoint["secret"])
        with httpx.Client(timeout=TIMEOUT, trust_env=False) as http:
            Client(http).send("POST", f"{self._site.receiver}/secret/{NAME}", content=secret.encode(), headers={})

    def _follow(self, relay: Client, receipt_id: str) -> dict[str, Any]:
        """Show each line of the receipt's story as it comes; answers the receipt at the end."""
        if not self._streams.json:
            self._streams.line(f"Sent {json.dumps(PAYLOAD)}: {receipt_id}")
        deadline = time.monotonic() + LIMIT_SECONDS
        told = 0
        while True:
            receipt: dict[str, Any] = relay.call("GET", f"/v1/receipts/{receipt_id}")
            news = receipt["timeline"][told:]
            told += len(news)
            if not self._streams.json:
                show(self._streams, *map(line, news))
            if is_settled(receipt) or time.monotonic() > deadline or self._stopped.wait(PAUSE_SECONDS):
                return receipt

    def _fail(self, why: str) -> None:
        if self._streams.json:
            self._streams.record({"demonstration": None, "fault": why})
        else:
            self._streams.note(f"the demonstration failed: {why}")

    def _conclude(self, receipt: dict[str, Any]) -> None:
        if self._streams.json:
            self._streams.record({"demonstration": receipt})
        else:
            show(self._streams, headline(receipt))
        if receipt["state"] != "closed":
            self._streams.note(
                f"the demonstration's receipt is still open: relay receipt {receipt['receipt_id']} --watch"
            )


def tell_of_key(streams: Streams) -> None:
    """Say, in a line, that there is none because a key is needed, and how to have one."""
    why = (
        "no demonstration without a key, since this Relay has some: export RELAY_API_KEY=… and start again"
        " (`relay keys create --local` makes an admin key)"
    )
    if streams.json:
        streams.record({"demonstration": None, "fault": why})
    else:
        streams.note(why)
