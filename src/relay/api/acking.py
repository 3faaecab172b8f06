"""Taking acks: many calls, one transaction.

Owns the group: acks that come while others are being written share the next transaction, so that a thousand endpoints
which ack one event at once do not line up behind its receipt one by one. Invariant: one transaction is under way at
most, each call gets its own answer, and what was done is told once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from relay.domain import ids
from relay.domain.ambient import Ambient
from relay.domain.attempt import AckFact
from relay.domain.telemetry import DeliveriesAcked, Listener, ReceiptsClosed
from relay.store.acks import Ack, Acks, AckWanted
from relay.store.faults import StoreBusy, StoreUnavailable

MOST = 500
"""Acks per transaction at the most."""

_TRIES = 4
_PAUSE_SECONDS = 0.02
"""How often a transaction is tried that others' locks kept from happening, and how long they are given to pass."""

_Call = tuple[AckWanted, "asyncio.Future[Ack | None]"]


class Acking:
    """The acks of one process."""

    def __init__(self, *, acks: Acks, ambient: Ambient, emit: Listener) -> None:
        self._acks = acks
        self._ambient = ambient
        self._emit = emit
        self._calls: list[_Call] = []
        self._writing: asyncio.Task[None] | None = None

    async def take(self, wanted: AckWanted) -> Ack | None:
        """Take an ack; None if there is no such delivery. Raises `StoreUnavailable`: it may have been taken then."""
        answer: asyncio.Future[Ack | None] = asyncio.get_running_loop().create_future()
        self._calls.append((wanted, answer))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="taking acks")
        return await answer

    async def _write(self) -> None:
        """Write until nothing is left; what goes wrong is told to those whom it struck."""
        try:
            while self._calls:
                group = self._calls[:MOST]
                del self._calls[:MOST]
                try:
                    taken = await self._taken([wanted for wanted, _ in group])
                except Exception as fault:  # noqa: BLE001 - it is raised again in each call
                    if isinstance(fault, StoreUnavailable) and not isinstance(fault, StoreBusy):
                        # whoever waits behind them would wait as long for the same, one transaction after the other
                        group += self._calls
                        self._calls = []
                    _fail(group, fault)
                    continue
                for (_, answer), ack in zip(group, taken, strict=True):
                    if not answer.done():
                        answer.set_result(ack)
                self._tell([ack for ack in taken if ack is not None])
        finally:
            self._writing = None

    async def _taken(self, wanted: Sequence[AckWanted]) -> list[Ack | None]:
        tries = _TRIES
        while True:
            try:
                return await self._acks.acknowledge(wanted)
            except StoreBusy:
                tries -= 1
                if not tries:
                    raise
            await self._ambient.sleep(_PAUSE_SECONDS * (1 + self._ambient.draw()))

    def _tell(self, acks: Sequence[Ack]) -> None:
        if new := tuple([_fact(each) for each in acks if each.is_new]):
            self._emit(DeliveriesAcked(new))
        for outcome, count in Counter(each.outcome for each in acks if each.closed).items():
            assert outcome is not None, "what is closed has an outcome"
            self._emit(ReceiptsClosed(outcome, count))


def _fact(ack: Ack) -> AckFact:
    seconds = ack.acked_at.timestamp() - ids.unix_ms(ack.receipt_id) / 1000
    return AckFact(ack.delivery_id, ack.receipt_id, ack.consumer, seconds)


def _fail(group: Sequence[_Call], fault: Exception) -> None:
    for _, answer in group:
        if not answer.done():
            answer.set_exception(fault)
