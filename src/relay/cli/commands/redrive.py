"""`relay redrive`: send again what is owed for one event, or one delivery.

Owns the arguments and the words. Invariant: a re-drive whose answer got lost is not carried out a second time.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from relay.cli.client import connect
from relay.cli.commands.deliveries import DELIVERY_ID
from relay.cli.naming import call_once
from relay.cli.options import example, json_option
from relay.cli.reading import read_settings
from relay.cli.rendering import show, table
from relay.cli.streams import Streams


@click.command("redrive", epilog=example("relay redrive rcp_0198c0de4b5e7a3c9f10d2b4a6c8e0f1 --consumer ledger"))
@click.argument("which", metavar="RECEIPT_ID|DELIVERY_ID")
@click.option("--consumer", metavar="NAME", help="Of a receipt: what this endpoint is owed, and nothing else.")
@json_option
@click.pass_obj
def command(streams: Streams, which: str, consumer: str | None) -> None:
    """Send again, at once, what of a receipt is not acknowledged; or one delivery, even if it was delivered.

    What is on its way at this moment is left alone. Ids stay; Relay-Generation grows by one. An event that matched no
    endpoint is routed anew.
    """
    one = DELIVERY_ID.fullmatch(which) is not None
    if one and consumer is not None:
        raise click.UsageError("--consumer chooses among the deliveries of a receipt: leave it out.")
    with connect(read_settings()) as relay:
        if one:
            _one(call_once(relay, f"/v1/deliveries/{which}/redrive", None), streams)
        else:
            body = {} if consumer is None else {"consumer": consumer}
            _receipt(call_once(relay, f"/v1/receipts/{quote(which, safe='')}/redrive", body), streams)


def _one(delivery: dict[str, Any], streams: Streams) -> None:
    streams.done("the delivery is re-driven")
    if streams.json:
        streams.document(delivery)
    else:
        streams.line(f"re-driven, generation {delivery['generation']}: relay receipt {delivery['receipt_id']} --watch")


def _receipt(answer: dict[str, Any], streams: Streams) -> None:
    redriven = answer["redriven"]
    streams.done(f"{len(redriven)} deliveries are re-driven")
    if streams.json:
        streams.document(answer)
    elif not redriven:
        streams.line("nothing to re-drive: all is acknowledged or on its way, or no endpoint subscribes")
    else:
        rows = [(each["id"], each["consumer"], each["generation"]) for each in redriven]
        show(streams, table(("re-driven", "consumer", "generation"), rows))
        streams.line(f"relay receipt {answer['receipt_id']} --watch")
