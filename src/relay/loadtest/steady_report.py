"""What came of a steady load: for a person, for a program, and as a result file.

Owns the wording. Invariant: a result file has what it takes to run the same again, and to add up or plot its times.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from relay.loadtest.machine import Machine
from relay.loadtest.steady import Load, Steady
from relay.loadtest.times import ALL_SHOWN, times_head, times_row

FORM = "relay loadtest steady, 1"
HISTOGRAMS = "HdrHistogram, compressed, second version, in base64; microseconds from 1 to 3600000000, three digits"

SLOPE_SECONDS = 60
"""A shorter run says nothing of how memory grows by the minute."""


def text(steady: Steady) -> str:
    """The report for a person."""
    answers = ", ".join(f"{number:,} x {answer}" for answer, number in sorted(steady.answers.items()))
    costs = (
        f"processor time per event: gateway {steady.gateway_us:.0f} µs, dispatcher {steady.dispatcher_us:.0f} µs,"
        f" PostgreSQL {steady.postgres_us:.0f} µs; what posts: {steady.generator_us:.0f} µs"
    )
    lines = [
        f"{_told(steady.load)}: {answers}",
        *_receivers(steady),
        times_head("ms from due to", ALL_SHOWN),
        times_row("answered (the 202)", steady.answered_ms, ALL_SHOWN),
        times_row("arrived at its endpoint", steady.arrived_ms, ALL_SHOWN),
        f"the latest post left {steady.late_ms:.1f} ms after it was due",
        costs,
        *_meanwhile(steady),
        f"lost {steady.lost}, duplicates {steady.duplicates}",
    ]
    return "\n".join(lines)


def _told(load: Load) -> str:
    sizes = " and ".join(f"{size:,}" for size in load.sizes)
    to = f"{load.owed_to} of {load.endpoints} endpoints in turn" if load.types else f"{load.endpoints} endpoint(s)"
    arrivals = "" if load.arrivals == "constant" else f" ({load.arrivals})"
    return (
        f"{load.rate:,.0f} events/s{arrivals} of {sizes} bytes for {load.seconds:.0f} s to {to},"
        f" {load.auth or 'anonymous'}, {load.gateways} gateway and {load.dispatchers} dispatcher process(es)"
    )


def _receivers(steady: Steady) -> list[str]:
    told = steady.load.receivers.told()
    if not told:
        return []
    counted = ", ".join(f"{number:,} {what}" for what, number in steady.refusals.items())
    return [
        f"receivers: {told}",
        f"of the requests: {counted}; owed to endpoints that refuse: {steady.undeliverable:,}",
    ]


def _meanwhile(steady: Steady) -> list[str]:
    lines = []
    if steady.queue is not None:
        owed, unanswered = (
            ", ".join(f"{each:,}" for each in of) for of in (steady.queue.owed, steady.queue.unanswered)
        )
        flat = "flat" if steady.queue.is_flat else "growing: it does not keep up"
        lines.append(f"after each quarter of the posts, owed: {owed}; without an answer: {unanswered} ({flat})")
    for name, each in steady.memory.items():
        grown = f", {each.slope_per_minute:+.2f} a minute" if steady.load.seconds >= SLOPE_SECONDS else ""
        lines.append(
            f"memory of the {name}: {each.start:.1f} MiB before, {each.middle:.1f} in the middle,"
            f" {each.end:.1f} at the end{grown}"
        )
    return lines


def as_json(steady: Steady) -> str:
    """The report for a program."""
    return json.dumps(document(steady))


def document(steady: Steady) -> dict[str, Any]:
    """The same as values."""
    read = asdict(steady)
    if steady.queue is not None:
        read["queue"]["is_flat"] = steady.queue.is_flat
    return {**read, "faults": steady.faults()}


def result(steady: Steady, machine: Machine) -> str:
    """What a result file holds."""
    whole = {"form": FORM, "histograms": HISTOGRAMS, "machine": asdict(machine), **document(steady)}
    return json.dumps(whole, indent=2) + "\n"
