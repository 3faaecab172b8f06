"""`relay redrive`: send again what is owed for one event, or one delivery.

Owns the arguments and the words. Invariant: a re-drive whose answer got lost is not carried out a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import click

from relay.cli.client import Client, connect
from relay.cli.commands.deliveries import DELIVERY_ID
from relay.cli.naming import call_once
from relay.cli.options import example, json_option
from relay.cli.reading import read_settings
from relay.cli.rendering import show, table
from relay.cli.streams import Streams
from relay.cli.waiting import in_passing, lane_notes


@click.command("redrive", epilog=example("relay redrive rcp_0198c0de4b5e7a3c9f10d2b4a6c8e0f1 --consumer ledger"))
@click.argument("which", metavar="RECEIPT_ID|DELIVERY_ID")
@click.option("--consumer", metavar="NAME", help="Of a receipt: what this endpoint is owed, and nothing else.")
@json_option
@click.pass_obj
def command(streams: Streams, which: str, consumer: str | None) -> None:
    """Send again, at once, what of a receipt is not acknowledged; or one delivery, even if it was delivered.

    What is on its way at this moment is left alone. Ids stay; Relay-Generation grows by one. An event that matched no
    endpoint is routed anew, with --consumer to that one alone.
    """
    one = DELIVERY_ID.fullmatch(which) is not None
    if one and consumer is not None:
        raise click.UsageError("--consumer chooses among the deliveries of a receipt: leave it out.")
    with connect(read_settings()) as relay:
        if one:
            _one(relay, call_once(relay, f"/v1/deliveries/{which}/redrive", None), streams)
        else:
            path = f"/v1/receipts/{quote(which, safe='')}"
            answer = call_once(relay, f"{path}/redrive", {} if consumer is None else {"consumer": consumer})
            streams.done(f"{len(answer['redriven'])} deliveries are re-driven")
            _receipt(answer, streams)
            with in_passing(streams):
                _notes(relay, relay.call("GET", path), answer, consumer, streams)


def _one(relay: Client, delivery: dict[str, Any], streams: Streams) -> None:
    streams.done("the delivery is re-driven")
    with in_passing(streams):
        for note in lane_notes(relay, [delivery]):
            streams.note(note)
    if streams.json:
        streams.document(delivery)
    else:
        streams.line(f"re-driven, generation {delivery['generation']}: relay receipt {delivery['receipt_id']} --watch")


def _receipt(answer: dict[str, Any], streams: Streams) -> None:
    redriven = answer["redriven"]
    if streams.json:
        streams.document(answer)
    elif not redriven:
        streams.line("nothing is re-driven")
    else:
        rows = [(each["id"], each["consumer"], each["generation"]) for each in redriven]
        show(streams, table(("re-driven", "consumer", "generation"), rows))
        streams.line(f"relay receipt {answer['receipt_id']} --watch")


def _notes(
    relay: Client, receipt: dict[str, Any], answer: dict[str, Any], consumer: str | None, streams: Streams
) -> None:
    """Say why what was not re-driven was not, and what the rest waits for."""
    deliveries = [each for each in receipt["deliveries"] if consumer in (None, each["consumer"])]
    redriven = {each["id"] for each in answer["redriven"]}
    if not deliveries:
        whom = "no endpoint subscribes to it" if consumer is None else f"nothing of it is owed to {consumer}"
        streams.note(f"an event of type {receipt['type']}: {whom}; `relay endpoints list` shows who gets what")
    left = [each for each in deliveries if each["id"] not in redriven]
    for text, is_so in _LEFT.items():
        if names := dict.fromkeys(each["consumer"] for each in left if is_so(each)):
            streams.note(f"{', '.join(names)}: {text}")
    for note in lane_notes(relay, deliveries):
        streams.note(note)


_LEFT: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "acknowledged; a delivery is sent again by its own id": lambda each: each["status"] == "delivered",
    "on its way at this moment": lambda each: each["status"] == "in_flight",
    "due anyway, as nothing of it was tried yet": lambda each: each["status"] == "pending" and not each["attempts"],
    "the endpoint was removed, so nothing can be sent there; `relay dlq discard` gives it up": (
        lambda each: each["status"] == "dead"
    ),
}
"""What a delivery is that a re-drive left alone, and how that is told."""
