"""Claims about the page of the load test: it shows what was measured, and nothing else."""

from relay.loadtest import sweep, sweep_report
from tests.docs.generated import COMMAND, SWEEP, SWEEP_PAGE, SWEEP_RESULT

HOW = f"run `{COMMAND}` and commit what it writes; `make load-test` measures anew"


def test_the_tables_are_made_from_the_result_beside_them() -> None:
    assert SWEEP.written() == SWEEP.make(), HOW


def test_the_plots_are_made_from_the_result_beside_them() -> None:
    drawn = sweep_report.plots(sweep.read(SWEEP_RESULT.read_bytes()))
    assert {path.name: path.read_text() for path in SWEEP_RESULT.parent.glob("*.svg")} == drawn, HOW


def test_what_is_shown_was_measured_whole_and_lost_nothing() -> None:
    measured = sweep.read(SWEEP_RESULT.read_bytes())
    assert measured.is_whole
    assert [each.step for each in measured.measured if each.steady is not None and each.steady.lost] == []


def test_the_command_finds_its_part_of_the_page() -> None:
    sweep_report.look_at_page(SWEEP_PAGE)
