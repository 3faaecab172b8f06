"""Whether the standbys follow their primary.

Owns the questions to the primary about them, and the patience with one that does not follow. Invariant: a standby that
moves is left alone, whatever else is the matter with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from relay.embedded.query import Line

STANDSTILL_SECONDS = 20.0
"""How long a standby may stand still without its primary before something is done about it."""

LONGEST_STANDSTILL_SECONDS = 600.0
"""And how long where that did not help, each time twice as long as before."""

ASK_SECONDS = 5.0

_FOLLOWERS = """
    SELECT name, coalesce(max(slot.wal_status), ''), coalesce(max(sender.state), '')
    FROM unnest(string_to_array('{names}', ',')) AS name
    LEFT JOIN pg_replication_slots AS slot ON slot.slot_name = name
    LEFT JOIN pg_stat_replication AS sender
        ON sender.application_name = name AND sender.state IN ('catchup', 'streaming')
    GROUP BY name ORDER BY name
"""
_MAKE_SLOTS = """
    SELECT pg_create_physical_replication_slot(name)
    FROM unnest(string_to_array('{names}', ',')) AS name
    WHERE name NOT IN (SELECT slot_name FROM pg_replication_slots)
"""


@dataclass(frozen=True, slots=True)
class Follower:
    """What the primary knows of a standby: whether it streams, whether it is connected at all, and whether it never can
    go on, since what it needs is gone.
    """

    streams: bool
    connected: bool
    lost: bool


def make_slots(line: Line, names: tuple[str, ...]) -> None:
    """Have a slot for each of the names; a new one keeps nothing back until its standby comes. Raises `NoAnswer`."""
    line.ask(_MAKE_SLOTS.format(names=",".join(names)))


def followers(line: Line, names: tuple[str, ...]) -> Mapping[str, Follower]:
    """Ask the primary. Raises `NoAnswer`."""
    answers = line.ask(_FOLLOWERS.format(names=",".join(names)), seconds=ASK_SECONDS)
    return {name: Follower(state == "streaming", state != "", slot == "lost") for name, slot, state in answers}


def position(line: Line) -> str:
    """Up to where a standby has read its log. Raises `NoAnswer`."""
    return line.ask("SELECT coalesce(pg_last_wal_replay_lsn()::text, '')", seconds=ASK_SECONDS)[0][0]


class Remedy(Enum):
    """What helps a standby that does not follow."""

    NONE = "it follows, or may yet"
    RESTART = "a start anew"
    REBUILD = "a new copy of the primary"


class Patience:
    """With one standby."""

    def __init__(self) -> None:
        self._limit = STANDSTILL_SECONDS
        self._restarted = False
        self._place: str | None = None
        self._since: float | None = None

    def judge(self, now: float, follower: Follower, place: str | None) -> Remedy:
        """`place` is up to where it has read, None if it did not say; `now` is in seconds of a clock without jumps."""
        if follower.connected:
            self._limit, self._restarted, self._since = STANDSTILL_SECONDS, False, None
            return Remedy.NONE
        if follower.lost:
            return Remedy.REBUILD
        if self._since is None or (place is not None and place != self._place):
            self._since, self._place = now, place
        if now - self._since < self._limit:
            return Remedy.NONE
        self._since = now
        if not self._restarted:
            self._restarted = True
            return Remedy.RESTART
        self._limit = min(self._limit * 2, LONGEST_STANDSTILL_SECONDS)
        return Remedy.REBUILD
