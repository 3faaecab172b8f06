"""From what happens to numbers: what each kind of `Happening` adds, and to what.

Owns that table. It runs on the hot path, so a batch is counted in one pass, straight into the cells.
Invariant: every kind of happening is either counted here or listed as not counted; nothing here waits or
raises. What feeds only metrics of the other process is left alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from relay.domain import housekeeping as h
from relay.domain import telemetry as t
from relay.domain.delivery import DeadReason
from relay.domain.outcome import OutcomeClass
from relay.metrics import names
from relay.metrics.layout import Labels, Layout
from relay.metrics.names import Kind, Merge, Metric
from relay.metrics.roster import Roster

NOT_COUNTED: frozenset[type[t.Happening]] = frozenset(
    {
        t.EventsAccepted,  # counted where the batch is committed; what matched no rule, as a dead letter
        t.QuorumLost,  # what it kept out is counted event by event
        t.QuorumRegained,
        t.DeliveriesClaimed,
        t.SendsFailedHere,  # counted as deliveries handed back
        t.BreakerMoved,  # counted in the report: a breaker is the lane's, not the process's
        t.LaneHeld,
        t.EndpointDisabled,
        t.LoopCrashed,
        t.DeliveryMetBug,
        t.LoopStopped,
        t.ProcessStarted,
        t.ProcessDraining,
        t.ProcessStopped,
    }
)
"""Kinds that move no number; they are for lines and tests."""

_Handler = Callable[[Any], None]


class Counting:
    """The listener that counts into a worker's cells. Not for several threads at once."""

    def __init__(self, layout: Layout, values: memoryview[float], roster: Roster, clock: Callable[[], float]) -> None:
        self._layout = layout
        self._values = values
        self._roster = roster
        self._clock = clock
        self._metrics = names.exported_by(layout.process)
        self._handlers = {
            kind: handler for kind, (handler, fed) in self.table().items() if not fed.isdisjoint(self._metrics)
        }
        put_out(layout, values)

    def __call__(self, happening: t.Happening) -> None:
        """Count what happened."""
        handler = self._handlers.get(type(happening))
        if handler is not None:
            handler(happening)

    def stop(self) -> None:
        """Count nothing any more; whoever still emits while the process ends is not disturbed."""
        self._handlers = {}

    def introduce(self, consumers: Iterable[str]) -> None:
        """Give consumers their series, at zero, before anything happens to them."""
        for consumer in consumers:
            if self._roster.is_full:
                break
            self._roster.number(consumer)

    def table(self) -> dict[type[t.Happening], tuple[_Handler, frozenset[Metric]]]:
        """What counts each kind, and the metrics that it feeds."""
        return {
            t.RequestRefused: (self._refused, frozenset({names.GATEWAY_REJECTS})),
            t.RequestFailed: (self._failed, frozenset({names.GATEWAY_FAILURES})),
            t.RequestServed: (self._served, frozenset({names.GATEWAY_REQUEST})),
            t.IdempotentReplay: (self._replayed, frozenset({names.IDEMPOTENT_REPLAYS})),
            t.AppendCommitted: (self._committed, frozenset({names.JOURNAL_COMMIT, names.JOURNAL_BATCH})),
            t.QuorumFailed: (self._unproved, frozenset({names.JOURNAL_QUORUM_FAILURES})),
            t.JournalCouldNotWrite: (self._unwritable, frozenset({names.JOURNAL_CANNOT_WRITE})),
            t.DurabilityKnown: (self._durable, frozenset({names.JOURNAL_DURABILITY})),
            t.AttemptsRecorded: (self._recorded, frozenset({names.ATTEMPTS, names.SEND, names.DELIVERY})),
            t.RetriesScheduled: (self._retried, frozenset({names.RETRIES})),
            t.DeferralsRecorded: (self._waited, frozenset({names.ATTEMPTS})),
            t.LaneFoundClosed: (self._deferred, frozenset({names.DEFERRED})),
            t.DeliveriesHandedBack: (self._handed_back, frozenset({names.HANDED_BACK})),
            t.PermitsAwaited: (self._awaited, frozenset({names.GLOBAL_WAIT})),
            t.InFlightChanged: (self._flying, frozenset({names.IN_FLIGHT})),
            t.ClockCompared: (self._compared, frozenset({names.CLOCK_SKEW})),
            t.LeasesLost: (self._lost, frozenset({names.LEASES_LOST})),
            t.LeasesReaped: (self._reaped, frozenset({names.LEASES_REAPED})),
            t.DeadLettered: (self._buried, frozenset({names.DLQ_INFLOW})),
            t.DeliveriesAcked: (self._acked, frozenset({names.DELIVERY})),
            t.ReceiptsClosed: (self._closed, frozenset({names.RECEIPTS_CLOSED})),
            t.ReceiptsRedriven: (self._redriven, frozenset({names.RECEIPTS_REDRIVEN})),
            h.QueueMeasured: (self._measured, _REPORTED),
            h.ReportingEnded: (self._silenced, _REPORTED),
            t.SpansDropped: (self._unsent, frozenset({names.SPANS_DROPPED})),
            t.LogLinesDropped: (self._unwritten, frozenset({names.LOG_LINES_DROPPED})),
            t.BrokerModeChanged: (self._switched, frozenset({names.BROKER_MODE})),
            t.BrokerEmptied: (self._emptied, frozenset({names.BROKER_EMPTIED})),
            t.BrokerEntriesDropped: (self._alien, frozenset({names.BROKER_ENTRIES_DROPPED})),
            h.BrokerStrangersFound: (self._strangers, frozenset({names.BROKER_STRANGERS})),
            h.DaysDropped: (self._dropped, frozenset({names.DAYS_DROPPED})),
            h.EventsPruned: (self._pruned, frozenset({names.EVENTS_PRUNED})),
            t.LoopHeldUp: (self._held_up, frozenset({names.LOOP_HELD_UP})),
            t.LoopStarted: (self._started, frozenset({names.LOOP_SUCCESS})),
            t.LoopSucceeded: (self._succeeded, frozenset({names.LOOP_SUCCESS})),
        }

    def _add(self, metric: Metric, count: float, labels: Labels = ()) -> None:
        self._values[self._layout.cell(metric, labels)] += count

    def _put(self, metric: Metric, value: float, labels: Labels = ()) -> None:
        cell = self._layout.cell(metric, labels)
        self._values[cell] = value
        if metric.merge is Merge.LATEST:
            self._values[cell + 1] = self._clock()

    def _observe(self, metric: Metric, times: Sequence[float]) -> None:
        """Count times into a histogram. Two machines' clocks may make one negative; it counts as none at all,
        since a sum that falls would look like a restart."""
        values, bounds, first = self._values, metric.bounds, self._layout.cell(metric)
        total = 0.0
        for seconds in times:
            if seconds > 0.0:
                values[first + bisect_left(bounds, seconds)] += 1
                total += seconds
            else:
                values[first] += 1
        values[first + len(bounds) + 1] += total

    def _refused(self, happening: t.RequestRefused) -> None:
        self._add(names.GATEWAY_REJECTS, 1, (happening.reason,))

    def _failed(self, happening: t.RequestFailed) -> None:
        self._add(names.GATEWAY_FAILURES, 1, (happening.reason,))

    def _served(self, happening: t.RequestServed) -> None:
        self._observe(names.GATEWAY_REQUEST, (happening.seconds,))

    def _replayed(self, _: t.IdempotentReplay) -> None:
        self._add(names.IDEMPOTENT_REPLAYS, 1)

    def _committed(self, happening: t.AppendCommitted) -> None:
        self._observe(names.JOURNAL_COMMIT, happening.seconds)
        self._put(names.JOURNAL_BATCH, happening.events)

    def _unproved(self, _: t.QuorumFailed) -> None:
        self._add(names.JOURNAL_QUORUM_FAILURES, 1)

    def _unwritable(self, _: t.JournalCouldNotWrite) -> None:
        self._add(names.JOURNAL_CANNOT_WRITE, 1)

    def _durable(self, happening: t.DurabilityKnown) -> None:
        self._put(names.JOURNAL_DURABILITY, happening.confirmed, ("confirmed",))
        self._put(names.JOURNAL_DURABILITY, happening.of, ("of",))

    def _recorded(self, happening: t.AttemptsRecorded) -> None:
        attempts = happening.attempts
        for outcome, count in happening.counts.items():
            if count:
                self._add(names.ATTEMPTS, count, (outcome,))
        self._observe(names.SEND, [attempt.send_seconds for attempt in attempts])
        acked = [attempt.delivery_seconds for attempt in attempts if attempt.delivery_seconds is not None]
        self._observe(names.DELIVERY, acked)
        if not self._roster.is_full:
            self.introduce({attempt.consumer for attempt in attempts}.difference(self._roster.numbers))

    def _retried(self, happening: t.RetriesScheduled) -> None:
        self._add(names.RETRIES, happening.count)

    def _deferred(self, happening: t.LaneFoundClosed) -> None:
        self._add(names.DEFERRED, 1, (happening.reason,))

    def _waited(self, happening: t.DeferralsRecorded) -> None:
        self._add(names.ATTEMPTS, happening.count, (OutcomeClass.DEFERRED,))

    def _handed_back(self, happening: t.DeliveriesHandedBack) -> None:
        self._add(names.HANDED_BACK, happening.count, (happening.reason,))

    def _awaited(self, happening: t.PermitsAwaited) -> None:
        self._observe(names.GLOBAL_WAIT, (happening.seconds,))

    def _flying(self, happening: t.InFlightChanged) -> None:
        self._put(names.IN_FLIGHT, happening.count)

    def _compared(self, happening: t.ClockCompared) -> None:
        self._put(names.CLOCK_SKEW, happening.ahead_seconds)

    def _lost(self, happening: t.LeasesLost) -> None:
        self._add(names.LEASES_LOST, happening.count)

    def _reaped(self, happening: t.LeasesReaped) -> None:
        self._add(names.LEASES_REAPED, happening.count)

    def _buried(self, happening: t.DeadLettered) -> None:
        if happening.reason is DeadReason.NO_ROUTE:
            self._add(names.DLQ_INFLOW, happening.count, ("", happening.reason))
            return
        row = self._layout.row(self._roster.number(happening.consumer))
        self._values[row + self._layout.in_row(names.DLQ_INFLOW, (happening.reason,))] += happening.count

    def _acked(self, happening: t.DeliveriesAcked) -> None:
        self._observe(names.DELIVERY, [ack.seconds for ack in happening.acks])

    def _closed(self, happening: t.ReceiptsClosed) -> None:
        self._add(names.RECEIPTS_CLOSED, happening.count, (happening.outcome,))

    def _redriven(self, happening: t.ReceiptsRedriven) -> None:
        self._add(names.RECEIPTS_REDRIVEN, happening.count)

    def _measured(self, happening: h.QueueMeasured) -> None:
        self._put(names.QUEUE_DEPTH, happening.pending, ("pending",))
        self._put(names.QUEUE_DEPTH, happening.in_flight, ("in_flight",))
        self._put(names.QUEUE_DEPTH, happening.dead, ("dead",))
        self._put(names.QUEUE_AGE, happening.oldest_pending_age)
        self._put(names.RECEIPTS_OPEN_AGE, happening.oldest_open_receipt_age, ("max",))
        self._put(names.LEASES_EXPIRED, happening.leases_expired)
        self._put(names.DEFAULT_PARTITION, happening.default_partition_rows)
        self._put(names.JOURNAL_DEFAULT_PARTITION, happening.journal_default_partition_rows)
        self._put(names.UNACCOUNTED, happening.unaccounted or 0)
        for table, days in happening.days_ahead:
            self._put(names.PARTITIONS_AHEAD, days, (table,))
        self._put_per_consumer(names.DLQ_DEPTH, happening.dead_by_consumer)
        self._put_per_consumer(names.BREAKER_OPEN, [(consumer, 1) for consumer in happening.open_breakers])
        self._values[self._layout.reported_at] = self._clock()

    def _put_per_consumer(self, metric: Metric, counts: Iterable[tuple[str, int]]) -> None:
        """Set the gauge of every consumer, 0 where `counts` has none; each is written once, so that a reader
        in between sees the old number or the new one."""
        totals: dict[int, int] = {}
        for consumer, count in counts:
            number = self._roster.number(consumer)
            totals[number] = totals.get(number, 0) + count
        place = self._layout.in_row(metric)
        for number in (*self._roster.numbers.values(), self._layout.other):
            self._values[self._layout.row(number) + place] = totals.get(number, 0)

    def _silenced(self, _: h.ReportingEnded) -> None:
        self._values[self._layout.reported_at] = 0.0

    def _unsent(self, happening: t.SpansDropped) -> None:
        self._add(names.SPANS_DROPPED, happening.count)

    def _unwritten(self, happening: t.LogLinesDropped) -> None:
        self._add(names.LOG_LINES_DROPPED, happening.count)

    def _switched(self, happening: t.BrokerModeChanged) -> None:
        self._put(names.BROKER_MODE, happening.active)

    def _emptied(self, _happening: t.BrokerEmptied) -> None:
        self._add(names.BROKER_EMPTIED, 1)

    def _alien(self, happening: t.BrokerEntriesDropped) -> None:
        self._add(names.BROKER_ENTRIES_DROPPED, happening.count)

    def _strangers(self, happening: h.BrokerStrangersFound) -> None:
        self._add(names.BROKER_STRANGERS, happening.count)

    def _dropped(self, happening: h.DaysDropped) -> None:
        self._add(names.DAYS_DROPPED, happening.count, (happening.table,))

    def _pruned(self, happening: h.EventsPruned) -> None:
        self._add(names.EVENTS_PRUNED, happening.count)

    def _held_up(self, happening: t.LoopHeldUp) -> None:
        self._add(names.LOOP_HELD_UP, 1, (happening.loop,))

    def _started(self, happening: t.LoopStarted) -> None:
        """A loop that has not succeeded yet is silent since its start, not since 1970."""
        if not self._values[self._layout.cell(names.LOOP_SUCCESS, (happening.loop,))]:
            self._put(names.LOOP_SUCCESS, self._clock(), (happening.loop,))

    def _succeeded(self, happening: t.LoopSucceeded) -> None:
        self._put(names.LOOP_SUCCESS, self._clock(), (happening.loop,))


def put_out(layout: Layout, values: memoryview[float]) -> None:
    """Put out what a worker that held this slot would still seem to have in hand or to report. Its counters
    stay, and so do times of success: they are true whoever was there."""
    for metric in names.exported_by(layout.process):
        if metric.kind is Kind.GAUGE and metric.merge is Merge.SUM:
            values[layout.cell(metric)] = 0.0
    values[layout.reported_at] = 0.0


_REPORTED = frozenset(metric for metric in names.TABLE if metric.merge is Merge.REPORT)
