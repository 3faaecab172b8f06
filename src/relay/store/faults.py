"""The troubles of this room, translated once from the driver's.

Owns the exceptions that rooms above may meet. Invariant: a driver's exception leaves this room only if it is a bug.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.InternalClientError,
    asyncpg.ClientConfigurationError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.PostgresSystemError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    OSError,
    TimeoutError,
)

_GONE = re.compile(r"\b(?:connection|pool) (?:is|was) (?:closed|closing)")

_UNFIT = (asyncpg.DataError, asyncpg.ProgramLimitExceededError)

_LOST_RACE = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.LockNotAvailableError)


class StoreUnavailable(Exception):
    """The database did not answer. What was asked for may or may not have happened."""


class StoreFull(StoreUnavailable):
    """The server has no connection left for us; nothing was changed."""


class StoreBusy(StoreUnavailable):
    """The database refused because of others' locks; nothing was changed."""


class StoreRefused(Exception):
    """The database refused what it was given; nothing was changed. Of itself: a constraint, which a bug would break."""


class DataRefused(StoreRefused):
    """A value itself is what no column takes (out of range, no character, too long): it will be refused each time."""


class NotMigrated(Exception):
    """The database lacks migrations of this version of Relay; the text names the command to run."""


class NameTaken(Exception):
    """Another endpoint of the tenant has that name."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn what the driver raises for a database that is away, busy or unwilling into this room's exceptions."""
    try:
        yield
    except _LOST_RACE as fault:
        raise StoreBusy(f"the database is busy: {fault}") from fault
    except _UNFIT as fault:
        raise DataRefused(_refusal(fault)) from fault
    except asyncpg.IntegrityConstraintViolationError as fault:
        if isinstance(fault, asyncpg.CheckViolationError) and "partition constraint" in str(fault):
            # the row's day got its own partition while it waited to be written to the default one
            raise StoreBusy(f"the database is busy: {fault}") from fault
        raise StoreRefused(_refusal(fault)) from fault
    except asyncpg.TooManyConnectionsError as fault:
        raise StoreFull(f"the database has no connection left: {fault}") from fault
    except _AWAY as fault:
        raise StoreUnavailable(f"the database did not answer: {type(fault).__name__}: {fault}") from fault
    except asyncpg.InterfaceError as fault:
        # the driver's one class for a connection or pool that is gone and for calling it wrongly
        if not _GONE.search(str(fault)):
            raise
        raise StoreUnavailable(f"the database did not answer: {fault}") from fault


def _refusal(fault: asyncpg.PostgresError) -> str:
    # without its details, which quote the row: payloads have no place in a log
    return f"the database refused a write: {type(fault).__name__}: {fault.args[0] if fault.args else ''}"
