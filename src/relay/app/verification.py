"""The verification: one walk over the whole journal, and over everything that is owed for it.

Owns the way and its pace: first the positions of each partition, up to where its head stood at the start; then
everything by id, day by day and in both directions at once (events without receipts, receipts without events,
deliveries without either); then the idempotency keys. Invariants: it is right while the system lives, since every
question is answered as of one moment and asks only for what had been settled; what looks wrong is asked for again, at
another moment, before it counts; no more than a window of rows is held at once; and what is interrupted leaves nothing
behind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from typing import TypeVar
from uuid import UUID

from relay.app.ambience import ambient
from relay.app.faults import CannotRun
from relay.app.installation import Installation, away, one_line
from relay.domain import ids
from relay.domain.verification import Account, FaultKind, PartitionAccount, Verification
from relay.store.faults import CannotWrite, NotMigrated, StoreUnavailable
from relay.store.migrate import check_migrated
from relay.store.verify import Extent, KeyPlace, Keys, Positions, Records, Strays, Verifying

STATEMENT_SECONDS = 60.0
"""How long one question may take. It takes a quarter of a second, unless the database is in trouble."""

POSITIONS_WINDOW = 20_000
KEYS_WINDOW = 5_000

Tell = Callable[[int, int], None]
"""Is told how many steps are done, and of how many."""


Answer = TypeVar("Answer", Strays, Positions, Records, Keys)


@dataclass(slots=True)
class Pace:
    """How many rows to ask for at once: so many that an answer takes a moment, however large they are."""

    window: int = 256
    least: int = 16
    most: int = 8_192
    short_seconds: float = 0.1
    long_seconds: float = 0.3

    def took(self, seconds: float) -> None:
        """Learn how long a window took."""
        if seconds < self.short_seconds:
            self.window = min(self.window * 2, self.most)
        elif seconds > self.long_seconds:
            self.window = max(self.window // 2, self.least)


@dataclass(slots=True)
class _Steps:
    """How far the walk has come: each event is met twice, by its position and by its id."""

    total: int
    tell: Tell
    done: int = 0

    def more(self, steps: int) -> None:
        self.done = min(self.done + steps, self.total)
        self.tell(self.done, self.total)


class Walk:
    """One walk. `clock` gives seconds, and only their differences matter."""

    def __init__(self, store: Verifying, *, clock: Callable[[], float], tell: Tell, pace: Pace | None = None) -> None:
        self._store = store
        self._clock = clock
        self._tell = tell
        self._pace = pace or Pace()
        self._account = Account()

    async def run(self) -> Verification:
        """Walk to the end; answers what was found. Raises `StoreUnavailable`."""
        extent = await self._store.extent()
        steps = _Steps(2 * extent.positions, self._tell)
        self._account.add((await _confirmed(self._store.strays)).faults)
        partitions = [
            await self._partition(partition, below, steps)
            for partition, below in sorted(extent.next_numbers.items())
            if below > 1
        ]
        await self._records(extent, steps)
        await self._keys()
        return self._account.closed(partitions)

    async def _partition(self, partition: int, below: int, steps: _Steps) -> PartitionAccount:
        account = PartitionAccount(partition)
        start = 1
        while start < below:
            seen = await _confirmed(partial(self._store.positions, partition, start, below, POSITIONS_WINDOW))
            self._account.add(seen.faults)
            missing = [fault.count for fault in seen.faults if fault.kind is FaultKind.MISSING_POSITION]
            account = replace(
                account,
                first=seen.first if account.first is None else account.first,
                last=account.last if seen.last is None else seen.last,
                gaps=account.gaps + len(missing),
                missing=account.missing + sum(missing),
                pruned=account.pruned + seen.pruned,
            )
            start = seen.below
            steps.more(seen.events)
        return account

    async def _records(self, extent: Extent, steps: _Steps) -> None:
        """Everything by id, as far as there was anything at the start; each day for itself, as the journal has them."""
        day: date | None = date.min
        while day is not None and (day := await self._store.next_day(day)) is not None:
            strays = await _confirmed(partial(self._store.events_of_other_days, day))
            self._account.add(strays.faults)
            await self._day(day, min(ids.last_of(day), extent.last_id or ids.last_of(day)), steps)
            day = day + timedelta(days=1) if day < date.max else None

    async def _day(self, day: date, last: UUID, steps: _Steps) -> None:
        first = ids.first_of(day)
        while first <= last:
            began = self._clock()
            end = await self._store.end_of_window(day, first, last, self._pace.window)
            seen = await _confirmed(partial(self._store.records, day, first, end))
            self._pace.took(self._clock() - began)
            self._account.add(seen.faults)
            self._account.tally += seen.tally
            steps.more(seen.tally.events + seen.tally.void)
            if end == last:
                return
            first = UUID(int=end.int + 1)

    async def _keys(self) -> None:
        after: KeyPlace | None = KeyPlace()
        while after is not None:
            seen = await _confirmed(partial(self._store.keys, after, KEYS_WINDOW))
            self._account.add(seen.faults)
            after = seen.after


async def _confirmed(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """An answer; if it tells of faults, another one of a later moment, with those that both tell of."""
    seen = await ask()
    if not seen.faults:
        return seen
    before = set(seen.faults)
    again = await ask()
    return replace(again, faults=tuple(fault for fault in again.faults if fault in before))


async def verify(installation: Installation, tell: Tell, note: Callable[[str], None]) -> Verification:
    """Verify an installation's database, and write down what was found. Raises `CannotRun`.

    It may be in use: one connection reads, a window at a time. On a standby nothing is written, and `note` is told.
    """
    async with installation.database("relay verify", 1, within=STATEMENT_SECONDS) as database:
        try:
            await check_migrated(database)
            store = Verifying(database)
            found = await Walk(store, clock=ambient().monotonic, tell=tell).run()
            await _keep(store, found, note)
        except NotMigrated as fault:
            raise CannotRun(str(fault)) from fault
        except StoreUnavailable as fault:
            raise away(fault) from fault
    return found


async def _keep(store: Verifying, found: Verification, note: Callable[[str], None]) -> None:
    try:
        await store.keep(found)
    except CannotWrite as fault:
        note(f"the gauge of unaccounted deliveries keeps its value: {one_line(fault)}")
