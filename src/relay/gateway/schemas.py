"""Whether a payload fits its type's schema: which one counts, and who looks.

Owns the choice of the version, the schemas that this process has read, and the refusals. What a look costs is bounded:
where a schema's weight and the payload's size promise little work it is done here, at once, else by the judge, beside
the event loop and with an end. Invariant: nobody is refused by a catalogue that is not the newest, nor a request that
was taken before and is only repeated; and a payload is looked at, never changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from relay.domain.ambient import Ambient
from relay.domain.schema import SchemaName, write_number
from relay.gateway.routes import Snapshots
from relay.gateway.submission import Checked
from relay.store.faults import StoreUnavailable
from relay.store.schemas import Catalogue, Schemas
from relay.web.json_schema import Compiled, compile_schema, read_json
from relay.web.judging import BeyondBounds, Judge, Weighed
from relay.web.problems import MOST_FAULTS, ErrorCode, FieldFault, Problem, Refused

MOST_WORK = 1_000_000
"""Weight times bytes of what is looked at on the event loop: some milliseconds at the very worst."""

MOST_OWN_WEIGHT = 2_000
"""The weight of schemas that are compiled on the event loop, once each: a few milliseconds at the very worst."""

MOST_NESTED = 1_000
"""How many objects and arrays a payload may have that is read on the event loop, since so deep it may be."""

MOST_KEPT_BYTES = 32 * 1024 * 1024
"""Of the texts of schemas that were read; past it all are forgotten and read anew when they are asked for."""

MOST_CHANGES = 10
"""How often the catalogue may change while one event is checked, before the last verdict counts."""

UNAVAILABLE = Problem(
    ErrorCode.DATABASE_UNAVAILABLE, "the database did not answer, so the event's schema is not known; send it again"
)


class Asked(NamedTuple):
    """What is to be checked, and for whom: a request of that `key` that was taken before is let through."""

    tenant: str
    source: str
    key: str | None
    type: str
    wanted: SchemaName | None
    payload: bytes


@dataclass(frozen=True, slots=True)
class _Ready:
    """A schema that was read. `compiled` where it is light enough for this process, then `weight` says how light."""

    text: bytes
    weight: int
    compiled: Compiled | None
    faults: Sequence[FieldFault] = ()


class Checks:
    """The checks of one process. `schemas` should not share the append's connections."""

    def __init__(self, *, snapshots: Snapshots, schemas: Schemas, judge: Judge, ambient: Ambient) -> None:
        self.snapshots = snapshots
        self._schemas = schemas
        self._judge = judge
        self._ambient = ambient
        self._ready: dict[tuple[str, SchemaName], _Ready] = {}
        self._kept_bytes = 0
        self._reading: dict[tuple[str, SchemaName], asyncio.Task[_Ready]] = {}
        self._worked = 0

    async def check(self, asked: Asked) -> Checked | Problem:
        """Whether the payload may be taken, and by which schema; else what is wrong with it."""
        try:
            return await self._check(asked)
        except StoreUnavailable:
            return UNAVAILABLE
        except Refused as refused:
            return refused.problem

    async def _check(self, asked: Asked) -> Checked | Problem:
        changes = 0
        while True:
            routes = await self.snapshots.current()
            catalogue = routes.catalogue
            found = await self._by(catalogue, asked)
            if not isinstance(found, Problem):
                return Checked(found, catalogue.version)
            newest, taken = await self._schemas.look_before_refusing(asked.tenant, asked.source, asked.key)
            if taken:
                # the append answers it again, or refuses it for being another one
                return Checked(None, catalogue.version)
            changes += 1
            if newest == catalogue.version or changes > MOST_CHANGES:
                return found
            self.snapshots.forget(routes)

    async def _by(self, catalogue: Catalogue, asked: Asked) -> str | Problem | None:
        """The name of the schema that the payload fits, None if there is none, or the refusal."""
        numbers = catalogue.numbers.get((asked.tenant, asked.type), ())
        wanted = asked.wanted
        if wanted is None:
            if not numbers:
                return _no_schema(asked) if asked.tenant in catalogue.strict else None
            wanted = SchemaName(asked.type, numbers[-1])
        elif wanted.type != asked.type:
            return violation(f"Relay-Schema names {wanted}, but the event is of type {asked.type}")
        elif wanted.number not in numbers:
            known = ", ".join(map(write_number, numbers[-MOST_FAULTS:])) or "none"
            return violation(f"there is no schema {wanted}; of this type there are: {known}")
        faults = await self._look(asked.tenant, wanted, asked.payload)
        return violation(_summary(wanted, faults), faults) if faults else str(wanted)

    async def _look(self, tenant: str, name: SchemaName, payload: bytes) -> Sequence[FieldFault]:
        ready = self._ready.get((tenant, name)) or await self._read_once(tenant, name)
        if ready.faults:
            return ready.faults
        work = ready.weight * len(payload)
        if (
            ready.compiled is not None
            and work <= MOST_WORK
            and payload.count(b"{") + payload.count(b"[") <= MOST_NESTED
        ):
            await self._pause(work)
            try:
                if ready.compiled.is_valid(read_json(payload)):
                    return ()
            except ValueError:
                # no JSON, or a number that this process had better not write out
                pass
        try:
            return await self._judge.look(tenant, ready.text, payload)
        except BeyondBounds:
            return (FieldFault("", "checking the payload takes longer, or more memory, than there is for it"),)

    async def _pause(self, work: int) -> None:
        """Let others have their turn after so much work, whoever it was for: a batch is many looks."""
        self._worked += work
        if self._worked > MOST_WORK:
            self._worked = 0
            await self._ambient.sleep(0)

    async def _read_once(self, tenant: str, name: SchemaName) -> _Ready:
        """Read a schema; whoever wants the same one meanwhile shares that, and nobody waits for another one."""
        reading = self._reading.get((tenant, name))
        if reading is None:
            reading = asyncio.create_task(self._read(tenant, name), name="reading a schema")
            self._reading[tenant, name] = reading
            reading.add_done_callback(lambda _: self._reading.pop((tenant, name)))
        return await asyncio.shield(reading)

    async def _read(self, tenant: str, name: SchemaName) -> _Ready:
        stored = await self._schemas.read(tenant, name)
        if stored is None:
            raise StoreUnavailable(f"the catalogue has {name}, and the database has not")
        ready = await self._prepare(tenant, stored.text)
        if self._kept_bytes > MOST_KEPT_BYTES:
            self._ready.clear()
            self._kept_bytes = 0
        self._ready[tenant, name] = ready
        self._kept_bytes += len(stored.text)
        return ready

    async def _prepare(self, tenant: str, text: bytes) -> _Ready:
        try:
            weighed = await self._judge.weigh(tenant, text)
        except BeyondBounds:
            weighed = [FieldFault("", "it takes too long to compile")]
        if not isinstance(weighed, Weighed):
            # it was taken by another version of Relay, or not by Relay
            return _Ready(text, 0, None, [FieldFault("", f"the schema is unusable: {weighed[0].detail}")])
        if weighed.weight is None or weighed.weight > MOST_OWN_WEIGHT:
            return _Ready(text, 0, None)
        return _Ready(text, weighed.weight, compile_schema(read_json(text)))


def violation(detail: str, faults: Sequence[FieldFault] = ()) -> Problem:
    """The refusal of a payload; without faults of its own what is said is about the whole."""
    listed = faults or (FieldFault("", detail),)
    errors = [{"pointer": fault.pointer, "detail": fault.detail} for fault in listed]
    return Problem(ErrorCode.SCHEMA_VIOLATION, detail, {"errors": errors})


def _no_schema(asked: Asked) -> Problem:
    return violation(f"the type {asked.type} has no schema, and this tenant takes only types that have one")


def _summary(name: SchemaName, faults: Sequence[FieldFault]) -> str:
    first = faults[0]
    where = f" at {first.pointer}" if first.pointer else ""
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"the payload does not fit {name}{where}: {first.detail}{more}"
