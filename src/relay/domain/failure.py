"""What keeps the gateway from taking an event that may be as it should be.

Owns these reasons. What is wrong with a request is another matter (`telemetry.RejectReason`). Invariant: each is the
code of an answer with a 5xx status, so a number and what senders were told can be laid side by side.
"""

from __future__ import annotations

from enum import StrEnum


class FailureReason(StrEnum):
    """Why an event was turned away for no fault of its sender's."""

    INTERNAL = "internal"
    JOURNAL_QUORUM = "journal_quorum"
    DATABASE_UNAVAILABLE = "database_unavailable"
    OVERLOADED = "overloaded"
    DRAINING = "draining"
