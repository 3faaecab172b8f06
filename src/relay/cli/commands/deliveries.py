"""`relay deliveries`: what was and is owed to an endpoint, and one delivery with its attempts.

Owns the arguments and the tables. A delivery is named by its id, which is a UUID; whatever is none names an endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import click
from rich.console import RenderableType

from relay.cli.client import connect
from relay.cli.endpoints import path_of
from relay.cli.listing import length_options, listed
from relay.cli.options import example, json_option
from relay.cli.reading import read_settings
from relay.cli.receipts import status
from relay.cli.rendering import facts, show, table, words
from relay.cli.streams import Streams

DELIVERY_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
STATUSES = ("pending", "in_flight", "delivered", "dead")

_CLASSES = {"success": "green", "permanent": "red", "retryable": "yellow", "deferred": "dim"}


@click.command(
    "deliveries",
    epilog=example("relay deliveries ledger --status dead", "relay deliveries 0198c0de-4b5e-7a3c-9f10-d2b4a6c8e0f1"),
)
@click.argument("of", metavar="ENDPOINT|DELIVERY_ID")
@click.option("--status", "wanted", type=click.Choice(STATUSES), help="List those of this status alone.")
@length_options
@json_option
@click.pass_obj
def command(streams: Streams, of: str, wanted: str | None, limit: int | None) -> None:
    """List the deliveries of an endpoint, the newest first, or show one delivery with every attempt.

    ENDPOINT is the id or the name of an endpoint, DELIVERY_ID the UUID that receivers get as Relay-Delivery-Id.
    """
    with connect(read_settings()) as relay:
        if DELIVERY_ID.fullmatch(of):
            if wanted is not None:
                raise click.UsageError("--status is for the list of an endpoint.")
            _show(relay.call("GET", f"/v1/deliveries/{of}"), streams)
            return
        deliveries = listed(relay, f"{path_of(relay, of)}/deliveries", {"status": wanted}, limit, streams)
    if streams.json:
        streams.document(deliveries)
    elif not deliveries:
        streams.line("no such deliveries")
    else:
        show(streams, _table(deliveries))


def _table(deliveries: Any) -> RenderableType:  # noqa: ANN401 - JSON is what it is
    columns = ("delivery", "receipt", "status", "attempts", "waiting for", "next attempt", "dead because", "last error")
    rows = [
        (
            each["id"],
            each["receipt_id"],
            status(each),
            each["attempts"],
            each["waiting_for"],
            each["next_attempt_at"],
            each["reason"],
            each["last_error"],
        )
        for each in deliveries
    ]
    return table(columns, rows, prose=("last error",), optional=columns[5:])


def _show(delivery: dict[str, Any], streams: Streams) -> None:
    if streams.json:
        streams.document(delivery)
        return
    about = {name: value for name, value in delivery.items() if name != "attempts" and value is not None}
    show(streams, facts({**about, "status": status(delivery)}.items()), words(""), *_attempts(delivery["attempts"]))


def _attempts(attempts: list[dict[str, Any]]) -> Iterator[RenderableType]:
    if not attempts:
        yield words("no attempt yet")
        return
    columns = ("at", "attempt", "generation", "outcome", "answer", "ms", "waited", "error", "said")
    yield table(columns, [_attempt(each) for each in attempts], prose=("error", "said"), optional=columns[4:])


def _attempt(attempt: Mapping[str, Any]) -> tuple[object, ...]:
    """An attempt's line. A wait behind a closed gate is none: it has no number of its own, and its time is a wait."""
    reason = f": {attempt['reason']}" if attempt["reason"] else ""
    is_wait = attempt["outcome_class"] == "deferred"
    took, waited = attempt["total_ms"], attempt["deferred_for_ms"]
    return (
        attempt["at"],
        "-" if is_wait else attempt["attempt"],
        attempt["generation"],
        words(f"{attempt['outcome_class']}{reason}", _CLASSES.get(attempt["outcome_class"], "")),
        attempt["status_code"],
        None if took is None or is_wait else f"{took:.1f}",
        None if waited is None else f"{waited / 1000:.1f} s",
        attempt["error_class"],
        attempt["snippet"],
    )
