"""`relay receipt`: what became of an event, and of which events there are receipts.

Owns the arguments, the list and the watching. Invariant: watching ends when the receipt is closed, when nothing more
can happen by itself, or at its timeout.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import click

from relay.cli.client import Client, Refused, connect
from relay.cli.failures import CommandFailed
from relay.cli.listing import INSTANT, WHEN, length_options, listed
from relay.cli.options import example, json_option, text_option
from relay.cli.reading import read_settings
from relay.cli.receipts import is_settled, line, summary
from relay.cli.rendering import show
from relay.cli.story import Story, with_lanes
from relay.cli.streams import Streams
from relay.cli.waiting import MOST_LANES, PAUSED, find_endpoint, lane_notes

PATH = "/v1/receipts"

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.25, 5.0
"""How long one call waits for the receipt to close. What happens meanwhile is told after it, so the first are short."""

PAUSE_SECONDS = 1.0
"""Between two looks at a Relay that has too many waiting to take one more."""

NOT_FOUND, OVERLOADED = 404, 503


@click.command(
    "receipt",
    epilog=example(
        "relay receipt rcp_0198c0de4b5e7a3c9f10d2b4a6c8e0f1 --watch",
        "relay receipt --state open --type 'invoice.*' --since 2h",
    ),
)
@click.argument("receipt_id", metavar="[ID]", required=False)
@click.option("--watch", is_flag=True, help="With ID: wait until it closes, and show what happens meanwhile.")
@click.option("--timeout", default=3600.0, show_default=True, help="Seconds to watch at most.")
@click.option("--state", type=click.Choice(["open", "closed"]), help="List open or closed receipts.")
@click.option("--type", metavar="PATTERN", help="List those of such events: invoice.paid, or 'invoice.*'.")
@click.option("--event-id", metavar="ID", help="List those with this id of the sender's.")
@click.option("--consumer", metavar="NAME", help="List those owed to this endpoint.")
@click.option("--since", type=INSTANT, metavar="WHEN", help=f"List those received at {WHEN}, or later.")
@click.option("--until", type=INSTANT, metavar="WHEN", help="List those received before then.")
@length_options
@json_option
@text_option
@click.pass_obj
def command(
    streams: Streams, /, receipt_id: str | None, watch: bool, timeout: float, limit: int | None, **filters: str | None
) -> None:
    """Show the receipt of an event: why it has not arrived, its way through the four boundaries, and a lane for each
    consumer with its tries and waits, to scale in time.

    With --watch the exit code says whether it closed: 1 if it did not in time, or if only a person can help it on: what
    is left is dead, or its endpoint is paused or disabled. It says how.
    Without ID the receipts are listed, the newest first.
    """
    if receipt_id is None and watch:
        raise click.UsageError("--watch watches one receipt: add its ID.")
    if receipt_id is not None and any(filters.values()):
        raise click.UsageError("A filter is for the list: leave out the ID, or the filter.")
    with connect(read_settings()) as relay:
        if receipt_id is None:
            _list(relay, streams, limit, filters)
            return
        path = f"{PATH}/{quote(receipt_id, safe='')}"
        if watch:
            _watch(relay, path, streams, timeout)
        else:
            _show(relay, relay.call("GET", path), streams)


def _list(relay: Client, streams: Streams, limit: int | None, filters: dict[str, str | None]) -> None:
    receipts = listed(relay, PATH, filters, limit, streams)
    if streams.json:
        streams.document(receipts)
    elif not receipts:
        streams.line("no such receipts" if any(filters.values()) else "no receipts yet: relay send invoice.paid")
    else:
        show(streams, summary(receipts))


def _show(relay: Client, receipt: dict[str, Any], streams: Streams) -> None:
    if streams.json:
        streams.document(receipt)
    else:
        show(streams, _story(relay, receipt))


def _story(relay: Client, receipt: dict[str, Any]) -> Story:
    """The receipt with what its lanes are drawn from: a call for each that is drawn, and one for each that is held."""
    lanes = with_lanes(receipt)
    attempts = {each["id"]: _attempts(relay, each["id"]) for each in lanes}
    held = dict.fromkeys(each["endpoint_id"] for each in lanes if each["waiting_for"] == PAUSED)
    looked_at = ((each, find_endpoint(relay, each)) for each in list(held)[:MOST_LANES])
    endpoints = {name: endpoint for name, endpoint in looked_at if endpoint is not None}
    return Story(receipt, datetime.now(UTC), attempts, endpoints)


def _attempts(relay: Client, delivery_id: str) -> list[dict[str, Any]]:
    """Its attempts; none where the delivery was pruned since its receipt was read."""
    try:
        found: list[dict[str, Any]] = relay.call("GET", f"/v1/deliveries/{quote(delivery_id, safe='')}")["attempts"]
    except Refused as refusal:
        if refusal.status != NOT_FOUND:
            raise
        return []
    return found


def _watch(relay: Client, path: str, streams: Streams, timeout: float) -> None:
    """Show what happens until nothing more will, or the time is over. Raises `CommandFailed` if it did not close."""
    deadline = time.monotonic() + timeout
    receipt = relay.call("GET", path)
    wait, told = FIRST_WAIT_SECONDS, 0
    while True:
        news = receipt["timeline"][told:]
        told += len(news)
        if not streams.json:
            show(streams, *map(line, news))
        left = deadline - time.monotonic()
        if is_settled(receipt) or left <= 0:
            break
        wait = FIRST_WAIT_SECONDS if news else min(2 * wait, LONGEST_WAIT_SECONDS)
        receipt = _after(relay, path, min(wait, left))
    _show(relay, receipt, streams)
    if receipt["state"] != "closed":
        held = [] if not is_settled(receipt) else list(lane_notes(relay, receipt["deliveries"]))
        raise CommandFailed("\n".join([*_why_open(receipt, timeout), *held]))


def _after(relay: Client, path: str, seconds: float) -> dict[str, Any]:
    """The receipt once it is closed, or as it stands when so many seconds have passed."""
    try:
        receipt: dict[str, Any] = relay.call("GET", f"{path}/wait?timeout={seconds:.3f}")
    except Refused as refusal:
        if refusal.status != OVERLOADED:
            raise
        time.sleep(min(PAUSE_SECONDS, seconds))
        receipt = relay.call("GET", path)
    return receipt


def _why_open(receipt: dict[str, Any], timeout: float) -> Iterator[str]:
    """What a person has to do, a sentence each; what keeps closed lanes closed is not among it."""
    if not is_settled(receipt):
        yield f"the receipt is still open after {timeout:g} s; its deliveries say what they wait for"
        return
    again = f"`relay redrive {receipt['receipt_id']}`"
    if not receipt["deliveries"]:
        yield f"no endpoint subscribes to {receipt['type']}: add one with `relay endpoints add`, then {again}"
    elif any(each["status"] == "dead" and not each.get("discarded_at") for each in receipt["deliveries"]):
        yield f"the receipt stays open: what is left is dead-lettered; mend what its last error says, then {again}"
