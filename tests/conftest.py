"""What all tests have in common: tools that may be missing, time per folder, workers, Hypothesis' settings.

Fixtures live in ``tests/support`` and beside the tests that use them. Three rules are held here:

* A machine may lack a tool that the package registry does not bring. Such a test is skipped with a reason
  that begins with ``missing tool``; where ``CI=true`` the same skip is a failure, since nothing may stay
  untested there.
* ``tests/domain`` is to stay so quick that it is run without thinking. Its budget counts processor time, and a run
  over it says so. It does not fail: on a busy machine the same tests cost three times as much, and timings never
  decide whether a test passes.
* A run leaves nothing behind, see ``tests/support/run``. What it does leave, it is told of, and fails.

``pytest -n auto`` runs the tests in several processes, each with a PostgreSQL of its own. What is summed up here, each
of them sends to the one that prints.
"""

import os
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import coverage
import pytest
from hypothesis import settings

from tests.support.run import Run

pytest_plugins = ["tests.support.database", "tests.support.cluster", "tests.support.pgbouncer", "tests.support.haproxy"]

MISSING_TOOL = "missing tool"
CI = os.environ.get("CI") == "true"
TESTS = Path(__file__).parent
CPU_SECONDS_ALLOWED = {"domain": 2.0}
WORKERS_PER_CORE, MOST_WORKERS = 3, 12
"""Most tests wait for others most of the time: for servers, commands, and bounds that they are about. Each worker has a
server in memory."""

# No deadline: how long an example takes tells about the machine only. In CI the examples are the same each
# time, so that a change is judged by itself.
settings.register_profile("relay", deadline=None, derandomize=CI, print_blob=not CI)
settings.load_profile("relay")

# Tests that were started by `nohup`, or in the background of a script, would pass their deafness for SIGHUP or SIGINT
# on to every service under test; a handler is not passed on.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda *_: None)


@dataclass(slots=True)
class Spent:
    """The seconds that the tests of one folder took, and how many they were."""

    tests: int = 0
    cpu: float = 0.0
    wall: float = 0.0

    def add(self, tests: int, cpu: float, wall: float) -> None:
        """Add what other tests took."""
        self.tests += tests
        self.cpu += cpu
        self.wall += wall


_spent: defaultdict[str, Spent] = defaultdict(Spent)
_run = pytest.StashKey[Run]()
_left = pytest.StashKey[list[str]]()


def _over_budget() -> list[str]:
    """Return a sentence per folder that used more processor time than it may; coverage runs are let off."""
    if coverage.Coverage.current() is not None:
        return []
    return [
        f"tests/{folder} used {_spent[folder].cpu:.2f} s of processor time; it may use {allowed:.2f} s"
        for folder, allowed in CPU_SECONDS_ALLOWED.items()
        if folder in _spent and _spent[folder].cpu > allowed
    ]


def _fail_if_tool_is_missing(report: pytest.CollectReport | pytest.TestReport) -> None:
    """Turn a skip for a missing tool into a failure where nothing may be missing."""
    if not (CI and report.skipped and isinstance(report.longrepr, tuple)):
        return
    reason = report.longrepr[2].removeprefix("Skipped: ")
    if reason.startswith(MISSING_TOOL):
        report.outcome = "failed"
        report.longrepr = f"{reason}: not allowed where CI=true"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that is marked with a tool which this machine lacks."""
    for marker in item.iter_markers("requires_tool"):
        for name in marker.args:
            if shutil.which(name) is None:
                pytest.skip(f"{MISSING_TOOL}: {name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Look at the outcome of every phase of a test."""
    report = yield
    _fail_if_tool_is_missing(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Look at modules that were skipped as a whole."""
    report = yield
    _fail_if_tool_is_missing(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Charge a test's time, fixtures included, to its folder."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = yield
    folder = item.path.relative_to(TESTS).parts[0]
    _spent[folder].add(1, time.process_time() - cpu, time.perf_counter() - wall)
    return result


def _is_worker(config: pytest.Config) -> bool:
    """Whether another process of pytest has started this one and prints what comes of it."""
    return hasattr(config, "workerinput")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """How many processes ``-n auto`` means."""
    return min(WORKERS_PER_CORE * len(os.sched_getaffinity(0)), MOST_WORKERS)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin the run, before anything makes a temporary folder and before there are workers."""
    if not _is_worker(session.config):
        run = session.config.stash[_run] = Run.begin()
        run.watch(session.config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined] # only fixtures are given it


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Hand over what was summed up; in the end, end what is left of the run. Left over, it is a failure."""
    if _is_worker(session.config):
        output: dict[str, Any] = session.config.workeroutput  # type: ignore[attr-defined] # xdist's way of handing over
        output["spent"] = {folder: astuple(spent) for folder, spent in _spent.items()}
    elif (run := session.config.stash.get(_run, None)) is not None:
        session.config.stash[_left] = run.end()
        if session.config.stash[_left] and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over what a worker summed up, unless it died."""
    for folder, spent in getattr(node, "workeroutput", {}).get("spent", {}).items():
        _spent[folder].add(*spent)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was left behind, the time per folder, and what is over its budget."""
    if left := config.stash.get(_left, []):
        terminalreporter.section("left behind", red=True)
        for line in left:
            terminalreporter.write_line(line)
    if not _spent:
        return
    terminalreporter.section("time per folder")
    for folder, spent in sorted(_spent.items()):
        times = f"{spent.wall:8.2f} s, {spent.cpu:7.2f} s of processor time in this process"
        terminalreporter.write_line(f"tests/{folder:<12} {spent.tests:5} tests {times}")
    for sentence in _over_budget():
        terminalreporter.write_line(f"OVER BUDGET: {sentence}", red=True)
