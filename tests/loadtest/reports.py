"""A report of `make bench` that reaches all that is wanted, and others that differ in one thing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relay.loadtest.accounting import Cost
from relay.loadtest.backlog import Shape
from relay.loadtest.bench import Drain, Floor, Plan, Report, Sustained
from relay.loadtest.observing import Queue
from relay.loadtest.steady import Load, Steady

LOAD = Load(4_000, 15, endpoints=1, payload_bytes=500, gateways=1, dispatchers=2, in_turn=True)
TIMES = {"p50": 5.0, "p95": 9.0, "p99": 40.0, "max": 80.0}
COST = Cost({"gateway": 70, "dispatcher": 90, "postgres": 80, "sink": 10, "load": 40, "machine": 300}, 3_000.0, 0.2)
STEADY = Steady(LOAD, {"202": 60_000}, TIMES, TIMES, 0, 0, 70, 90, 80, queue=Queue((90, 80, 70, 100), 1_000))
DRAIN = Drain(9_000, 100, 60, 10, 180, 1_800, 0.01, 60_000, 0, 0)
REPORT = Report(
    Plan(Shape(60_000, 1, 500), 2, LOAD),
    busy=0.1,
    cores=2,
    client_floor=Floor(20_000, 30, 0, 8, 40, 0, 0),
    queue_floor=Floor(15_000, 20, 40, 0, 65, 1_700, 0.008),
    drain=DRAIN,
    sustained=Sustained(STEADY, COST),
    ratio=0.6,
)


def with_load(**others: Any) -> Report:  # whatever a load may be
    """The report with a load of which something else came."""
    return replace(REPORT, sustained=Sustained(replace(STEADY, **others), COST))


def with_drain(**others: Any) -> Report:  # as above
    """The report with a drain of which something else came."""
    return replace(REPORT, drain=replace(DRAIN, **others))


def with_cost(wal_bytes: float = COST.wal_bytes, commits: float = COST.commits, **us: float) -> Report:
    """The report with a load that cost something else."""
    return replace(REPORT, sustained=Sustained(STEADY, Cost({**COST.us, **us}, wal_bytes, commits)))
