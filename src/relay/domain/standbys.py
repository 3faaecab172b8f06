"""What a PostgreSQL primary promises about its standbys, and whether that is enough for a quorum.

Owns the reading of `synchronous_standby_names` and the judgement. Asking the server is the store's. Invariant: a server
is found strong enough only if each commit that it confirms is on the disks of so many machines, whichever of the named
standbys answered first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

STRONG_LEVELS = frozenset({"on", "remote_apply"})
"""The values of `synchronous_commit` with which a commit waits until standbys have it on disk."""

ANY_CLIENT = "*"
"""Stands for every name: whichever client takes the log, one that only copies it included."""

_SYNTAX = re.compile(
    r"\s*(?:(?:(?:FIRST|ANY)\s+)?(?P<count>[0-9]+)\s*\((?P<listed>.*)\)|(?P<bare>.*?))\s*", re.IGNORECASE | re.DOTALL
)
_NAME = re.compile(r'\s*(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^\s,"()]+))\s*(?:,|$)')


@dataclass(frozen=True, slots=True)
class Standbys:
    """A commit waits for `awaited` of the standbys with these names, which are in lower case."""

    awaited: int
    names: tuple[str, ...]


NO_STANDBYS = Standbys(0, ())


def read_standbys(setting: str) -> Standbys:
    """Read a value of `synchronous_standby_names`. Raises `ValueError` for what no server would have accepted.

    Names are compared without regard to case, as the server does (PostgreSQL 18, runtime-config-replication).
    """
    if not setting.strip():
        return NO_STANDBYS
    parts = _SYNTAX.fullmatch(setting)
    assert parts is not None, "a bare list may be anything; its names are looked at one by one"
    # a bare list is FIRST 1
    count, listed = (int(parts["count"]), parts["listed"]) if parts["count"] else (1, parts["bare"])
    return Standbys(count, tuple(dict.fromkeys(_names(listed))))


def _names(listed: str) -> list[str]:
    names, at = [], 0
    while at < len(listed):
        name = _NAME.match(listed, at)
        if name is None:
            raise ValueError(f"not a list of names: {listed!r}")
        quoted = name["quoted"]
        names.append((name["plain"] if quoted is None else quoted.replace('""', '"')).lower())
        at = name.end()
    return names


@dataclass(frozen=True, slots=True)
class ServerSays:
    """What the server that we write to says of itself: the settings in force, and what our role may see.

    `levels` are the values of `synchronous_commit` that hold for our sessions and for our role.
    """

    standby_names: str
    levels: tuple[str, ...]
    fsync: str
    sees_standbys: bool


def shortcoming(said: ServerSays, quorum: int) -> str | None:
    """Why that server cannot promise a quorum of so many machines, itself included; None if it can.

    The sentence says what to change.
    """
    standbys = read_standbys(said.standby_names)
    needed = quorum - 1
    if needed == 0:
        return None
    weak = [level for level in said.levels if level not in STRONG_LEVELS]
    if not standbys.names:
        return (
            "the server waits for no standby: its synchronous_standby_names is empty;"
            f" set it to 'ANY {needed} (name, name)' with the names of your standbys,"
            " or bring the standbys back that Patroni has taken out of it"
        )
    if ANY_CLIENT in standbys.names:
        return (
            "synchronous_standby_names has *, which any client that copies the log satisfies: name the standbys,"
            " or bring one back where it was Patroni that had none to name"
        )
    if standbys.awaited < needed:
        return (
            f"synchronous_standby_names makes a commit wait for {standbys.awaited} standby,"
            f" and RELAY_JOURNAL_QUORUM={quorum} needs {needed}: set it to 'ANY {needed} (...)', or lower the quorum"
        )
    if standbys.awaited > len(standbys.names):
        return (
            f"synchronous_standby_names asks for {standbys.awaited} standbys and names {len(standbys.names)}:"
            " no commit can ever be confirmed"
        )
    if weak:
        return (
            f"synchronous_commit is {weak[0]!r} for Relay's role, and with it no commit waits until a standby has it on"
            " disk: set it to 'on' (ALTER ROLE, ALTER DATABASE or the server's configuration)"
        )
    if said.fsync != "on":
        return "the server runs with fsync off, and forgets what it confirmed when its machine stops: switch it on"
    if not said.sees_standbys:
        return "Relay's role may not see what the standbys have on disk: GRANT pg_monitor TO that role"
    return None
