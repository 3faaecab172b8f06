"""The examination of what waits for a person although all works: disabled endpoints, open breakers, dead letters, and
what should be gone and is not.

Owns these notes. Invariant: each is a warning, for what they tell of is a receiver's doing, or that of whoever keeps a
table in use.
"""

from __future__ import annotations

import shlex

from relay.app.doctor.findings import Finding, Findings, fault, warning
from relay.store.database import Database
from relay.store.examination import Examination
from relay.store.faults import StoreUnavailable
from relay.store.retention import Overdue, Retention, Windows

MOST = 20
"""So many endpoints of a kind are named."""


async def examine_standing(database: Database, windows: Windows) -> Findings:
    """What a person may want to look at."""
    examination = Examination(database)
    try:
        disabled = await examination.disabled(MOST + 1)
        breakers = await examination.open_breakers()
        dead = await examination.dead_letters()
        overdue = await Retention(database).overdue(windows)
    except StoreUnavailable as away:
        return (fault("standing", " ".join(str(away).split())),)
    notes = [
        warning(
            f"endpoint {name}", f"disabled ({reason}): mend that, then `relay endpoints resume {shlex.quote(name)}`"
        )
        for name, reason in disabled[:MOST]
    ]
    if len(disabled) > MOST:
        notes.append(warning("endpoints", "more are disabled: `relay endpoints list` shows them"))
    if breakers:
        names = ", ".join(breakers[:MOST]) + (", …" if len(breakers) > MOST else "")
        notes.append(
            warning("breakers", f"open, as nothing answers, for {names}: `relay endpoints show` says until when")
        )
    if dead:
        notes.append(warning("dead letters", f"{dead} wait for a person: `relay dlq list` shows them"))
    if overdue.attempts or overdue.events or overdue.unswept:
        notes.append(_behind(overdue))
    return tuple(notes)


def _behind(overdue: Overdue) -> Finding:
    told = (
        (overdue.attempts, "of attempts"),
        (overdue.events, "of events"),
        (overdue.unswept, "whose receipts are left over"),
    )
    days = ", ".join(f"{count} {what}" for count, what in told if count)
    return warning(
        "retention",
        f"days that should have gone a day ago: {days}; a dispatcher must run, and whoever has the tables in use for"
        " long keeps it from its work (docs/retention.md)",
    )
