"""Receipts as a person reads them: a line in a list, a headline, a moment of the story.

Owns these and the question whether anything can still happen by itself. Works on the JSON of the API. The whole
story is drawn by `story`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from relay.cli.rendering import table, words
from relay.cli.waiting import PAUSED

Receipt = Mapping[str, Any]

_STYLES = {"delivered": "green", "dead": "red", "in_flight": "yellow", "pending": "yellow", "closed": "green"}


def status(delivery: Mapping[str, Any]) -> Text:
    """How a delivery stands, in its colour; a dead letter that a person gave up is told from one that waits."""
    text = "dead, discarded" if delivery.get("discarded_at") else delivery["status"]
    return words(text, _STYLES.get(delivery["status"], ""))


def _standing(receipt: Receipt) -> Text:
    """Open or closed, and why or how."""
    why = _outcome(receipt) or receipt.get("reason")
    return words(f"{receipt['state']}: {why}" if why else receipt["state"], _STYLES.get(receipt["state"], ""))


def _outcome(receipt: Receipt) -> str:
    """How it closed, beside the word that it did; empty while it is open."""
    return str(receipt["outcome"] or "").removeprefix("closed_")


def summary(receipts: Iterable[Receipt]) -> RenderableType:
    """A list of receipts, a line each."""
    columns = ("received", "receipt", "type", "deliveries", "state", "not delivered")
    rows = [
        (
            each["received_at"],
            each["receipt_id"],
            each["type"],
            each["delivery_count"],
            _standing(each),
            "" if each["state"] == "closed" else _undelivered(each),
        )
        for each in receipts
    ]
    return table(columns, rows, optional=("not delivered",))


def _undelivered(receipt: Receipt) -> str:
    """How many deliveries are dead, and how many wait for what: a retry comes by itself, a dead letter does not."""
    kinds = Counter(_kind(each) for each in receipt["deliveries"] if each["status"] != "delivered")
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())


def _kind(delivery: Mapping[str, Any]) -> str:
    if waits := delivery["waiting_for"]:
        return f"waiting: {waits}"
    return "due" if delivery["status"] == "pending" else str(status(delivery).plain).replace("_", " ")


def headline(receipt: Receipt) -> Text:
    """Which event it is and how it stands."""
    outcome = _outcome(receipt)
    state = outcome or receipt["state"]
    if receipt.get("reason"):
        state = f"{state} ({receipt['reason']})"
    return Text.assemble(
        words(receipt["receipt_id"], "bold"),
        "  ",
        words(receipt["type"]),
        "  ",
        words(f"{receipt['state']}: {state}" if outcome else state, _STYLES.get(receipt["state"], "")),
    )


def line(entry: Mapping[str, Any]) -> Text:
    """One line of the timeline: boundary, what, milliseconds since the request arrived, to whom."""
    what = str(entry["what"]).replace("_", " ")
    return Text.assemble(
        words(f"  {entry['boundary']}", "bold cyan"),
        words(f"  {what:<18}"),
        words(f"{entry['at_ms']:>10.1f} ms", "dim"),
        words(f"  {entry['consumer']}" if entry.get("consumer") else ""),
    )


def is_settled(receipt: Receipt) -> bool:
    """Whether nothing more will happen unless a person does something: it is closed, or all that is left is dead or
    held until its endpoint is resumed."""
    if receipt["state"] == "closed":
        return True
    return all(delivery["status"] in ("delivered", "dead") or is_held(delivery) for delivery in receipt["deliveries"])


def is_held(delivery: Mapping[str, Any]) -> bool:
    """Whether it waits for a person: its endpoint is paused, or disabled by its own answer."""
    return bool(delivery["status"] == "pending" and delivery["waiting_for"] == PAUSED)
