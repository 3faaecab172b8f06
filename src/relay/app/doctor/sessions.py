"""The examination of who is connected to the database: whether all may open what they may, and who holds up whom.

Owns these checks. Invariant: a process is counted by connections of which each has one, so none is counted twice.
"""

from __future__ import annotations

from relay.app.connections import check_connections, of_dispatchers, of_everything, of_gateways
from relay.app.doctor.findings import Finding, Findings, fault, ok, warning
from relay.app.faults import CannotRun
from relay.settings import Settings
from relay.store.barrier import NAME as BARRIER
from relay.store.database import Database
from relay.store.examination import Examination, Holder
from relay.store.health import Health

HELD_SECONDS = 1.0
"""How long a statement waits for a lock until that is worth a word: Relay's own keep each other for far less."""

_ONE_OF_EACH_GATEWAY = ("relay gateway wake-ups", "relay gateway checks", BARRIER)
_ONE_OF_EACH_DISPATCHER = ("relay dispatcher wake-ups", "relay dispatcher claims")


async def examine_connections(database: Database, settings: Settings) -> Findings:
    """Whether the server lets all be connected: those that this machine would start, and those that are there."""
    here = of_everything(settings)
    try:
        await check_connections(database, here, settings)
    except CannotRun as few:
        return (fault("connections", str(few)),)
    names = await Examination(database).sessions()
    gateways, dispatchers = (
        max(names.get(name, 0) for name in kind) for kind in (_ONE_OF_EACH_GATEWAY, _ONE_OF_EACH_DISPATCHER)
    )
    allowed = await Health(database).connections_allowed()
    may = (gateways * of_gateways(settings) + dispatchers * of_dispatchers(settings)) // settings.workers
    there = (
        f"{gateways} gateway and {dispatchers} dispatcher workers are connected now, and may open {may} by this"
        " shell's RELAY_DATABASE_POOL"
    )
    if may > allowed.connections:
        bound = f"the database allows {allowed.connections} by its {allowed.limit}: raise that"
        return (warning("connections", f"{there}; {bound}"),)
    ours = f"enough for the {here} of a gateway and a dispatcher with this shell's RELAY_WORKERS"
    return (ok("connections", f"{ours}; {there}" if may else f"{ours}; none is connected now"),)


async def examine_locks(database: Database) -> Findings:
    """Who holds what statements of Relay wait for; nothing where none waits."""
    holders = await Examination(database).holders(HELD_SECONDS)
    return tuple(_held(holder) for holder in holders)


def _held(holder: Holder) -> Finding:
    who = f"pid {holder.pid}, user {holder.role or 'unknown'}" if holder.pid else "a prepared transaction"
    name = f" ({holder.name})" if holder.name else ""
    began = "" if holder.began_ago is None else f", in a transaction that began {holder.began_ago:.0f} s ago"
    waiting = f"{holder.waiters} of Relay's statements wait for it, since {holder.waiting_for:.0f} s"
    end = f"let it end, or `select pg_terminate_backend({holder.pid})`" if holder.pid else "see pg_prepared_xacts"
    return warning("locks", f"{who}{name} holds {holder.table or 'a row'}{began}; {waiting}: {end}")
