"""Claims about several workers behind one port: one truth, whoever is asked and whoever dies."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from math import isnan
from pathlib import Path

import pytest

from relay.domain import telemetry as t
from relay.metrics import Metrics, Slot, bury, expose, prepare
from relay.metrics.roster import FILE
from tests.docs.tree import ROOT
from tests.metrics.reading import Scrape, scrape
from tests.metrics.test_counting import REPORT

DEADLINE = 60
DISPATCHER = t.Process.DISPATCHER


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as a parent prepares it for its workers."""
    prepare(tmp_path / "metrics")
    return tmp_path / "metrics"


def work(folder: Path, slot: int, count: int, end: str, *times: int) -> subprocess.Popen[bytes]:
    """Start a worker that is a process of its own; with `times`, so many after each other."""
    command = [sys.executable, "-m", "tests.metrics.worker", str(folder), str(slot), str(count), end, *map(str, times)]
    return subprocess.Popen(command, cwd=ROOT)


def read(folder: Path) -> Scrape:
    """What the parent shows, who holds no slot."""
    return Scrape(expose(DISPATCHER, folder)[1])


def opened(folder: Path, *numbers: int, clock: float = 1.0) -> Iterator[Metrics]:
    """The metrics of workers in these slots, on a clock that stands."""
    return (Metrics(DISPATCHER, slot=Slot(folder, number), clock=lambda: clock) for number in numbers)


def test_a_killed_worker_takes_no_count_with_it(folder: Path) -> None:
    worker = work(folder, 0, 250, "die")
    assert worker.wait(DEADLINE) == -signal.SIGKILL
    after = read(folder)
    assert after.value("relay_leases_reaped_total") == 250
    assert after.value("dlq_inflow_total", consumer="worker-0", reason="exhausted") == 250


def test_its_successor_counts_on_and_has_nothing_in_hand(folder: Path) -> None:
    assert work(folder, 0, 10, "die").wait(DEADLINE) == -signal.SIGKILL
    assert read(folder).value("relay_in_flight") == 7
    (successor,) = opened(folder, 0)
    successor.listener(t.LeasesReaped(1))
    after = scrape(successor)
    assert (after.value("relay_leases_reaped_total"), after.value("relay_in_flight")) == (11, 0)


def test_what_a_dead_worker_had_in_hand_is_nobodys_once_it_is_buried(folder: Path) -> None:
    """C168: it held seven requests when it was killed, and its successor is still to come."""
    assert work(folder, 0, 10, "die").wait(DEADLINE) == -signal.SIGKILL
    assert read(folder).value("relay_in_flight") == 7
    bury(DISPATCHER, Slot(folder, 0))
    after = read(folder)
    assert (after.value("relay_leases_reaped_total"), after.value("relay_in_flight")) == (10, 0)


def test_each_lost_worker_is_counted(folder: Path) -> None:
    for _ in range(3):
        (worker,) = opened(folder, 0)
        worker.close()
        bury(DISPATCHER, Slot(folder, 0))
    assert read(folder).value("relay_workers_lost_total") == 3


def test_who_is_buried_reports_no_queue(folder: Path) -> None:
    (reporter,) = opened(folder, 0)
    reporter.listener(REPORT)
    reporter.close()
    bury(DISPATCHER, Slot(folder, 0))
    assert read(folder).value("relay_queue_depth", status="pending") == 0


def test_who_left_nothing_is_buried_without_a_trace(folder: Path) -> None:
    bury(DISPATCHER, Slot(folder, 0))
    assert list(folder.iterdir()) == []


def test_a_hundred_killed_workers_take_no_count_and_leave_no_file(folder: Path) -> None:
    """C168: four slots, in each of which twenty-five workers are killed, while somebody looks fifty times and more."""
    parents = [work(folder, slot, 40, "die", 25) for slot in range(4)]
    seen: list[float] = []
    while len(seen) < 50 or any(parent.poll() is None for parent in parents):
        seen.append(read(folder).value("relay_leases_reaped_total"))
    assert [parent.wait(DEADLINE) for parent in parents] == [0] * 4
    assert seen == sorted(seen)
    assert read(folder).value("relay_leases_reaped_total") == 4_000
    assert sorted(path.name for path in folder.iterdir()) == [FILE, *(f"slot-{slot}.cells" for slot in range(4))]


def test_counters_never_go_back_while_workers_come_and_die(folder: Path) -> None:
    workers = [work(folder, slot, 20_000, end) for slot, end in enumerate(("leave", "die", "leave"))]
    seen: list[float] = []
    while any(worker.poll() is None for worker in workers):
        seen.append(read(folder).value("relay_leases_reaped_total"))
    assert [worker.wait(DEADLINE) for worker in workers] == [0, -signal.SIGKILL, 0]
    assert seen
    assert seen == sorted(seen)
    after = read(folder)
    assert after.value("relay_leases_reaped_total") == 60_000
    assert after.value("dlq_inflow_total", consumer="shared", reason="exhausted") == 60_000
    assert after.value("dlq_inflow_total", consumer="worker-1", reason="exhausted") == 20_000
    assert after.value("dlq_inflow_total", consumer="other", reason="exhausted") == 0


def test_every_worker_and_the_parent_show_the_same(folder: Path) -> None:
    first, second = opened(folder, 0, 1)
    first.listener(t.LeasesReaped(2))
    second.listener(t.LeasesReaped(3))
    second.listener(t.PermitsAwaited(0.2))
    assert first.exposition() == second.exposition() == expose(DISPATCHER, folder)
    assert read(folder).value("relay_leases_reaped_total") == 5
    assert read(folder).value("relay_global_wait_seconds_count") == 1


def test_what_workers_have_in_hand_is_added_up(folder: Path) -> None:
    first, second = opened(folder, 0, 1)
    first.listener(t.InFlightChanged(3))
    second.listener(t.InFlightChanged(4))
    assert read(folder).value("relay_in_flight") == 7


def test_a_loop_has_succeeded_when_any_workers_has(folder: Path) -> None:
    (early,), (late,) = opened(folder, 0, clock=100.0), opened(folder, 1, clock=200.0)
    late.listener(t.LoopSucceeded(t.Loop.REAPER))
    early.listener(t.LoopSucceeded(t.Loop.REAPER))
    assert read(folder).value("relay_loop_last_success_timestamp_seconds", loop="reaper") == 200


def test_of_a_mode_the_latest_word_counts(folder: Path) -> None:
    (early,), (late,) = opened(folder, 0, clock=100.0), opened(folder, 1, clock=200.0)
    late.listener(t.BrokerModeChanged(active=False, reason="gone"))
    early.listener(t.BrokerModeChanged(active=True, reason=""))
    assert read(folder).value("relay_broker_mode") == 0


def test_the_queue_is_what_the_reporter_says_and_is_counted_once(folder: Path) -> None:
    (first,), (second,) = opened(folder, 0, clock=100.0), opened(folder, 1, clock=200.0)
    first.listener(REPORT)
    second.listener(REPORT)
    assert read(folder).value("relay_queue_depth", status="pending") == REPORT.pending


def test_a_reporter_that_died_is_not_believed_once_its_slot_is_taken(folder: Path) -> None:
    first, second = opened(folder, 0, 1)
    first.listener(REPORT)
    first.close()
    assert read(folder).value("relay_queue_depth", status="pending") == REPORT.pending
    (successor,) = opened(folder, 0)
    after = scrape(successor)
    assert after.value("relay_queue_depth", status="pending") == 0
    assert isnan(after.value("relay_queue_oldest_pending_age_seconds"))
    assert scrape(second).values.keys() == after.values.keys()


def test_what_happens_after_the_end_disturbs_nobody(folder: Path) -> None:
    (worker,) = opened(folder, 0)
    worker.listener(t.LeasesReaped(1))
    worker.close()
    worker.listener(t.LeasesReaped(1))
    assert read(folder).value("relay_leases_reaped_total") == 1


def test_no_restart_adds_a_file(folder: Path) -> None:
    for _ in range(100):
        for worker in opened(folder, 0, 1, 2):
            worker.introduce(["billing"])
            worker.close()
    assert sorted(path.name for path in folder.iterdir()) == [FILE, "slot-0.cells", "slot-1.cells", "slot-2.cells"]
    assert (folder / FILE).read_text().count("billing") == 1


def test_before_any_worker_started_the_parent_shows_zeros(folder: Path) -> None:
    alone = scrape(Metrics(DISPATCHER))
    assert read(folder).values.keys() == alone.values.keys()
    assert read(folder).value("relay_leases_reaped_total") == 0


def test_a_new_instance_begins_at_zero(folder: Path) -> None:
    (worker,) = opened(folder, 0)
    worker.listener(t.LeasesReaped(1))
    worker.introduce(["billing"])
    worker.close()
    prepare(folder)
    assert list(folder.iterdir()) == []


def test_only_its_owner_may_look_into_the_folder(folder: Path) -> None:
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_file_of_another_layout_is_neither_believed_nor_kept(folder: Path) -> None:
    (worker,) = opened(folder, 0)
    worker.listener(t.LeasesReaped(5))
    worker.close()
    assert Scrape(expose(DISPATCHER, folder, consumers=7)[1]).value("relay_leases_reaped_total") == 0
    other = Metrics(DISPATCHER, slot=Slot(folder, 0), consumers=7)
    other.listener(t.LeasesReaped(1))
    assert scrape(other).value("relay_leases_reaped_total") == 1


def test_a_worker_without_its_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Metrics(DISPATCHER, slot=Slot(tmp_path / "gone", 0))


def test_consumers_of_all_workers_share_one_limit(folder: Path) -> None:
    first, second = (Metrics(DISPATCHER, slot=Slot(folder, number), consumers=2) for number in (0, 1))
    first.introduce(["a"])
    second.introduce(["b", "c"])
    first.introduce(["d", "e"])
    consumers = {dict(labels).get("consumer") for _, labels in scrape(first).values}
    assert consumers == {None, "", "a", "b", "other"}
