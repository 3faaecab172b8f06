"""Drills: Relay is broken on purpose in one way, and whoever is on call must see which way that is.

Owns the ways in which it may break, with what tells of each, and what all drills have in common: a real Relay under
load that a real Prometheus watches with the rules of `ops`, at a pace of seconds. `docs/operations.md` has a row for
each way. Rules that only a slow machine would raise have other thresholds here: nothing is claimed about time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.support.installation import Installation, NotInTime, Service, api, eventually
from tests.support.producer import Event, Producer, numbered
from tests.support.programs import Programs
from tests.support.prometheus import Alert, Pace, Prometheus, targets_of

DEADLINE = 60.0
"""For each single thing that is waited for; the machine may be busy with other tests."""


@dataclass(frozen=True, slots=True)
class Mode:
    """One way in which Relay may break.

    `name` is what the table of `docs/operations.md` calls it, `alert` what fires and `reason` its label, where that is
    what tells. `series` is an expression that is true meanwhile. Of all alerts that page, none but `alert` may fire,
    and that only if it `pages`.
    """

    name: str
    alert: str
    series: str
    pages: bool = False
    reason: str | None = None
    threshold: float | None = None
    """Instead of the alert's own, in seconds."""


MODES: Mapping[str, Mode] = {
    "slow_endpoint": Mode(
        "an endpoint is slow",
        "RelayReceiptsOpenLong",
        'relay_deliveries_deferred_total{reason="endpoint_concurrency"} > 0',
        threshold=2,
    ),
    "dead_endpoint": Mode("an endpoint is dead", "RelayConsumerDown", 'relay_breaker_open{consumer="crm"} > 0'),
    "endpoint_that_limits_us": Mode(
        "an endpoint limits us",
        "RelayReceiptsOpenLong",
        'relay_deliveries_deferred_total{reason="retry_after"} > 0',
        threshold=2,
    ),
    "database_cut_for_ten_seconds": Mode(
        "the database is away",
        "RelayEventsTurnedAway",
        'gateway_failures_total{reason="database_unavailable"} > 0',
        pages=True,
        reason="database_unavailable",
    ),
    "dead_dispatchers": Mode(
        "the dispatchers are dead", "RelayNoDispatcher", 'up{job="relay-dispatcher"} == 0', pages=True
    ),
    "quorum_gone": Mode("the quorum is gone", "RelayQuorumMissing", "journal_quorum_failures_total > 0", pages=True),
    "clock_jump": Mode("a clock jumped", "RelayClockSkewed", "abs(relay_clock_skew_seconds) > 2"),
    "full_disk": Mode(
        "the database's disk is full",
        "RelayEventsTurnedAway",
        "journal_cannot_write_total > 0",
        pages=True,
        reason="database_unavailable",
    ),
}
"""By the names of the drills."""

_NEVER = 1_000_000.0
_ONLY_SLOW = {"RelayCommitSlow": _NEVER, "RelayCommitVerySlow": _NEVER, "RelayQueueLate": 600.0}
_MISSED_SCRAPES = {"RelayNoGateway": 10.0, "RelayNoDispatcher": 10.0, "RelayTargetDown": 15.0}
_BY_THE_MINUTE = frozenset({"RelayLoopSilent"})
"""Loops renew their success once a minute, at whatever pace a test goes."""

_QUICKER = 100


@dataclass(slots=True)
class Drill:
    """A Relay that is watched, while something is done to it. `watching` makes one."""

    mode: Mode
    installation: Installation
    gateway: Service
    dispatcher: Service
    prometheus: Prometheus
    producer: Producer
    events: list[Event] = field(default_factory=list)

    async def post(self, count: int, *, kilobytes: int = 0) -> None:
        """Have so many more events accepted, however often that has to be tried. Nothing compresses their size."""
        begin = len(self.events)
        more = numbered(begin + count)[begin:]
        if kilobytes:
            noise = random.Random(begin).randbytes(512 * kilobytes).hex().encode()
            more = [replace(event, body=b'"%b"' % (noise + event.key.encode())) for event in more]
        self.events += more
        await self.producer.post(more, 2 * DEADLINE)

    async def is_told(self) -> Alert:
        """Wait until the mode's alert fires, and its series says so; answers the alert."""
        fired = await self.prometheus.until_firing(self.mode.alert, DEADLINE)
        await self.prometheus.until(self.mode.series, DEADLINE)
        if self.mode.reason is not None:
            assert {alert.labels["reason"] for alert in fired} == {self.mode.reason}
        assert {alert.labels["severity"] for alert in fired} == {"page" if self.mode.pages else "warn"}
        return fired[0]

    async def readiness(self) -> tuple[int, dict[str, str]]:
        """What `/readyz` says: its status and its checks."""

        def ask() -> tuple[int, dict[str, str]]:
            with api(self.gateway) as client:
                answer = client.get("/readyz")
            return answer.status_code, answer.json()["checks"]

        return await asyncio.to_thread(ask)

    async def is_over(self) -> None:
        """Wait until everything that was accepted has been acked and nothing rings or is not ready any more, and look
        back: nothing else has paged, and the verification finds nothing wrong."""
        await self.installation.all_closed(len(self.events), 2 * DEADLINE)
        assert self.producer.accepted.keys() == {event.key for event in self.events}
        await self.prometheus.until_quiet(self.mode.alert, DEADLINE)
        try:
            await eventually(self._is_ready, DEADLINE, "the gateway is ready")
        except NotInTime as late:
            raise NotInTime(f"{late}: {await self.readiness()}") from None
        paged = self.prometheus.query('max_over_time(ALERTS{alertstate="firing", severity="page"}[1h])')
        expected = {self.mode.alert} if self.mode.pages else set()
        assert {page.labels["alertname"] for page in paged} == expected, f"these paged: {paged}"
        verified = await asyncio.to_thread(self.installation.run, "verify")
        assert verified.returncode == 0, verified.stdout + verified.stderr

    async def _is_ready(self) -> bool:
        status, _ = await self.readiness()
        return status == 200

    def all_promised(self) -> set[str]:
        """The delivery ids that the senders were told."""
        return {owed["id"] for reply in self.producer.accepted.values() for owed in reply.json()["deliveries"]}


@asynccontextmanager
async def watching(
    mode: Mode, programs: Programs, installation: Installation, **of_dispatcher: str
) -> AsyncIterator[Drill]:
    """A gateway and a dispatcher that run until the end of the block, and the Prometheus that has seen them well."""
    gateway, dispatcher = installation.gateway(), installation.dispatcher(**of_dispatcher)
    await asyncio.to_thread(lambda: (gateway.started, dispatcher.started))
    thresholds = _ONLY_SLOW | ({} if mode.threshold is None else {mode.alert: mode.threshold})
    pace = Pace(_QUICKER, thresholds, _MISSED_SCRAPES, _BY_THE_MINUTE)
    folder = Path(installation.folder / "prometheus")
    with Prometheus(programs, folder, targets_of(gateway, dispatcher), pace) as prometheus:
        await prometheus.until_ready()
        yield Drill(mode, installation, gateway, dispatcher, prometheus, Producer([gateway.url], connections=4))
        for service in _running((gateway, dispatcher)):
            await asyncio.to_thread(service.stop)


def _running(services: Iterable[Service]) -> list[Service]:
    return [service for service in services if service.is_running()]
