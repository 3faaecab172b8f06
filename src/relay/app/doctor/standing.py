"""The examination of what waits for a person although all works: disabled endpoints, open breakers, dead letters.

Owns these notes. Invariant: each is a warning, for what they tell of is a receiver's doing.
"""

from __future__ import annotations

import shlex

from relay.app.doctor.findings import Findings, fault, warning
from relay.store.database import Database
from relay.store.examination import Examination
from relay.store.faults import StoreUnavailable

MOST = 20
"""So many endpoints of a kind are named."""


async def examine_standing(database: Database) -> Findings:
    """What a person may want to look at."""
    examination = Examination(database)
    try:
        disabled = await examination.disabled(MOST + 1)
        breakers = await examination.open_breakers()
        dead = await examination.dead_letters()
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
    return tuple(notes)
