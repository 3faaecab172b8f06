"""One consumer's part of an event's story: what happened and what it waited for, in order of time.

Owns the steps of a lane. Pure: made of the JSON of the API, with times in milliseconds since the request reached the
gateway. Invariant: a lane's steps never run backwards, even where two clocks disagree, and nothing is told that was not
recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from relay.cli.spans import between, read_instant, span

Json = Mapping[str, Any]

NOTHING, ON_ITS_WAY, BACKOFF, GATE, AWAITED = " ", "-", ".", "~", ":"
FAILED, RECEIVED, ACKED, DEAD, REDRIVEN, NEXT, NOW = "x", "o", "*", "!", "R", ">", "|"

LEGEND = (
    (ON_ITS_WAY, "on its way"),
    (BACKOFF, "backoff"),
    (GATE, "behind a gate"),
    (AWAITED, "ack awaited"),
    (FAILED, "failed try"),
    (RECEIVED, "2xx"),
    (ACKED, "acked"),
    (DEAD, "dead letter"),
    (REDRIVEN, "sent again"),
    (NEXT, "next try"),
    (NOW, "now"),
)
"""What the marks mean; no two look alike without colour."""

STYLES = {FAILED: "yellow", ACKED: "green", DEAD: "bold red", REDRIVEN: "magenta", NEXT: "cyan", GATE: "yellow"}

_WAITS = {BACKOFF: "backoff", GATE: "gate", AWAITED: "ack awaited"}
_MARKS = {"acked": ACKED, "dead_lettered": DEAD, "redriven": REDRIVEN}
_AFTER = {ACKED: NOTHING, DEAD: NOTHING, REDRIVEN: ON_ITS_WAY, FAILED: BACKOFF, RECEIVED: AWAITED, GATE: ON_ITS_WAY}


@dataclass(frozen=True, slots=True)
class Step:
    """Something that took from `start` to `end`, drawn with `line`, and with `mark` at its end unless that is empty.

    `then` is how the time is drawn that follows it; `facts` tell it in words.
    """

    start: float
    end: float
    line: str
    mark: str
    then: str
    facts: tuple[str, ...] = ()


def steps(receipt: Json, delivery: Json, attempts: Iterable[Json], now: datetime) -> list[Step]:
    """What happened to a delivery and what it waits for now, the first first, without the waits between."""
    received_at = read_instant(receipt["received_at"])
    told = sorted((*_moments(receipt, delivery), *_attempts(attempts, received_at)), key=_order)
    begun = max(_begin(receipt), 0.0)
    made = [Step(begun, begun, ON_ITS_WAY, "", ON_ITS_WAY)]
    for step in told:
        made.append(_not_before(step, made[-1].end))
    made += _tail(delivery, made[-1], received_at, now)
    return made


def waits(told: Iterable[Step]) -> Iterator[tuple[Step, float, str]]:
    """Each step with how long nothing happened before it, and why; the why is empty where that is no wait."""
    before: Step | None = None
    for step in told:
        gap = step.start - before.end if before else 0.0
        why = _WAITS.get(before.then, "") if before and gap > 0 else ""
        yield step, gap, why
        before = step


def _order(step: Step) -> tuple[float, bool, bool]:
    """By time; of one instant first what came back, then what that led to, a re-drive last."""
    return step.end, step.mark in (ACKED, DEAD), step.mark == REDRIVEN


def _begin(receipt: Json) -> float:
    """When it was owed: at its routing, or where nothing matched then, when the event had been looked at."""
    for what in ("routed", "committed", "receipt_assigned"):
        for entry in receipt["timeline"]:
            if entry["what"] == what:
                return float(entry["at_ms"])
    return 0.0


def _not_before(step: Step, limit: float) -> Step:
    return Step(max(step.start, limit), max(step.end, limit), step.line, step.mark, step.then, step.facts)


def _moments(receipt: Json, delivery: Json) -> Iterator[Step]:
    """Acks, dead letters and re-drives, which are on record with the receipt."""
    generation = 0
    for entry in receipt["timeline"]:
        mark = _MARKS.get(entry["what"])
        if mark is None or entry["consumer"] != delivery["consumer"]:
            continue
        if mark == REDRIVEN:
            generation += 1
        words = {
            ACKED: "acked",
            DEAD: "dead letter",
            REDRIVEN: f"sent again: generation {generation}",
        }[mark]
        yield Step(entry["at_ms"], entry["at_ms"], NOTHING, mark, _AFTER[mark], (words,))


def _attempts(attempts: Iterable[Json], received_at: datetime) -> Iterator[Step]:
    for each in attempts:
        at = between(received_at, read_instant(each["at"]))
        if each["outcome_class"] == "deferred":
            waited = float(each["deferred_for_ms"] or 0)
            words = (f"waited {span(waited)}: {each['reason']}",)
            yield Step(at - waited, at, GATE, "", _AFTER[GATE], words)
        else:
            mark = RECEIVED if each["outcome_class"] == "success" else FAILED
            took = (each["wait_ms"] or 0.0) + (each["total_ms"] or 0.0)
            yield Step(at, at + took, ON_ITS_WAY, mark, _AFTER[mark], tuple(_facts(each)))


def _facts(attempt: Json) -> Iterator[str]:
    """A try in words: its number, what came, and where its time went."""
    yield f"try {attempt['attempt']}"
    yield " ".join(str(each) for each in (attempt["status_code"], attempt["error_class"]) if each is not None)
    yield str(attempt["outcome_class"])
    if attempt["reason"]:
        yield str(attempt["reason"])
    phases = (
        *(("claimed for", "wait_ms"), ("connect", "connect_ms"), ("send", "send_ms")),
        *(("first byte", "first_byte_ms"), ("total", "total_ms")),
    )
    for name, field in phases:
        if attempt[field] is not None:
            yield f"{name} {span(attempt[field])}"


def _tail(delivery: Json, last: Step, received_at: datetime, now: datetime) -> Iterator[Step]:
    """What it waits for now."""
    here = max(between(received_at, now), last.end)
    if delivery["status"] == "in_flight":
        awaits = delivery["waiting_for"] == "ack"
        words = "its ack is awaited" if awaits else "a try is under way"
        yield Step(last.end, here, AWAITED if awaits else ON_ITS_WAY, NOW, NOTHING, (words,))
    elif delivery["status"] == "pending":
        line = {"retry": BACKOFF, None: ON_ITS_WAY}.get(delivery["waiting_for"], GATE)
        why = delivery["waiting_for"] or "due"
        at = delivery["next_attempt_at"]
        if at is None:
            words = "no next try until it is resumed" if why == "paused" else "the next try comes when that ends"
            yield Step(last.end, here, line, NOW, NOTHING, (f"waits: {why}", words))
        else:
            due = max(between(received_at, read_instant(at)), last.end)
            yield Step(last.end, due, line, NEXT, NOTHING, (f"waits: {why}", f"next try at {at}"))
