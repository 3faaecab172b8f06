"""What the housekeeping tells: how the queue stands, what went because it is no longer kept, and what was
announced and was never kept here.

Owns these happenings, which are part of the union in `telemetry`, the tables that have days, and how long a loop rests.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class DayTable(StrEnum):
    """The tables that are partitioned by the UTC day."""

    JOURNAL = "journal"
    ATTEMPTS = "delivery_attempts"


# What is measured by whoever holds the reporting lock.


REST_FOR_EACH = 19.0
"""What looks for something every few seconds steps over what an old snapshot keeps from being cleaned away, and gets a
twentieth of the time at the most."""


def rest_seconds(took: float, *, every: float, longest: float) -> float:
    """How long a loop rests after a look that `took` so many seconds: `every` as long as looks are cheap, never more
    than `longest`."""
    return min(max(every, REST_FOR_EACH * took), longest)


@dataclass(frozen=True, slots=True)
class QueueMeasured:
    """The queue at one moment.

    `oldest_pending_age` and `oldest_open_receipt_age` are seconds; the former is NaN where nothing is pending.
    `leases_expired` counts what is in flight with a lease that has run out, which a reaper is to take back.
    `dead_by_consumer` and `open_breakers` name every consumer that has any. `unaccounted` is the last verification's
    finding, None if there was none yet. `days_ahead` are the days to come that have a partition, by table.
    """

    pending: int
    in_flight: int
    dead: int
    oldest_pending_age: float
    oldest_open_receipt_age: float
    dead_by_consumer: tuple[tuple[str, int], ...]
    open_breakers: tuple[str, ...]
    default_partition_rows: int
    journal_default_partition_rows: int
    leases_expired: int = 0
    unaccounted: int | None = None
    days_ahead: tuple[tuple[DayTable, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ReportingEnded:
    """Another process measures the queue from now on; what this one last measured no longer counts."""


# What is no longer kept.


@dataclass(frozen=True, slots=True)
class DaysDropped:
    """So many days of a table went as a whole, for their age."""

    table: DayTable
    count: int


@dataclass(frozen=True, slots=True)
class EventsPruned:
    """So many events of an old day went, with what belongs to them; `kept` stay, as they are owed, dead or young."""

    day: str
    count: int
    kept: int


# What was never kept here.


@dataclass(frozen=True, slots=True)
class BrokerStrangersFound:
    """The broker named so many deliveries that this database does not have: another installation uses the same stream,
    or did. Each then takes words that are for the other, which is late."""

    count: int
