"""Why something waits, and what opens the way: an endpoint's lane in a sentence.

Owns the words. Works on the JSON of the API. Invariant: where only a person can help, the sentence says with what.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from relay.cli.client import Client, Refused
from relay.cli.failures import CommandFailed
from relay.cli.streams import Streams

PAUSED = "paused"
"""What a delivery waits for whose endpoint a person has paused, or its own answer has disabled."""

MOST_LANES = 5
"""How many endpoints are looked at; of more the rest is passed over."""

_MOVES_BY_ITSELF = (None, "retry", "ack")
_NOT_FOUND = 404

GATES = {
    "breaker": "its receiver did not answer: the breaker lets one delivery try",
    "rate_limit": "its rate_per_second and burst are used up",
    "retry_after": "its receiver asked for a pause",
    "endpoint_concurrency": "its max_in_flight requests are under way",
}


def lane_note(endpoint: Mapping[str, Any]) -> str | None:
    """What keeps everything for this endpoint waiting, until when or until what is done; None if nothing does."""
    name = endpoint["name"]
    resume = f"`relay endpoints resume {shlex.quote(name)}`"
    if endpoint["state"] == PAUSED:
        return f"{name} is paused: it waits until {resume}"
    if endpoint["state"] == "disabled":
        return f"{name} is disabled ({endpoint['state_reason']}): it waits until that is mended, then {resume}"
    gate = endpoint["closed_by"]
    if gate is None:
        return None
    until = f" until {endpoint['opens_at']}" if endpoint["opens_at"] else ""
    return f"{name} takes nothing now ({gate}: {GATES.get(gate, 'its lane is closed')}): it waits{until}"


def lane_notes(relay: Client, deliveries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What keeps those of the deliveries waiting that stand before a closed gate, a sentence for each endpoint."""
    waiting = [each for each in deliveries if each["status"] == "pending"]
    lanes = dict.fromkeys(each["endpoint_id"] for each in waiting if each["waiting_for"] not in _MOVES_BY_ITSELF)
    for lane in list(lanes)[:MOST_LANES]:
        endpoint = find_endpoint(relay, lane)
        note = None if endpoint is None else lane_note(endpoint)
        if note is not None:
            yield note


@contextmanager
def in_passing(streams: Streams) -> Iterator[None]:
    """Look at what something waits for after it is done: if that cannot be seen, it is said, and done is done."""
    try:
        yield
    except CommandFailed as trouble:
        streams.note(f"done, but what it waits for could not be looked at: {trouble}")


def find_endpoint(relay: Client, endpoint_id: str) -> dict[str, Any] | None:
    """The endpoint; None if it was removed. Raises `CommandFailed`."""
    try:
        found: dict[str, Any] = relay.call("GET", f"/v1/endpoints/{quote(endpoint_id, safe='')}")
    except Refused as refusal:
        if refusal.status != _NOT_FOUND:
            raise
        return None
    return found
