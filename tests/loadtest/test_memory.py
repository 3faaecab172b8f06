"""Claims about memory: what counts as growth."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from relay.loadtest.memory import judged, slope, tree_mib


def test_a_straight_line_has_its_own_slope() -> None:
    assert slope([(0, 1), (1, 3), (2, 5)]) == 2.0


@pytest.mark.parametrize("points", [[], [(1.0, 5.0)], [(1.0, 5.0), (1.0, 9.0)]])
def test_what_is_no_line_does_not_grow(points: list[tuple[float, float]]) -> None:
    assert slope(points) == 0.0


def test_what_fills_up_in_the_first_quarter_is_no_growth() -> None:
    judgement = judged([(0, 10), (10, 80), *((10 * place, 90) for place in range(2, 8))])
    assert (judgement.start, judgement.end, judgement.most, judgement.slope_per_minute) == (10, 90, 90, 0.0)


def test_steady_growth_is_told_by_the_minute() -> None:
    assert judged([(second, 50 + second / 2) for second in range(60)]).slope_per_minute == 30.0


def test_memory_that_was_never_looked_at_is_not_judged() -> None:
    with pytest.raises(ValueError, match="never looked"):
        judged([])


def test_what_children_take_counts() -> None:
    before = tree_mib(os.getpid())
    hold = "import sys; held = bytearray(b'x' * 60_000_000); print('holds', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as holding:
        assert holding.stdout is not None
        holding.stdout.readline()
        assert tree_mib(os.getpid()) > before + 50
        assert holding.stdin is not None
        holding.stdin.close()


def test_a_process_that_is_gone_takes_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
        assert tree_mib(ended.pid) == 0.0
