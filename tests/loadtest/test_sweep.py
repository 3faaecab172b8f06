"""Claims about the sweep: what is measured, what is kept of it, what is advised, and a short one from end to end."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from relay.loadtest import plot
from relay.loadtest.histogram import Histogram
from relay.loadtest.machine import this_machine
from relay.loadtest.observing import Queue
from relay.loadtest.steady import Load, Steady
from relay.loadtest.sweep import (
    BASE,
    KNOBS,
    Configuration,
    Drained,
    Knob,
    Measured,
    NotASweep,
    Plan,
    Step,
    Sweep,
    of_knob,
    read,
    steps,
    written,
)
from relay.loadtest.sweep_report import advice, look_at_page, noise, part, plots, text, write_page
from tests.support.installation import RELAY

BATCH = Knob("claim_batch", "`RELAY_CLAIM_BATCH`", (50, 300, 600))
POOL = Knob("pool", "`RELAY_DATABASE_POOL`", (9, 16))
PLAN = Plan(knobs=(BATCH, POOL), events=100, rates=(500.0,), loads=((1, 1),))
QUIET = replace(this_machine("18.6"), cores=2, busy=0.5)
PAGE = "# Page\n\n<!-- sweep: made by nobody -->\n\nold\n\n<!-- sweep: end -->\n\nmore\n"


def drained(rate: float) -> Drained:
    return Drained(rate, 90, 60, 1_700, 0.02)


def steady(load: Load) -> Steady:
    times = Histogram.of(each / 1000 for each in range(1, 101))
    every = times.percentiles()
    return Steady(
        load,
        {"202": 100},
        every,
        every,
        0,
        0,
        1,
        2,
        3,
        arrived=times.encode(),
        deliveries=100,
        queue=Queue((1, 1, 1, 1), 9),
    )


def made(rates: dict[str, float], again: float) -> Sweep:
    """A sweep that drained so fast: by the knob and its value; what all are compared with drained 1,000/s at first."""
    sweep = Sweep(PLAN, QUIET, steps=len(steps(PLAN)), seconds=60.0)
    for step in steps(PLAN):
        if step.rate:
            load = Load(step.rate, 8, 1, 500, step.configuration.gateways, step.configuration.dispatchers)
            sweep.measured.append(Measured(step, steady=steady(load)))
            continue
        name = f"{step.knob}={getattr(step.configuration, step.knob)}"
        rate = again if step.again else 1_000 if step.configuration == BASE else rates[name]
        sweep.measured.append(Measured(step, drained=drained(rate)))
    return sweep


WELL = made({"claim_batch=50": 500, "claim_batch=600": 1_400, "pool=16": 1_050}, again=1_020)


def test_each_configuration_is_measured_once_and_the_one_all_share_first_in_the_middle_and_last() -> None:
    measured = [(each.configuration, each.again) for each in steps(PLAN)]
    assert measured == [
        (BASE, False),
        (replace(BASE, claim_batch=50), False),
        (BASE, True),
        (replace(BASE, claim_batch=600), False),
        (replace(BASE, pool=16), False),
        (Configuration(1, 1), False),
        (BASE, True),
    ]


def test_a_knob_has_what_another_one_measured_for_it() -> None:
    assert [each.step.configuration.pool for each in of_knob(WELL, POOL)] == [BASE.pool, 16]


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_the_usual_value_of_each_knob_is_among_those_that_are_tried(knob: Knob) -> None:
    assert knob.base in knob.configurations()
    assert getattr(knob.base, knob.name) in knob.values


def test_the_base_is_relay_as_it_is_without_settings() -> None:
    assert BASE.settings() == {
        "RELAY_CLAIM_BATCH": "300",
        "RELAY_DATABASE_POOL": "9",
        "RELAY_GLOBAL_CONCURRENCY": "512",
    }


def test_all_of_it_takes_minutes_and_no_more_measurements_than_there_is_time_for() -> None:
    assert len(steps(Plan())) <= 31


def test_a_result_is_read_as_it_was_written() -> None:
    assert read(written(WELL)) == WELL


@pytest.mark.parametrize(
    "text", ["", "{}", json.dumps({"form": "another"}), written(WELL).replace("sweep, 1", "sweep, 9")]
)
def test_what_no_sweep_has_written_is_not_read(text: str) -> None:
    with pytest.raises(NotASweep):
        read(text)


def test_the_knob_that_is_worth_most_comes_first() -> None:
    assert [(each.knob.name, each.best, round(each.gain, 2)) for each in advice(WELL)] == [
        ("claim_batch", 600, 1.4),
        ("pool", 16, 1.05),
    ]


def test_a_change_is_advised_where_it_is_worth_it_and_not_elsewhere() -> None:
    shown = part(WELL, "plots")
    assert "| `RELAY_CLAIM_BATCH` | 300 | 600 | 1.40 x | 50 | 0.50 x | **set it to 600** |" in shown
    assert "| `RELAY_DATABASE_POOL` | 9 | 16 | 1.05 x | 9 | 1.00 x | leave it |" in shown


def test_on_a_machine_that_differs_from_itself_as_much_nothing_is_advised() -> None:
    restless = made({"claim_batch=50": 500, "claim_batch=600": 1_400, "pool=16": 1_050}, again=1_300)
    assert noise(restless) == pytest.approx(0.3)
    assert "set it to" not in part(restless, "plots")


def test_on_a_machine_with_other_work_nothing_is_advised() -> None:
    busy = part(replace(WELL, machine=replace(QUIET, busy=0.6)), "plots")
    assert "not quiet before" in busy
    assert "set it to" not in busy
    assert "not quiet before" not in part(WELL, "plots")


def test_a_part_of_a_sweep_has_what_was_measured_by_then() -> None:
    partly = replace(WELL, measured=WELL.measured[:2])
    assert not partly.is_whole
    assert [each.knob.name for each in advice(partly)] == ["claim_batch"]
    assert set(plots(partly)) == {"claim-batch.svg", "pool.svg"}
    assert "2 of 7 configurations" in text(partly)


def test_what_could_not_be_measured_is_told_with_its_reason() -> None:
    failed = replace(WELL, measured=[*WELL.measured[:-1], Measured(Step(BASE, rate=9_000.0), fault="it ended early")])
    assert "- 9,000 events/s, gateways 1, dispatchers 2: it ended early" in part(failed, "plots")


def test_what_a_load_lost_is_told_with_the_load() -> None:
    last = WELL.measured[-2]
    assert last.steady is not None
    lossy = replace(WELL, measured=[replace(last, steady=replace(last.steady, lost=1, deliveries=4_000))])
    assert lossy.faults() == ["500 events/s, gateways 1, dispatchers 1: 1 of 4,000 accepted deliveries are lost"]


def test_a_page_gets_its_part_and_its_plots_and_keeps_the_rest(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    write_page(page, WELL)
    shown = page.read_text()
    assert shown.startswith("# Page\n\n<!-- sweep: made by nobody -->\n\n### The machine\n")
    assert shown.endswith("\n<!-- sweep: end -->\n\nmore\n")
    assert "old" not in shown
    for path in (tmp_path / "page").iterdir():
        assert f"(page/{path.name})" in shown
    write_page(page, WELL)
    assert page.read_text() == shown


def test_a_page_without_the_part_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    with pytest.raises(LookupError):
        look_at_page(page)


def drawing(drawn: str) -> ET.Element:
    return ET.fromstring(drawn)  # noqa: S314 - our own drawing


def inside(drawn: str) -> list[tuple[float, float]]:
    """Where everything in a plot is; the plot must be one."""
    root = drawing(drawn)
    found = []
    for each in root.iter():
        if each.get("x"):
            found.append((float(each.get("x", "")), float(each.get("y", ""))))
        for pair in each.get("points", "").split():
            x, y = pair.split(",")
            found.append((float(x), float(y)))
    return found


@pytest.mark.parametrize("name", ["claim-batch.svg", "pool.svg", "times.svg"])
def test_nothing_of_a_plot_is_outside_of_it(name: str) -> None:
    drawn = plots(WELL)[name]
    height = float(drawing(drawn).get("height", ""))
    assert all(0 <= x <= plot.WIDTH and 0 <= y <= height for x, y in inside(drawn))


def test_a_plot_follows_a_dark_scheme() -> None:
    assert "prefers-color-scheme: dark" in plots(WELL)["times.svg"]


def test_columns_are_as_tall_as_their_values() -> None:
    root = drawing(plot.columns("a", "b", [plot.Column("1", 50.0), plot.Column("2", 100.0, chosen=True)]))
    tall = [float(each.get("height", "")) for each in root.iter() if each.get("class", "").startswith("bar")]
    assert tall[1] == pytest.approx(2 * tall[0], abs=0.2)


def test_names_are_no_markup() -> None:
    assert "<b>" not in plot.columns("<b>", "<b>", [plot.Column("<b>", 1.0)])


def test_nothing_at_all_makes_a_plot_too() -> None:
    drawing(plot.columns("a", "b", [plot.Column("1", 0.0)]))


def sweeping(*words: str) -> list[str]:
    return [str(RELAY), "loadtest", "sweep", "--events", "300", *words]


@pytest.mark.timeout(180)
def test_a_short_sweep_measures_and_writes_page_plots_and_result(tmp_path: Path) -> None:
    page, result = tmp_path / "page.md", tmp_path / "sweep.json"
    page.write_text(PAGE)
    words = ("--knob", "claim_batch", "--value", "100", "--seconds", "0", "--page", str(page), "--output", str(result))
    done = subprocess.run(sweeping(*words), capture_output=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    measured = read(result.read_bytes())
    assert read(done.stdout) == measured
    assert [each.step.configuration.claim_batch for each in measured.measured] == [300, 300, 100, 300]
    assert all(each.drained is not None and each.drained.rate > 0 for each in measured.measured)
    assert page.read_text() == PAGE.replace("old\n", part(measured, "page"))
    assert [path.name for path in (tmp_path / "page").iterdir()] == ["claim-batch.svg"]


@pytest.mark.timeout(180)
def test_an_interrupt_keeps_what_was_measured(tmp_path: Path) -> None:
    result = tmp_path / "sweep.json"
    folder = Path(tempfile.mkdtemp())  # not below tmp_path: its sockets' paths would be too long
    ours, its = pty.openpty()
    words = ("--knob", "pool", "--seconds", "0", "--output", str(result))
    environ = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(sweeping(*words), stdout=subprocess.PIPE, stderr=its, env=environ) as process:
        os.close(its)
        shown = b""
        while b"2 of 5: " not in shown:
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 130
    kept = read(result.read_bytes())
    assert (len(kept.measured), kept.is_whole) == (1, False)
    assert read(out) == kept
    folder.rmdir()  # which must be empty


INTERRUPTED = """
import os, signal
from relay.loadtest.installation import uninterrupted
try:
    with uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        print("all of it")
    print("too much")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_waits_for_the_end_of_what_must_not_be_interrupted() -> None:
    """In a process of its own: here another thread may take the signal."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split("\n") == ["all of it", "interrupted", ""]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--value", "5"), "one --knob"),
        (("--knob", "pool", "--knob", "dispatchers", "--value", "5"), "one --knob"),
        (("--knob", "sails"), "sails"),
        (("--page", "/nonexistent/page.md"), "does not exist"),
    ],
)
def test_a_sweep_that_cannot_be_is_wrong_usage(words: tuple[str, ...], told: str) -> None:
    done = subprocess.run(sweeping(*words), capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr
