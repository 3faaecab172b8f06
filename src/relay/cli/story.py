"""The story of an event as a picture in text: its way through the boundaries, and a lane for each consumer.

Owns the drawing. Pure: from the JSON of the API, the moment of the look and the width of the terminal to lines.
Invariants: it is readable without colour, and ASCII but for names; text from elsewhere is escaped; its length is
bounded however many consumers and tries there are; nothing is broken that is there to be copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import log10
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from relay.cli.arrival import why
from relay.cli.lanes import LEGEND, NEXT, NOTHING, NOW, STYLES, Step, steps, waits
from relay.cli.receipts import headline, status
from relay.cli.rendering import words
from relay.cli.spans import TICKS, between, read_instant, span

Json = Mapping[str, Any]

MOST_LANES = 12
"""Consumers that get a lane; of more the rest is counted."""

MOST_STEPS = 24
_FIRST_STEPS = 6
"""Lines of a lane at the most, and how many of them tell its beginning."""

_WORTH_TELLING = 50.0
"""Milliseconds without anything below which a wait has no words, though it is drawn."""

_INDENT = 2
_NARROWEST = 20
_PASSED, _STOPPED, _AHEAD = "*", "!", "o"
_BOUNDARY_STYLES = {_PASSED: "green", _STOPPED: "bold red", _AHEAD: "dim"}


@dataclass(frozen=True)
class Story:
    """What is drawn. `attempts` are those of the deliveries that get a lane, by id; `endpoints` what was looked at."""

    receipt: Json
    now: datetime
    attempts: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    endpoints: Mapping[str, Json] = field(default_factory=dict)

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """The picture for a terminal so wide; no line of it is wrapped by the console."""
        for line in drawn(self, options.max_width):
            line.no_wrap, line.overflow = True, "ignore"
            yield line


def drawn(story: Story, width: int) -> Iterator[Text]:
    """The lines, for a terminal of so many columns."""
    width = max(width, _NARROWEST)
    yield from _packed(headline(story.receipt).split("  "), width, gap="  ")
    yield from _packed(words(why(story.receipt, story.endpoints, story.now)).split(" "), width, gap=" ")
    yield Text("")
    yield from _boundaries(story.receipt, width)
    lanes = with_lanes(story.receipt)
    if lanes:
        told = {each["id"]: steps(story.receipt, each, story.attempts.get(each["id"], ()), story.now) for each in lanes}
        scale = _Scale(width - _INDENT, [step.end for lane in told.values() for step in lane] + _now(story))
        yield Text("")
        yield from _legend(scale, width, {mark for lane in told.values() for mark in _strip(lane, scale, story)})
        for lane in lanes:
            yield Text("")
            yield from _lane(lane, told[lane["id"]], scale, story, width)
    yield from _rest(story.receipt, lanes, width)


def with_lanes(receipt: Json) -> list[Json]:
    """The deliveries that get a lane: what is missing goes first, dead letters before what still moves."""
    rank = {"dead": 0, "pending": 1, "in_flight": 2}
    return sorted(receipt["deliveries"], key=lambda each: rank.get(each["status"], 3))[:MOST_LANES]


@dataclass(frozen=True)
class _Scale:
    """From milliseconds to columns, logarithmic: the milliseconds of a send and the hours of a wait both have room."""

    width: int
    moments: Sequence[float]

    def column(self, milliseconds: float) -> int:
        last = max(10.0, *self.moments)
        return round((self.width - 1) * log10(max(milliseconds, 1.0)) / log10(last))

    def ticks(self) -> str:
        """Round times, each behind a bar at its place, as far as they do not run into each other."""
        line = ""
        for milliseconds, name in TICKS:
            column = self.column(milliseconds)
            if column + len(name) < self.width and (not line or column > len(line)):
                line = f"{line:<{column}}|{name}"
        return line


def _now(story: Story) -> list[float]:
    return [_here(story)] if story.receipt["state"] == "open" else []


def _here(story: Story) -> float:
    return between(read_instant(story.receipt["received_at"]), story.now)


def _boundaries(receipt: Json, width: int) -> Iterator[Text]:
    """The four of them, side by side where there is room for that."""
    cells = [(name, f"{mark} {said}", mark) for name, mark, said in _passed(receipt)]
    wide = width // len(cells)
    if max(len(text) for name, said, _ in cells for text in (name, said)) + 2 > wide:
        for name, said, mark in cells:
            yield Text.assemble(words(f"{name:<11}", "bold cyan"), words(said, _BOUNDARY_STYLES[mark]))
        return
    last = cells[-1]
    names = (Text.assemble(words(name, "bold cyan"), f" {'-' * (wide - len(name) - 2)} ") for name, _, _ in cells[:-1])
    yield Text.assemble(*names, words(last[0], "bold cyan"))
    yield Text.assemble(
        *(words(f"{said:<{wide}}", _BOUNDARY_STYLES[mark]) for _, said, mark in cells[:-1]),
        words(last[1], _BOUNDARY_STYLES[last[2]]),
    )


def _passed(receipt: Json) -> Iterator[tuple[str, str, str]]:
    """Each boundary, whether the event has passed it, and when or how far."""
    at = {entry["what"]: span(entry["at_ms"]) for entry in receipt["timeline"]}
    dead = Counter(
        each["boundary"] for each in receipt["deliveries"] if each["status"] == "dead" and not each.get("discarded_at")
    )
    for name, whats in (("B1 Accept", ("receipt_assigned", "checked")), ("B2 Durable", ("confirmed", "committed"))):
        said = next((at[what] for what in whats if what in at), None)
        yield name, _PASSED if said else _AHEAD, said or "not yet"
    if not receipt["deliveries"]:
        yield "B3 Route", _STOPPED, str(receipt["reason"] or "no route")
    elif dead["B3"]:
        yield "B3 Route", _STOPPED, f"{dead['B3']} dead"
    else:
        yield "B3 Route", _PASSED, at.get("routed", "re-driven")
    if receipt["state"] == "closed":
        is_whole = str(receipt["outcome"]).startswith("delivered")
        yield "B4 Prove", _PASSED if is_whole else _STOPPED, at.get("closed", "closed")
        return
    acked = sum(each["status"] == "delivered" for each in receipt["deliveries"])
    said = f"{acked}/{receipt['delivery_count']} acked"
    yield "B4 Prove", _STOPPED if dead["B4"] else _AHEAD, f"{dead['B4']} dead" if dead["B4"] else said


def _legend(scale: _Scale, width: int, marks: set[str]) -> Iterator[Text]:
    """The scale, and what the marks on it mean that occur."""
    yield words("time since the request, log scale", "dim")
    yield words(" " * _INDENT + scale.ticks(), "dim")
    pieces = [Text(f"{mark} {name}", STYLES.get(mark, "dim")) for mark, name in LEGEND if mark in marks]
    yield from _packed(pieces, width, gap="  ", indent=_INDENT)


def _lane(delivery: Json, told: Sequence[Step], scale: _Scale, story: Story, width: int) -> Iterator[Text]:
    count = delivery["attempts"]
    about = [words(delivery["consumer"], "bold"), status(delivery), Text(f"{count} {'try' if count == 1 else 'tries'}")]
    if delivery["generation"]:
        about.append(Text(f"generation {delivery['generation']}"))
    yield from _packed([*about, words(delivery["id"], "dim")], width, gap="  ")
    strip = _strip(told, scale, story)
    yield Text.assemble(" " * _INDENT, *(Text(mark, STYLES.get(mark, "")) for mark in strip.rstrip()))
    yield from _told(told, delivery, width)
    if delivery["reason"]:
        said = f"{delivery['reason']} at {delivery['boundary']}"
        yield from _packed([Text("dead because"), words(said, "red")], width, gap="  ", indent=_INDENT)
    if delivery["last_error"] and delivery["status"] != "delivered":
        pieces = [Text("last error "), *words(delivery["last_error"]).split(" ")]
        yield from _packed(pieces, width, gap=" ", indent=_INDENT)


def _strip(told: Sequence[Step], scale: _Scale, story: Story) -> str:
    """The lane to scale: lines first, marks over them, of two in one place the later one."""
    cells = [NOTHING] * scale.width
    for number, step in enumerate(told):
        if number:
            _fill(cells, scale, told[number - 1].end, step.start, told[number - 1].then)
        _fill(cells, scale, step.start, step.end, step.line)
    if told[-1].mark == NEXT:
        cells[min(scale.column(_here(story)), scale.width - 1)] = NOW
    for step in told:
        if step.mark:
            cells[scale.column(step.end)] = step.mark
    return "".join(cells)


def _fill(cells: list[str], scale: _Scale, start: float, end: float, line: str) -> None:
    if line != NOTHING and end > start:
        for column in range(scale.column(start), scale.column(end) + 1):
            cells[column] = line


def _told(told: Sequence[Step], delivery: Json, width: int) -> Iterator[Text]:
    """The steps in words, a line each, with the waits between them; of many the first and the last."""
    lines: list[tuple[str, float, tuple[str, ...], str]] = []
    for step, gap, reason in waits(told):
        if reason and gap >= _WORTH_TELLING:
            lines.append((" ", step.start, (f"after {span(gap)} of {reason}",), "dim"))
        if step.facts:
            lines.append((step.mark or step.line, step.end, step.facts, STYLES.get(step.mark or step.line, "")))
    left = len(lines) - MOST_STEPS
    for number, (mark, at, facts, style) in enumerate(lines):
        if left > 0 and number == _FIRST_STEPS:
            yield from _packed([Text(f"... {left} more:"), words(f"relay deliveries {delivery['id']}")], width, " ", 2)
        if left <= 0 or number < _FIRST_STEPS or number >= _FIRST_STEPS + left:
            pieces = [Text(f"{mark} {'+' + span(at):<10}", style), *(words(fact, style) for fact in facts if fact)]
            yield from _packed(pieces, width, gap="  ", indent=_INDENT)


def _rest(receipt: Json, lanes: Sequence[Json], width: int) -> Iterator[Text]:
    """What has no lane, counted."""
    shown = {each["id"] for each in lanes}
    rest = [each for each in receipt["deliveries"] if each["id"] not in shown]
    if rest:
        kinds = Counter((each["status"], each["waiting_for"]) for each in rest)
        said = ", ".join(f"{count} {kind}" + (f" ({gate})" if gate else "") for (kind, gate), count in kinds.items())
        yield Text("")
        yield from _packed(words(f"and {len(rest)} more consumers: {said}").split(" "), width, gap=" ")


def _packed(pieces: Iterable[Text], width: int, gap: str, indent: int = 0) -> Iterator[Text]:
    """Pieces in as few lines as they need; none is broken, and lines after the first stand further in."""
    line, used = Text(" " * indent), False
    for piece in pieces:
        if used and line.cell_len + len(gap) + piece.cell_len > width:
            yield line
            line, used = Text(" " * (indent + _INDENT)), False
        line = Text.assemble(line, gap if used else "", piece)
        used = True
    yield line
