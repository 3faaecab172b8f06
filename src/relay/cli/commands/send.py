"""`relay send`: post an event.

Owns reading the payload and the headers that go with it. Invariant: the payload is posted byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from relay.cli.batch import send_batch
from relay.cli.client import Refused, connect
from relay.cli.options import example, json_option
from relay.cli.reading import read_settings
from relay.cli.stdin import is_fed, read_stdin
from relay.cli.streams import Streams
from relay.cli.text import printable

EMPTY = b"{}"


@click.command(
    "send",
    epilog=example(
        "relay send invoice.paid invoice.json",
        "echo '{\"amount\": 12}' | relay send invoice.paid --key invoice-4711",
        "relay send invoice.paid invoice.json --schema v3",
        "relay send --batch events.ndjson",
    ),
)
@click.argument("event_type", metavar="TYPE", required=False)
@click.argument("file", metavar="[FILE|-]", required=False, type=click.Path(allow_dash=True))
@click.option("--key", metavar="KEY", help="Idempotency-Key: a second event with the same key is not stored again.")
@click.option("--content-type", metavar="TYPE", help="Default: application/json if the payload is JSON.")
@click.option(
    "--schema",
    metavar="NAME",
    help="The schema to check it against, TYPE/vN or vN. By default the newest one of its type, if there is any.",
)
@click.option(
    "--batch",
    type=click.Path(allow_dash=True),
    metavar="FILE|-",
    help='Events, each {"type", "event_id"?, "payload"}: a JSON array, or one a line. Without TYPE.',
)
@json_option
@click.pass_obj
def command(
    streams: Streams,
    event_type: str | None,
    file: str | None,
    key: str | None,
    content_type: str | None,
    schema: str | None,
    batch: str | None,
) -> None:
    """Post an event of TYPE whose payload is FILE, or stdin, for `-` or if something is piped or redirected there.

    Without either, on a terminal or with nothing on stdin, the payload is an empty JSON object. It may be any bytes,
    and goes to the endpoints unchanged. With --batch many events are posted, as many in a request as it takes; the exit
    code is 1 if any was refused.
    """
    if batch is not None:
        if event_type or key or content_type or schema:
            raise click.UsageError("In a batch each event says its own type and event_id: leave out TYPE and options.")
        with connect(read_settings()) as relay:
            send_batch(relay, _payload(batch, streams), streams)
        return
    if event_type is None:
        raise click.UsageError("Missing argument 'TYPE'.")
    payload = _payload(file, streams)
    headers = {
        "relay-event-type": _header(event_type, "TYPE"),
        "content-type": _header(content_type, "--content-type") if content_type else _kind(payload),
    }
    if key is not None:
        headers["idempotency-key"] = _header(key, "--key")
    if schema is not None:
        headers["relay-schema"] = _header(schema if "/" in schema else f"{event_type}/{schema}", "--schema")
    with connect(read_settings()) as relay, _in_our_words(streams, has_key=key is not None):
        response = relay.send("POST", "/v1/events", content=payload, headers=headers)
    receipt = response.json()
    streams.done(f"the event is accepted as {receipt['receipt_id']}")
    if streams.json:
        streams.document(receipt)
        return
    deliveries = receipt["deliveries"]
    to = ", ".join(delivery["consumer"] for delivery in deliveries) or "nobody: no endpoint subscribes to this type"
    seen = " (seen before, not stored again)" if "relay-idempotent-replay" in response.headers else ""
    streams.line(f"accepted{seen}, to be delivered to {printable(to)}")
    streams.line(f"relay receipt {receipt['receipt_id']} --watch")


@contextmanager
def _in_our_words(streams: Streams, *, has_key: bool) -> Iterator[None]:
    """A refusal is told by the options of this command, and as a document to who has asked for one."""
    try:
        yield
    except Refused as refusal:
        if streams.json_asked and refusal.problem is not None:
            streams.document(refusal.problem)
        text = str(refusal)
        if has_key:
            text = text.replace("the same Idempotency-Key", "the same --key")
        else:
            for words in (" so that it cannot count twice", " if it had one", ""):
                text = text.replace(f", with the same Idempotency-Key{words}", "; without --key it may count twice")
        raise refusal.reworded(text) from refusal


def _payload(file: str | None, streams: Streams) -> bytes:
    try:
        if file is None:
            return (read_stdin(streams) if is_fed() else b"") or EMPTY
        return read_stdin(streams) if file == "-" else Path(file).read_bytes()
    except OSError as fault:
        name = "stdin" if file in (None, "-") else file
        raise click.UsageError(f"{name} cannot be read: {fault.strerror}.") from fault


def _header(text: str, what: str) -> str:
    """Text that can stand in a header. What it means is for the gateway to judge."""
    if not (text.isascii() and text.isprintable()):
        raise click.UsageError(f"{what} may hold visible ASCII characters only.")
    return text


def _kind(payload: bytes) -> str:
    try:
        json.loads(payload)
    except (ValueError, RecursionError):
        return "application/octet-stream"
    return "application/json"
