"""What an examination finds, and how long one check may take.

Owns the three levels. Invariant: a check ends within `CHECK_SECONDS`, and what it says is one line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import StrEnum

from relay.app.faults import cannot_import

CHECK_SECONDS = 5.0


class Level(StrEnum):
    """How it stands: all is well, somebody should look at it, or something does not work."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. The text of what is not well says what to do."""

    check: str
    level: Level
    text: str


Findings = tuple[Finding, ...]


def ok(check: str, text: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, text)


def warning(check: str, text: str) -> Finding:
    """Somebody should look at it."""
    return Finding(check, Level.WARNING, text)


def fault(check: str, text: str) -> Finding:
    """It does not work."""
    return Finding(check, Level.FAULT, text)


async def bounded(check: str, work: Coroutine[None, None, Findings], late: str) -> Findings:
    """What the check finds, or that it took too long, with `late` as what to do then. Where it needs what cannot be
    imported, that is the finding: of all commands, this one is to say so."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await work
    except ImportError as missing:
        return (fault(check, cannot_import(missing)),)
    except TimeoutError:
        return (fault(check, f"no answer within {CHECK_SECONDS:g} s: {late}"),)
