"""The troubles of this room, translated once from the driver's.

Owns the exceptions that rooms above may meet. Invariant: a driver's exception leaves this room only if it is a bug.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

_NUMBER = re.compile(r"\[Errno -?[0-9]+\] ")
"""What Python puts before the system's words."""


class StoreUnavailable(Exception):
    """The database did not answer. What was asked for may or may not have happened."""


class StoreFull(StoreUnavailable):
    """The server has no connection left for us; nothing was changed."""


class LoginRefused(StoreUnavailable):
    """The server answered and does not let us in; nothing was changed."""


class NoSuchDatabase(StoreUnavailable):
    """The server answered and has no database of that name; nothing was changed."""


class HostUnknown(StoreUnavailable):
    """The name of the server's host leads nowhere; nothing was changed."""


class CannotWrite(StoreUnavailable):
    """The server answers and takes no writes: its disk is full, or it is a standby; nothing was changed."""


class PoolerInBetween(StoreUnavailable):
    """What answers is no server: it does not take, or ignores, what our sessions start with; nothing was changed."""


class NotPermitted(StoreUnavailable):
    """Our role may not do that in the database; nothing was changed."""


class StoreBusy(StoreUnavailable):
    """The database refused because of others' locks; nothing was changed."""


class KeysRetired(StoreUnavailable):
    """Every key of this process is retired, so what it would seal nobody could open soon; nothing was changed."""


class StoreRefused(Exception):
    """The database refused what it was given; nothing was changed. Of itself: a constraint, which a bug would break."""


class DataRefused(StoreRefused):
    """A value itself is what no column takes (out of range, no character, too long): it will be refused each time."""


class CatalogueFull(Exception):
    """The tenant has as many schemas as it may have; the text says how many. Nothing was changed."""


class QuorumNotPromised(Exception):
    """The server is set to confirm commits that fewer machines have than are asked for; the text says what to set."""


class NotMigrated(Exception):
    """The database lacks migrations of this version of Relay; the text names the command to run."""


class NoSuchTenant(Exception):
    """There is no tenant of that id. Nothing is changed."""


class NameTaken(Exception):
    """Another endpoint of the tenant has that name."""


_Classes = tuple[type[Exception], ...]

_KNOWN: tuple[tuple[_Classes, type[Exception], str], ...] = (
    (
        (
            asyncpg.DeadlockDetectedError,
            asyncpg.SerializationError,
            asyncpg.LockNotAvailableError,
            # a migration has changed what a statement was prepared for; the driver prepares it anew the next time
            asyncpg.InvalidCachedStatementError,
            asyncpg.OutdatedSchemaCacheError,
        ),
        StoreBusy,
        "the database is busy",
    ),
    ((asyncpg.DataError, asyncpg.ProgramLimitExceededError), DataRefused, "the database refused a write"),
    ((asyncpg.IntegrityConstraintViolationError,), StoreRefused, "the database refused a write"),
    (
        # what one session has prepared is asked for in another
        (asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError),
        PoolerInBetween,
        "a pooler stands before the database",
    ),
    ((asyncpg.TooManyConnectionsError,), StoreFull, "the database has no connection left"),
    ((asyncpg.InvalidAuthorizationSpecificationError,), LoginRefused, "the database server refuses us"),
    ((asyncpg.InvalidCatalogNameError,), NoSuchDatabase, "the database server answers"),
    ((asyncpg.InsufficientPrivilegeError,), NotPermitted, "the database does not let our role do that"),
    (
        # the last of them is what a standby says to who asks for a place in its log
        (asyncpg.DiskFullError, asyncpg.ReadOnlySQLTransactionError, asyncpg.ObjectNotInPrerequisiteStateError),
        CannotWrite,
        "the database cannot write",
    ),
    ((socket.gaierror,), HostUnknown, "the host of the database is unknown"),
    (
        (
            asyncpg.PostgresConnectionError,
            asyncpg.InternalClientError,
            asyncpg.ClientConfigurationError,
            asyncpg.InsufficientResourcesError,
            asyncpg.OperatorInterventionError,
            asyncpg.IdleInTransactionSessionTimeoutError,
            asyncpg.PostgresSystemError,
            OSError,
        ),
        StoreUnavailable,
        "the database is away",
    ),
)
"""What the driver raises, what that is here, and how the sentence about it begins. The first row that fits counts."""

_GONE = re.compile(r"\b(?:connection|pool) (?:is|was) (?:closed|closing)")


@contextmanager
def translated() -> Iterator[None]:
    """Turn what the driver raises for a database that is away, busy or unwilling into this room's exceptions."""
    try:
        yield
    except TimeoutError as fault:
        raise StoreUnavailable("the database did not answer in time") from fault
    except Exception as fault:
        known = _known(fault)
        if known is None:
            raise
        raise known from fault


def _known(fault: Exception) -> Exception | None:
    if isinstance(fault, asyncpg.CheckViolationError) and "partition constraint" in str(fault):
        # the row's day got its own partition while it waited to be written to the default one
        return StoreBusy(f"the database is busy: {_words(fault)}")
    if isinstance(fault, asyncpg.ProtocolViolationError) and "startup parameter" in str(fault):
        return PoolerInBetween(f"a pooler stands before the database: {_words(fault)}")
    for classes, meaning, sentence in _KNOWN:
        if isinstance(fault, classes):
            return meaning(f"{sentence}: {_words(fault)}")
    if isinstance(fault, asyncpg.InterfaceError) and _GONE.search(str(fault)):
        # the driver's one class for a connection or pool that is gone and for calling it wrongly
        return StoreUnavailable(f"the database is away: {_words(fault)}")
    return None


def _words(fault: Exception) -> str:
    """What it says in one line, without its details: those quote the row, and payloads have no place in a log."""
    if isinstance(fault, asyncpg.TargetServerAttributeNotMatched):
        return "what answers is a standby, and none that takes writes does"
    if isinstance(fault, asyncpg.InternalClientError):
        return "the connection was cut"  # the driver tells of its own states there
    said = fault.args[0] if isinstance(fault, asyncpg.PostgresError) and fault.args else str(fault)
    return " ".join(_NUMBER.sub("", str(said)).split()) or "the connection was cut"
