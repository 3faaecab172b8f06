"""What all tests have in common: tools that may be missing, time per folder, Hypothesis' settings.

Fixtures live in ``tests/support`` and beside the tests that use them. Two rules are held here:

* A machine may lack a tool that the package registry does not bring. Such a test is skipped with a reason
  that begins with ``missing tool``; where ``CI=true`` the same skip is a failure, since nothing may stay
  untested there.
* ``tests/domain`` is to stay so quick that it is run without thinking. Its budget counts processor time, and a run
  over it says so. It does not fail: on a busy machine the same tests cost three times as much, and timings never
  decide whether a test passes.
"""

import os
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import coverage
import pytest
from hypothesis import settings

pytest_plugins = ["tests.support.database", "tests.support.cluster"]

MISSING_TOOL = "missing tool"
CI = os.environ.get("CI") == "true"
TESTS = Path(__file__).parent
CPU_SECONDS_ALLOWED = {"domain": 2.0}

# No deadline: how long an example takes tells about the machine only. In CI the examples are the same each
# time, so that a change is judged by itself.
settings.register_profile("relay", deadline=None, derandomize=CI, print_blob=not CI)
settings.load_profile("relay")

# Tests that were started by `nohup` would pass its deafness for SIGHUP on to every service under test; a handler is not
# passed on.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@dataclass(slots=True)
class Spent:
    """The seconds that the tests of one folder took, and how many they were."""

    tests: int = 0
    cpu: float = 0.0
    wall: float = 0.0


_spent: defaultdict[str, Spent] = defaultdict(Spent)


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
    spent = _spent[item.path.relative_to(TESTS).parts[0]]
    spent.tests += 1
    spent.cpu += time.process_time() - cpu
    spent.wall += time.perf_counter() - wall
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the time per folder, and what is over its budget."""
    if not _spent:
        return
    terminalreporter.section("time per folder")
    for folder, spent in sorted(_spent.items()):
        times = f"{spent.wall:8.2f} s, {spent.cpu:7.2f} s of processor time in this process"
        terminalreporter.write_line(f"tests/{folder:<12} {spent.tests:5} tests {times}")
    for sentence in _over_budget():
        terminalreporter.write_line(f"OVER BUDGET: {sentence}", red=True)
