"""Why an event has not arrived, in one sentence, with the time of the next try.

Owns the words. Pure: works on the JSON of the API. Invariant: where nothing happens by itself any more, the sentence
says what a person has to do; where something does, it says when.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from relay.cli.spans import between, read_instant, span
from relay.cli.waiting import GATES, PAUSED

Json = Mapping[str, Any]


def why(receipt: Json, endpoints: Mapping[str, Json], now: datetime) -> str:
    """The sentence. `endpoints` are those that were looked at, by their ids; `now` is the moment of the look."""
    again = f"`relay redrive {receipt['receipt_id']}`"
    if receipt["state"] == "closed":
        return _closed(receipt)
    if not receipt["deliveries"]:
        return f"It has not arrived because no endpoint subscribes to {receipt['type']}: add one, then {again}."
    missing = sorted((each for each in receipt["deliveries"] if not _is_done(each)), key=_urgency)
    if not missing:
        return "Everything that it is owed is acked or given up; its receipt is about to close."
    first = missing[0]
    count, of = len(missing), receipt["delivery_count"]
    name = first["consumer"]
    where = f"at {name}" if count == 1 else f"at {count} of {of} consumers; {name} stands for {_kinds(missing)}"
    return f"It has not arrived {where}: {_cause(receipt, first, endpoints, now)}{_other(missing, first, now)}."


def _closed(receipt: Json) -> str:
    of = receipt["delivery_count"]
    match receipt["outcome"]:
        case "delivered" | "delivered_after_redrive":
            last = max((each["at_ms"] for each in receipt["timeline"] if each["what"] == "acked"), default=0.0)
            who = "its consumer has" if of == 1 else f"all {of} consumers have"
            after = " after a re-drive" if receipt["outcome"] == "delivered_after_redrive" else ""
            return f"It has arrived{after}: {who} acked it, the last {span(last)} after the request."
        case "closed_incomplete":
            given_up = f"{receipt['discarded']} of {max(of, 1)} given up"
            return f"It has not arrived everywhere, and nothing more is sent: {given_up}."
        case outcome:
            return f"Nothing more is sent: its receipt is closed ({outcome})."


def _is_done(delivery: Json) -> bool:
    return delivery["status"] == "delivered" or bool(delivery.get("discarded_at"))


def _urgency(delivery: Json) -> tuple[int, str]:
    """Dead letters first, then what a person holds, then what is tried last: the longest wait explains the most."""
    if delivery["status"] == "dead":
        return 0, ""
    if delivery["waiting_for"] == PAUSED:
        return 1, ""
    return (2, "") if delivery["waiting_for"] else (3, "")


def _kinds(missing: Sequence[Json]) -> str:
    """How many stand how."""
    kinds = Counter(
        "dead" if each["status"] == "dead" else str(each["waiting_for"] or "on the way") for each in missing
    )
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())


def _cause(receipt: Json, delivery: Json, endpoints: Mapping[str, Json], now: datetime) -> str:
    name = shlex.quote(delivery["consumer"])
    failed = f"try {delivery['attempts']} failed ({_brief(delivery['last_error'])})" if delivery["last_error"] else ""
    match delivery["status"], delivery["waiting_for"]:
        case "dead", _:
            last = f" after {failed}" if failed else ""
            return (
                f"it is a dead letter at {delivery['boundary']} ({delivery['reason']}){last}, with no next try until"
                f" `relay redrive {receipt['receipt_id']} --consumer {name}`"
            )
        case "pending", "paused":
            endpoint = endpoints.get(delivery["endpoint_id"], {})
            held = f"disabled ({endpoint['state_reason']})" if endpoint.get("state") == "disabled" else "paused"
            return f"its endpoint is {held}, with no next try until `relay endpoints resume {name}`"
        case "pending", "retry":
            return f"{failed or 'its last try failed'}; {next_try(delivery, now)}"
        case "pending", None:
            return f"it is due; {next_try(delivery, now)}"
        case "pending", gate:
            return f"{gate} holds it ({GATES.get(gate, 'its lane is closed')}); {next_try(delivery, now)}"
        case _, "ack":
            return (
                "its receiver took it and has not acked it yet, and it is sent again if no ack comes in time;"
                f" tries so far: {delivery['attempts']}"
            )
        case _:
            return f"try {delivery['attempts']} is under way"


def _brief(text: str, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def next_try(delivery: Json, now: datetime) -> str:
    """When it is tried next."""
    if not delivery["next_attempt_at"]:
        return "the next try comes as soon as that ends"
    left = between(now, read_instant(delivery["next_attempt_at"]))
    if left <= 0:
        return f"the next try is due since {delivery['next_attempt_at']}"
    return f"the next try is at {delivery['next_attempt_at']}, in {span(left)}"


def _other(missing: Sequence[Json], told: Json, now: datetime) -> str:
    """The earliest next try of all, where that is another one's."""
    waiting = [each for each in missing if each["next_attempt_at"] and each["status"] == "pending"]
    if not waiting:
        return ""
    earliest = min(waiting, key=lambda each: read_instant(each["next_attempt_at"]))
    if earliest is told:
        return ""
    return f"; at {earliest['consumer']} {next_try(earliest, now)}"
