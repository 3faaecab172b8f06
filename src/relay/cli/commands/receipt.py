"""`relay receipt`: what became of an event.

Owns the showing and the watching. Invariant: watching ends when the receipt is closed, when nothing more can happen by
itself, or at its timeout.
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import click

from relay.cli.client import Client, connect
from relay.cli.failures import CommandFailed
from relay.cli.options import example, json_option
from relay.cli.reading import read_settings
from relay.cli.receipts import is_settled, line, rendered
from relay.cli.rendering import show
from relay.cli.streams import Streams

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 2.0


@click.command("receipt", epilog=example("relay receipt rcp_0198c0de4b5e7a3c9f10d2b4a6c8e0f1 --watch"))
@click.argument("receipt_id", metavar="ID")
@click.option("--watch", is_flag=True, help="Wait until it closes, and show what happens meanwhile.")
@click.option("--timeout", default=3600.0, show_default=True, help="Seconds to watch at most.")
@json_option
@click.pass_obj
def command(streams: Streams, receipt_id: str, watch: bool, timeout: float) -> None:
    """Show the receipt of an event: what happened at each boundary, and how each delivery stands.

    With --watch the exit code says whether it closed: 1 if it did not in time, or if only a person can help it on.
    """
    with connect(read_settings()) as relay:
        path = f"/v1/receipts/{quote(receipt_id, safe='')}"
        if watch:
            _watch(relay, path, streams, timeout)
        else:
            _show(relay.call("GET", path), streams)


def _show(receipt: dict[str, Any], streams: Streams, *, told: int = 0) -> None:
    if streams.json:
        streams.document(receipt)
    else:
        show(streams, *rendered(receipt, told=told))


def _watch(relay: Client, path: str, streams: Streams, timeout: float) -> None:
    """Show what happens until nothing more will, or the time is over. Raises `CommandFailed` if it did not close."""
    deadline = time.monotonic() + timeout
    pause, told = FIRST_PAUSE_SECONDS, 0
    while True:
        receipt = relay.call("GET", path)
        news = receipt["timeline"][told:]
        told += len(news)
        if not streams.json:
            show(streams, *map(line, news))
        left = deadline - time.monotonic()
        if is_settled(receipt) or left <= 0:
            break
        pause = FIRST_PAUSE_SECONDS if news else min(2 * pause, LONGEST_PAUSE_SECONDS)
        time.sleep(min(pause, left))
    _show(receipt, streams, told=told)
    if receipt["state"] != "closed":
        raise CommandFailed(_why_open(receipt, timeout))


def _why_open(receipt: dict[str, Any], timeout: float) -> str:
    if not is_settled(receipt):
        return f"the receipt is still open after {timeout:g} s; its deliveries say what they wait for"
    if not receipt["deliveries"]:
        return f"no endpoint subscribes to {receipt['type']}: add one with `relay endpoints add`, and re-drive it"
    return "the receipt stays open: what is left is dead-lettered, and waits for a person to re-drive it"
