"""A standby becomes the primary.

Owns the comparison and the promotion. Invariant: a standby is promoted only after every other one was asked how far it
is, with the old primary gone and nothing on its way any more, and none is further.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from relay.embedded.faults import StartFailed
from relay.embedded.launching import Waiting
from relay.embedded.query import Line

SETTLE_SECONDS = 600.0
"""How long standbys may take to read what they have; seconds are usual, as for any recovery."""

PROMOTE_SECONDS = 60
_LOOK_SECONDS = 0.1

# The files of the log tell the newest timeline that it has anything of; the control file is behind. What was received
# is unknown after a restart, and then what was replayed is all there is.
_POSITION = """
    SELECT
        (SELECT max(left(name, 8)) FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'),
        greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'::pg_lsn,
        NOT EXISTS (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming')
            AND EXISTS (
                SELECT FROM pg_stat_activity
                WHERE backend_type = 'startup'
                AND wait_event IN ('RecoveryWalStream', 'RecoveryRetrieveRetryInterval')
            )
"""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """How far a standby is in its primary's log: the timeline first, then bytes."""

    timeline: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.bytes >> 32:X}/{self.bytes & 0xFFFFFFFF:X} of timeline {self.timeline}"


def furthest(positions: Mapping[str, Position]) -> str:
    """Whoever has the most; of equals the first by name."""
    return max(sorted(positions), key=positions.__getitem__)


def final_positions(lines: Mapping[str, Line], waiting: Waiting) -> Mapping[str, Position]:
    """How far each standby is when it has read all that it has. Raises `EmbeddedFault`.

    Two looks must agree, since between what arrived and what was read there is a moment in which neither shows it.
    """
    deadline = time.monotonic() + SETTLE_SECONDS
    before: Mapping[str, Position] = {}
    while True:
        looks = {name: _look(line) for name, line in lines.items()}
        positions = {name: position for name, (position, _) in looks.items()}
        if positions == before and all(settled for _, settled in looks.values()):
            return positions
        before = positions
        waiting.check()
        if time.monotonic() > deadline:
            raise StartFailed(f"{' and '.join(lines)} are still reading their log after {SETTLE_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)


def _look(line: Line) -> tuple[Position, bool]:
    ((timeline, position, settled),) = line.ask(_POSITION)
    return Position(int(timeline, 16), int(position)), settled == "t"


def promote(line: Line) -> None:
    """Make a standby take writes. Raises `EmbeddedFault`."""
    answer = line.ask(f"SELECT pg_promote(true, {PROMOTE_SECONDS})", seconds=PROMOTE_SECONDS + 10.0)
    if answer != [["t"]]:
        raise StartFailed(f"the standby at {line.sockets} did not become the primary in {PROMOTE_SECONDS} s")
