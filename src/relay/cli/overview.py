"""The overview: how much comes in and goes out, how late it is, and what stands still.

Owns which numbers are shown, how they are made of what the processes serve, and how they look. Pure. Invariant: a
number is shown only while whoever knows it answers; an absent one is a dash and never a zero.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from math import inf, isinf, isnan

from rich.console import RenderableType
from rich.text import Text

from relay.cli.rendering import facts, table, words
from relay.cli.spans import span
from relay.metrics import names
from relay.metrics.names import Metric
from relay.metrics.reading import Reading, Series, grown, quantile

WINDOW_SECONDS = 20.0
"""Rates and quantiles are those of so long, or of the two last looks if these are further apart."""

MOST_CONSUMERS = 10
"""Consumers that have a line; those with the most news come first."""


class Source:
    """One process that serves its numbers, and what it said lately. `fault` tells why it said nothing last time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.fault: str | None = "it was not asked yet"
        self.died: Counter[str] = Counter()
        self._looks: deque[tuple[float, Reading]] = deque()
        self._last: Reading | None = None

    @property
    def now(self) -> Reading | None:
        """What it says now; None while it does not answer."""
        return self._looks[-1][1] if self._looks else None

    def said(self, at: float, reading: Reading) -> None:
        """It answered at this moment (monotonic seconds)."""
        if self._last is not None:
            before = self._last.of(names.DLQ_INFLOW)
            for labels, count in grown(before, reading.of(names.DLQ_INFLOW)).items():
                self.died[labels[0]] += int(count)
        self.fault, self._last = None, reading
        self._looks.append((at, reading))
        while len(self._looks) > 2 and at - self._looks[0][0] > WINDOW_SECONDS:
            self._looks.popleft()

    def away(self, fault: str) -> None:
        """It did not answer. Its rates begin anew after that, but what died meanwhile is counted."""
        self.fault = fault
        self._looks.clear()

    def seconds(self) -> float:
        """How long the window is that the growth is of; 0 before the second answer."""
        return self._looks[-1][0] - self._looks[0][0] if self._looks else 0.0

    def growth(self, metric: Metric, *, buckets: bool = False) -> Counter[tuple[str, ...]]:
        """By how much each series of a metric grew in the window."""
        total: Counter[tuple[str, ...]] = Counter()
        readings = [reading for _, reading in self._looks]
        for before, after in pairwise(readings):
            total.update(grown(_series(before, metric, buckets), _series(after, metric, buckets)))
        return total


def _series(reading: Reading, metric: Metric, buckets: bool) -> Series:
    return reading.buckets(metric) if buckets else reading.of(metric)


@dataclass(frozen=True)
class Dead:
    """A consumer's dead letters: how many wait for a person, and how many came since the watching began."""

    consumer: str
    waiting: int
    came: int


@dataclass(frozen=True)
class Overview:
    """What is shown. None where nobody says; rates are per second, times in seconds."""

    accepted_per_second: float | None
    delivered_per_second: float | None
    ingest_p99_seconds: float | None
    delivery_p99_seconds: float | None
    late_seconds: float | None
    oldest_open_receipt_seconds: float | None
    depth: Mapping[str, int] | None
    deferred_per_second: Mapping[str, float] | None
    open_breakers: Sequence[str] | None
    dead_letters: Sequence[Dead] | None
    away: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """The same for a program; what is above every bound of its histogram is null."""
        return {name: _finite(value) for name, value in asdict(self).items()}


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not abs(value) < inf else value


def overview(sources: Sequence[Source]) -> Overview:
    """The numbers of all processes together."""
    return Overview(
        accepted_per_second=_total_rate(sources, names.JOURNAL_COMMIT),
        delivered_per_second=_total_rate(sources, names.DELIVERY),
        ingest_p99_seconds=_p99(sources, names.GATEWAY_REQUEST),
        delivery_p99_seconds=_p99(sources, names.DELIVERY),
        late_seconds=_largest(sources, names.QUEUE_AGE),
        oldest_open_receipt_seconds=_largest(sources, names.RECEIPTS_OPEN_AGE),
        depth=_whole(_summed(sources, names.QUEUE_DEPTH)),
        deferred_per_second=_rates(sources, names.DEFERRED),
        open_breakers=_breakers(sources),
        dead_letters=_dead(sources),
        away={each.url: each.fault for each in sources if each.fault is not None},
    )


def _who_say(sources: Iterable[Source], metric: Metric) -> list[Source]:
    return [each for each in sources if each.now is not None and each.now.of(metric)]


def _rates(sources: Sequence[Source], metric: Metric) -> dict[str, float] | None:
    """Growth per second of each series, by its first label."""
    saying = [each for each in _who_say(sources, metric) if each.seconds() > 0]
    if not saying:
        return None
    rates: dict[str, float] = {}
    for each in saying:
        for labels, count in each.growth(metric).items():
            name = labels[0] if labels else ""
            rates[name] = rates.get(name, 0.0) + count / each.seconds()
    return rates


def _total_rate(sources: Sequence[Source], metric: Metric) -> float | None:
    rates = _rates(sources, metric)
    return None if rates is None else sum(rates.values())


def _p99(sources: Sequence[Source], metric: Metric) -> float | None:
    counts: Counter[float] = Counter()
    for each in _who_say(sources, metric):
        for labels, count in each.growth(metric, buckets=True).items():
            counts[float(labels[-1])] += count
    return quantile(0.99, sorted(counts.items()))


def _largest(sources: Sequence[Source], metric: Metric) -> float | None:
    values = [value for each in _who_say(sources, metric) if each.now for value in each.now.of(metric).values()]
    return max((value for value in values if not isnan(value)), default=None)


def _summed(sources: Sequence[Source], metric: Metric) -> dict[str, float] | None:
    saying = _who_say(sources, metric)
    if not saying:
        return None
    total: dict[str, float] = {}
    for each in saying:
        for labels, value in each.now.of(metric).items() if each.now else ():
            total[labels[0]] = total.get(labels[0], 0.0) + value
    return total


def _whole(numbers: Mapping[str, float] | None) -> dict[str, int] | None:
    return None if numbers is None else {name: int(value) for name, value in numbers.items() if not isnan(value)}


def _breakers(sources: Sequence[Source]) -> list[str] | None:
    found = _summed(sources, names.BREAKER_OPEN)
    return None if found is None else sorted(consumer for consumer, value in found.items() if value > 0)


def _dead(sources: Sequence[Source]) -> list[Dead] | None:
    """Consumers with dead letters, those with the most new ones first."""
    waiting = _whole(_summed(sources, names.DLQ_DEPTH))
    if waiting is None:
        return None
    came: Counter[str] = Counter()
    for each in sources:
        came.update(each.died)
    dead = [Dead(name, waiting.get(name, 0), came[name]) for name in waiting.keys() | came.keys()]
    return sorted(
        (each for each in dead if each.waiting or each.came),
        key=lambda each: (-each.came, -each.waiting, each.consumer),
    )


def shown(seen: Overview) -> Iterator[RenderableType]:
    """The overview for a person, fit for any width."""
    for url, fault in seen.away.items():
        yield words(f"! {url} is away: {fault}; what it knows is a dash", "bold red")
    depth = None if seen.depth is None else ", ".join(f"{count:,} {name}" for name, count in seen.depth.items())
    yield facts(
        [
            ("accepted", _per_second(seen.accepted_per_second)),
            ("delivered", _per_second(seen.delivered_per_second)),
            ("p99 of ingest", _seconds(seen.ingest_p99_seconds)),
            ("p99 of delivery", _seconds(seen.delivery_p99_seconds)),
            ("late by", _seconds(seen.late_seconds)),
            ("oldest open receipt", _seconds(seen.oldest_open_receipt_seconds)),
            ("deliveries", depth),
            ("deferred", _deferred(seen.deferred_per_second)),
            ("open breakers", _listed(seen.open_breakers)),
        ]
    )
    yield Text("")
    yield from _letters(seen.dead_letters)


def _per_second(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:,.1f}/s"


def _seconds(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return "longer than it is measured" if isinf(seconds) else span(seconds * 1000)


def _deferred(rates: Mapping[str, float] | None) -> str | None:
    if rates is None:
        return None
    return ", ".join(f"{name} {rate:,.1f}/s" for name, rate in rates.items() if rate) or "nothing"


def _listed(consumers: Sequence[str] | None) -> str | None:
    if consumers is None:
        return None
    rest = len(consumers) - MOST_CONSUMERS
    return ", ".join(consumers[:MOST_CONSUMERS]) + (f" and {rest} more" if rest > 0 else "") or "none"


def _letters(dead: Sequence[Dead] | None) -> Iterator[RenderableType]:
    if dead is None:
        yield words("dead letters  -")
    elif not dead:
        yield words("no dead letters")
    else:
        rows = [(each.consumer or "(no route)", each.waiting, each.came) for each in dead[:MOST_CONSUMERS]]
        yield table(("dead letters of", "waiting", "came since"), rows)
        if len(dead) > MOST_CONSUMERS:
            yield words(f"and {len(dead) - MOST_CONSUMERS} more consumers: relay dlq list")
