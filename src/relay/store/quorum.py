"""The proof of a quorum: who has the journal on disk, up to where, and what the server promises.

Owns the questions and their answers. Waiting for a quorum is `barrier`'s. Invariant: what is answered as proven was on
the disks of so many of the named standbys at the moment of asking, beside the primary's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import asyncpg

from relay.domain.standbys import ServerSays, Standbys, read_standbys, shortcoming
from relay.store import statements
from relay.store.database import Connection, Database
from relay.store.faults import CannotWrite, QuorumNotPromised

LogPlace = int
"""A place in the server's log, in bytes from its beginning."""

VOID_AFTER_SECONDS = 0.05
"""No event is declared void sooner after its commit. Whoever proves a younger one can be sure that it is not void."""

_WHOLE = 1 << 32


class Numbering(NamedTuple):
    """Where a transaction's number means what it meant.

    After a failover another server gives numbers out anew, and after a crash the same one does, for what was not on its
    disk. Either ends the session in which they were read.
    """

    timeline: int
    session: int


@dataclass(frozen=True, slots=True)
class Horizon:
    """Every transaction before `xid` (64 bits) of that numbering had ended, and of those before `end` all but the
    `running` ones; what was committed is on the quorum.
    """

    numbering: Numbering
    xid: int
    end: int = 0
    running: frozenset[int] = frozenset()

    def covers(self, numbering: Numbering, before_xid: int, written_by: int) -> bool:
        """Whether a transaction that wrote a row which is there is on the quorum, of which the last 32 bits are known.

        It was before `before_xid`. One that is older than 32 bits can tell is taken for a newer one, which is the safe
        side.
        """
        newest = before_xid - 1
        xid = newest - (newest - written_by) % _WHOLE
        has_ended = xid < self.xid or (xid < self.end and xid not in self.running)
        return numbering == self.numbering and has_ended


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look at the server showed.

    `standbys` of the listed ones have the log on disk up to `log_to`, of `streaming` that there are; where that was the
    end of it, `horizon` is what they then have. `releasing` of those that commits wait for at present have it, too.
    """

    log_to: LogPlace
    standbys: int
    streaming: int
    releasing: int
    horizon: Horizon
    said: ServerSays
    listed: Standbys

    def shortcoming(self, quorum: int) -> str | None:
        """Why this server cannot promise such a quorum at all, None if it can."""
        return shortcoming(self.said, quorum)

    def proves(self, quorum: int) -> bool:
        """Whether so many machines have the log up to that place, and the server promises it."""
        return self.standbys >= quorum - 1 and self.shortcoming(quorum) is None

    def replaces_barrier(self, quorum: int) -> bool:
        """Whether it proves it, and a commit at that place would wait for nobody any more.

        The server may be set to wait for more than the quorum, and whoever promotes a standby counts on that.
        """
        return self.proves(quorum) and self.releasing >= self.listed.awaited

    def missing(self, quorum: int) -> str:
        """Why it does not prove it, in words."""
        return self.shortcoming(quorum) or (
            f"{self.standbys} of the standbys {', '.join(self.listed.names)} have the journal on disk,"
            f" and RELAY_JOURNAL_QUORUM={quorum} needs {quorum - 1}: see that they run and keep up"
        )


async def look(connection: Connection, log_to: LogPlace | None = None, *, awaits: bool = False) -> Sight:
    """Look at the server; without a place, up to what is on its own disk now.

    `awaits`: the commits of this very session are to wait for the standbys, so its own setting counts too. Raises
    `CannotWrite` for a standby.
    """
    row = await connection.fetchrow(statements.text("prove_quorum"), log_to, awaits)
    assert row is not None, "it has one row"
    if row["log_to"] is None:
        raise CannotWrite("the database cannot write: it is a standby")
    return _sight(row, connection.get_server_pid())


async def examine(database: Database, quorum: int, *, awaits: bool = False) -> Sight:
    """Look at a server that is to keep such a quorum. Raises `QuorumNotPromised` if it is not set to."""
    async with database.connection() as connection:
        sight = await look(connection, awaits=awaits)
    fault = sight.shortcoming(quorum)
    if fault is not None:
        raise QuorumNotPromised(fault)
    return sight


def _sight(row: asyncpg.Record, session: int) -> Sight:
    said = ServerSays(
        standby_names=row["standby_names"],
        levels=tuple(row["levels"]),
        fsync=row["fsync"],
        sees_standbys=row["sees_standbys"],
    )
    listed = read_standbys(said.standby_names)
    return Sight(
        log_to=row["log_to"],
        # a list that has just been changed is in force for this session sooner than for the senders of the log
        standbys=len(set(row["standbys"]).intersection(listed.names)),
        streaming=row["streaming"],
        releasing=row["releasing"],
        horizon=_horizon(Numbering(row["timeline"], session), row["snapshot"]),
        said=said,
        listed=listed,
    )


def _horizon(numbering: Numbering, snapshot: str) -> Horizon:
    """From a snapshot's text: `xmin:xmax:running,running`."""
    first, end, running = snapshot.split(":")
    return Horizon(numbering, int(first), int(end), frozenset(map(int, running.split(","))) if running else frozenset())
