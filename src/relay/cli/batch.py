"""Many events from one file: a JSON array, or a JSON document a line.

Owns how the file is cut into requests, and what became of each event. Invariant: an event goes out as the bytes that
stand in the file, and the exit code says whether every one of them was accepted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from relay.cli.client import Client
from relay.cli.failures import CommandFailed
from relay.cli.progress import Progress
from relay.cli.streams import Streams

PATH = "/v1/events/batch"

MOST_EVENTS = 1_000
"""In one request."""

MOST_BYTES = 8 * 1024 * 1024
"""In one request, unless one event alone has more: half of what a gateway takes by default."""

_HEADERS = {"content-type": "application/json"}
_SHOWN = 20
_BLANK = b" \t\r\n"

_array = msgspec.json.Decoder(list[msgspec.Raw])


def send_batch(relay: Client, text: bytes, streams: Streams) -> None:
    """Post all events of the text, in their order. Raises `CommandFailed` if one was not accepted, or `UsageError`."""
    requests = list(_requests(_events(text)))
    total = sum(len(events) for events in requests)
    results: list[dict[str, Any]] = []
    with Progress(streams, "sent", total, short=MOST_EVENTS) as progress:
        for events in requests:
            body = b"[" + b",".join(events) + b"]"
            try:
                results += relay.send("POST", PATH, content=body, headers=_HEADERS).json()["data"]
            except CommandFailed as fault:
                if not results:
                    raise
                raise CommandFailed(_halfway(results, total, fault)) from fault
            progress.to(len(results))
    _tell(results, streams)


def _events(text: bytes) -> Sequence[bytes]:
    """The events, each as its bytes. Raises `UsageError`."""
    if text.lstrip(_BLANK).startswith(b"["):
        try:
            return [bytes(event) for event in _array.decode(text)]
        except (msgspec.DecodeError, RecursionError) as fault:
            raise click.UsageError(f"The file is no JSON array: {fault}.") from fault
    events = []
    for number, line in enumerate(text.split(b"\n"), start=1):
        event = line.strip(_BLANK)
        if event:
            _check(event, number)
            events.append(event)
    return events


def _check(event: bytes, number: int) -> None:
    """A line that is no document would spoil the request for all others. Raises `UsageError`."""
    try:
        json.loads(event)
    except (ValueError, RecursionError) as fault:
        raise click.UsageError(f"Line {number} is no JSON ({fault}): nothing was sent.") from fault


def _requests(events: Sequence[bytes]) -> Iterator[list[bytes]]:
    request: list[bytes] = []
    size = 0
    for event in events:
        if request and (len(request) == MOST_EVENTS or size + len(event) > MOST_BYTES):
            yield request
            request, size = [], 0
        request.append(event)
        size += len(event) + 1
    if request:
        yield request


def _halfway(results: list[dict[str, Any]], total: int, fault: CommandFailed) -> str:
    accepted = sum("error" not in result for result in results)
    return f"of the first {len(results)} of {total} events {accepted} are accepted, then: {fault}"


def _tell(results: list[dict[str, Any]], streams: Streams) -> None:
    refused = [(number, each["error"]) for number, each in enumerate(results, start=1) if "error" in each]
    accepted = len(results) - len(refused)
    if not refused:
        streams.done(f"{accepted} events are accepted")
    if streams.json:
        streams.document({"data": results})
    else:
        streams.line(f"{accepted} accepted, {len(refused)} refused")
    if refused:
        told = [f"event {number}: {_why(error)}" for number, error in refused[:_SHOWN]]
        left = [f"and {len(refused) - _SHOWN} more; --json has them all"] if len(refused) > _SHOWN else []
        raise CommandFailed("\n".join([*told, *left]))


def _why(error: dict[str, Any]) -> str:
    return f"{error.get('detail') or error.get('title')} ({error['code']})"
