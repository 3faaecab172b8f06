"""Plots as SVG: columns of a value, and times by percentile.

Owns the drawing; what is drawn is `sweep_report`'s. The colours follow the reader's light or dark scheme, and a plot
has a ground of its own, so that it can be read on any page. Invariant: the same values give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 720
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 58, 46

_STYLE = """
  .ground { fill: #fcfcfb; }
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #52514e; }
  .title { font-size: 15px; font-weight: 600; fill: #0b0b0b; }
  .value { fill: #0b0b0b; }
  .grid { stroke: #e4e3df; stroke-width: 1; }
  .axis { stroke: #b4b2ab; stroke-width: 1; }
  .bar { fill: #a9bdd6; }
  .bar.chosen { fill: #2a5fa5; }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
  .s0 { stroke: #2a5fa5; } .s1 { stroke: #1b7f6b; } .s2 { stroke: #b3541e; } .s3 { stroke: #7b4ea3; }
  .t0 { fill: #2a5fa5; } .t1 { fill: #1b7f6b; } .t2 { fill: #b3541e; } .t3 { fill: #7b4ea3; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #1a1a19; }
    text { fill: #c3c2b7; }
    .title, .value { fill: #ffffff; }
    .grid { stroke: #33332f; }
    .axis { stroke: #65645d; }
    .bar { fill: #4a5d78; }
    .bar.chosen { fill: #6ea5ee; }
    .s0 { stroke: #6ea5ee; } .s1 { stroke: #4cc3a6; } .s2 { stroke: #ee9a61; } .s3 { stroke: #bd93e4; }
    .t0 { fill: #6ea5ee; } .t1 { fill: #4cc3a6; } .t2 { fill: #ee9a61; } .t3 { fill: #bd93e4; }
  }
"""
SERIES = 4
"""So many lines have a colour of their own."""


@dataclass(frozen=True, slots=True)
class Column:
    """A value with its name; the chosen ones stand out."""

    name: str
    value: float
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A named line through points; times are milliseconds, by the share (below 1) that took at most so long."""

    name: str
    points: tuple[tuple[float, float], ...]


def columns(title: str, below: str, values: Sequence[Column], *, height: int = 280) -> str:
    """Columns from zero, with their values above them; `below` says what the names are values of."""
    floor, room = height - BOTTOM, height - BOTTOM - TOP
    top = _round_up(max((each.value for each in values), default=1.0))
    pitch = (WIDTH - LEFT - RIGHT) / max(1, len(values))
    wide = min(72.0, pitch * 0.62)
    parts = [
        *_ruled([top * quarter / 4 for quarter in range(5)], lambda value: floor - room * value / top),
    ]
    for place, each in enumerate(values):
        middle, tall = LEFT + pitch * (place + 0.5), room * each.value / top
        kind = "bar chosen" if each.chosen else "bar"
        size = f'width="{wide:.1f}" height="{tall:.1f}" rx="2"'
        parts += [
            f'<rect class="{kind}" x="{middle - wide / 2:.1f}" y="{floor - tall:.1f}" {size}/>',
            _text(middle, floor - tall - 6, f"{each.value:,.0f}", "value", anchor="middle"),
            _text(middle, floor + 18, each.name, anchor="middle"),
        ]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, height - 10, below, anchor="middle"))
    return _svg(title, height, parts)


def percentiles(title: str, below: str, lines: Sequence[Line], *, height: int = 320) -> str:
    """Times by percentile, both on scales that give the rare and the long as much room as the usual. At most `SERIES`
    lines; each is named where it ends."""
    floor, room = height - BOTTOM, height - BOTTOM - TOP
    values = [value for line in lines for _, value in line.points] or [1.0]
    low, high = 10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(max(values) * 1.001))
    nines = max((_nines(share) for line in lines for share, _ in line.points), default=3.0)
    wide = WIDTH - LEFT - RIGHT - 110

    def x(share: float) -> float:
        return LEFT + wide * _nines(share) / nines

    def y(value: float) -> float:
        return floor - room * math.log10(value / low) / math.log10(high / low)

    decades = range(round(math.log10(low)), round(math.log10(high)) + 1)
    parts = _ruled([10.0**decade for decade in decades], y)
    for share in (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999):
        if _nines(share) <= nines:
            parts.append(f'<line class="grid" x1="{x(share):.1f}" x2="{x(share):.1f}" y1="{TOP}" y2="{floor}"/>')
            parts.append(_text(x(share), floor + 18, f"{share * 100:g} %", anchor="middle"))
    ends: list[float] = []
    for place, line in enumerate(lines[:SERIES]):
        drawn = " ".join(f"{x(share):.1f},{y(value):.1f}" for share, value in line.points)
        end_x, end_y = x(line.points[-1][0]), y(line.points[-1][1])
        while any(abs(end_y - each) < 15 for each in ends):
            end_y += 15
        ends.append(end_y)
        parts.append(f'<polyline class="line s{place}" points="{drawn}"/>')
        parts.append(_text(end_x + 8, end_y + 4, line.name, f"t{place}"))
    parts.append(_text(LEFT + wide / 2, height - 10, below, anchor="middle"))
    return _svg(title, height, parts)


def _nines(share: float) -> float:
    """How far along the axis a share is: 0 for none, 1 for nine of ten, 2 for 99 of a hundred."""
    return -math.log10(1 - share)


def _round_up(value: float) -> float:
    """The next value that can be divided in four and be read."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if step * unit >= value)


def _ruled(values: Sequence[float], y: Callable[[float], float]) -> list[str]:
    """Lines across, with what they stand for; the first one is the floor."""
    parts = []
    for place, value in enumerate(values):
        height, kind = f"{y(value):.1f}", "grid" if place else "axis"
        parts.append(f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height}" y2="{height}"/>')
        parts.append(_text(LEFT - 8, y(value) + 4, f"{value:,.10g}", anchor="end"))
    return parts


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' role="img" aria-label="{escape(title)}">'
    )
    ground = f'<rect class="ground" width="{WIDTH}" height="{height}" rx="6"/>'
    inner = [f"<style>{_STYLE}</style>", ground, _text(LEFT - 44, 28, title, "title"), *parts]
    return "\n".join([head, *inner, "</svg>", ""])
