"""Claims about a steady load: what it is made of, what counts as lost, and a short one from end to end."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay.cli.main import main
from relay.loadtest import steady
from relay.loadtest.histogram import Histogram
from relay.loadtest.machine import this_machine
from relay.loadtest.observing import Queue
from relay.loadtest.receivers import Receivers, Share
from relay.loadtest.sink import Record
from relay.loadtest.steady import Load, Steady, with_arrivals
from relay.loadtest.steady_report import as_json, result, text
from tests.support.installation import RELAY

LOAD = Load(100, 10, 12, 500, gateways=1, dispatchers=1)
TIMES = dict.fromkeys(("p50", "p90", "p95", "p99", "p99.9", "max"), 4.0)
WELL = Steady(LOAD, {"202": 1_000}, TIMES, TIMES, 0, 0, 100, 200, 300, deliveries=12_000)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(RELAY), "loadtest", "steady", *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )


@pytest.mark.parametrize(
    ("load", "owed_to", "types"),
    [
        (LOAD, 12, 0),
        (replace(LOAD, fan_out=12), 12, 0),
        (replace(LOAD, fan_out=3), 3, 4),
        (replace(LOAD, fan_out=1), 1, 12),
        (replace(LOAD, in_turn=True), 1, 12),
    ],
)
def test_each_event_goes_to_one_group_of_endpoints(load: Load, owed_to: int, types: int) -> None:
    assert (load.owed_to, load.types) == (owed_to, types)


def test_endpoints_that_make_no_whole_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="groups of 5"):
        replace(LOAD, fan_out=5)


@pytest.mark.parametrize(
    ("came", "faults"),
    [
        (WELL, []),
        (replace(WELL, lost=3), ["3 of 12,000 accepted deliveries are lost"]),
        (replace(WELL, lost=3, owed=3), ["3 deliveries are still owed 60 s after the last one arrived"]),
        (replace(WELL, deliveries=0), ["nothing was accepted that an endpoint was to get"]),
    ],
)
def test_what_must_not_be_is_said_in_a_sentence(came: Steady, faults: list[str]) -> None:
    assert came.faults() == faults


LEVEL = (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("waiting", "flat"),
    [((9, 10, 9, 11), True), ((100, 200, 300, 300), True), ((100, 200, 300, 301), False), ((0, 0, 0, 25), True)],
)
def test_a_queue_is_flat_that_does_not_grow_behind_the_middle(waiting: tuple[int, ...], flat: bool) -> None:
    assert Queue(waiting, 25, LEVEL).is_flat is flat


def test_posts_that_wait_longer_and_longer_for_their_answers_are_a_queue_that_grows() -> None:
    assert not Queue(LEVEL, 25, (10, 500, 1_000, 1_500)).is_flat


def test_a_person_reads_what_the_receivers_did() -> None:
    mixed = replace(LOAD, receivers=Receivers(0.01, Share(0.02, 1), Share(0.05, 2), dead=0.25))
    shown = text(replace(WELL, load=mixed, undeliverable=7, refusals={"failed": 3}))
    assert (
        "1.0% of requests get a 500, 2.0% a 429 for 1 s, 5.0% an answer after 2 s, 25.0% of endpoints refuse" in shown
    )
    assert "of the requests: 3 failed; owed to endpoints that refuse: 7" in shown


def test_a_program_reads_the_verdicts_too() -> None:
    read = json.loads(as_json(replace(WELL, lost=1, queue=Queue(LEVEL, 5, LEVEL))))
    assert (read["queue"]["is_flat"], len(read["faults"])) == (True, 1)


def test_a_result_tells_what_it_was_measured_on_and_with() -> None:
    read = json.loads(result(WELL, this_machine("18.6")))
    assert read["machine"]["postgresql"] == "18.6"
    assert read["load"]["rate"] == 100


IDS = [str(uuid.UUID(int=number)) for number in range(4)]


def recorded(folder: Path, *arrivals: tuple[str, float]) -> Path:
    record = Record(len(arrivals))
    for delivery, at in arrivals:
        record.note(delivery.encode(), at)
    record.write(folder / "arrivals")
    return folder / "arrivals"


@pytest.mark.parametrize(
    ("owed", "undeliverable", "all_owed", "lost", "still_owed"),
    [
        (0, 0, True, 1, 0),  # one of three has not arrived, and nobody owes it
        (1, 0, True, 1, 1),  # it will yet arrive
        (5, 5, True, 1, 0),  # what is owed is for dead endpoints
        (6, 5, True, 1, 1),
        (3, 5, True, 3, 0),  # of what dead endpoints were to get two are not even owed
        (0, 0, False, 1, 0),  # who else is owed something is not asked
    ],
)
def test_what_is_neither_delivered_nor_owed_is_lost(
    owed: int, undeliverable: int, all_owed: bool, lost: int, still_owed: int, tmp_path: Path
) -> None:
    record = recorded(tmp_path, (IDS[0], 1.0), (IDS[1], 1.5))
    came = replace(WELL, owed=owed, undeliverable=undeliverable, duplicates=2)
    seen = with_arrivals(came, record, dict.fromkeys(IDS[:3], 0.5), all_owed=all_owed)
    assert (seen.lost, seen.owed, seen.duplicates) == (lost, still_owed, 0)


def test_a_delivery_that_arrives_again_counts_from_its_first_arrival_and_as_a_duplicate(tmp_path: Path) -> None:
    record = recorded(tmp_path, (IDS[0], 1.0), (IDS[1], 1.0), (IDS[0], 9.0))
    seen = with_arrivals(replace(WELL, duplicates=3), record, dict.fromkeys(IDS[:2], 0.5), all_owed=True)
    assert (seen.lost, seen.duplicates) == (0, 1)
    assert Histogram.decode(seen.arrived).seconds_at(1.0) == pytest.approx(0.5, rel=0.001)


def test_what_arrives_of_nobodys_post_has_no_time(tmp_path: Path) -> None:
    record = recorded(tmp_path, (IDS[0], 1.0), (IDS[3], 1.0))
    seen = with_arrivals(replace(WELL, duplicates=2), record, {IDS[0]: 0.5}, all_owed=True)
    assert (Histogram.decode(seen.arrived).total, seen.lost, seen.duplicates) == (1, 0, 0)


@pytest.mark.parametrize(("lost", "code"), [(0, 0), (2, 1)])
def test_the_command_fails_with_a_sentence_where_something_is_lost_and_still_tells_what_was_measured(
    lost: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(steady, "run", lambda *_: (replace(WELL, lost=lost), this_machine("18.6")))
    assert main(["loadtest", "steady", "--output", str(tmp_path / "made.json")]) == code
    told = capsys.readouterr()
    assert ("relay: 2 of 12,000 accepted deliveries are lost\n" in told.err) == bool(lost)
    assert json.loads(told.out)["lost"] == json.loads((tmp_path / "made.json").read_text())["lost"] == lost


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A load of everything at once, as its result file has it."""
    path = tmp_path_factory.mktemp("results") / "mixed.json"
    groups = ("--endpoints", "6", "--fan-out", "3", "--dead", "0.34", "--arrivals", "poisson")
    mix = ("--fail", "0.05", "--slow", "0.05:0.3", "--payload-bytes", "100", "--payload-bytes", "20000")
    done = command("--rate", "60", "--seconds", "2", *groups, *mix, "--output", str(path))
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(path.read_text())
    assert json.loads(done.stdout)["answers"] == read["answers"]
    return read


@pytest.mark.timeout(120)
def test_all_posts_are_accepted_and_all_living_endpoints_get_theirs(measured: dict[str, Any]) -> None:
    assert (measured["answers"], measured["lost"]) == ({"202": 120}, 0)
    assert (measured["deliveries"], measured["undeliverable"]) == (360, 120)


@pytest.mark.timeout(120)
def test_the_histograms_of_a_result_are_those_of_its_times(measured: dict[str, Any]) -> None:
    answered, arrived = Histogram.decode(measured["answered"]), Histogram.decode(measured["arrived"])
    assert (answered.total, arrived.total) == (120, 240)
    assert (answered.percentiles(), arrived.percentiles()) == (measured["answered_ms"], measured["arrived_ms"])


@pytest.mark.timeout(120)
def test_a_slow_answer_counts_until_it_came(measured: dict[str, Any]) -> None:
    assert measured["refusals"]["slow"] > 0
    assert measured["arrived_ms"]["max"] >= 300


@pytest.mark.timeout(120)
def test_memory_and_what_is_owed_are_looked_at_meanwhile(measured: dict[str, Any]) -> None:
    assert len(measured["queue"]["owed"]) == 4
    for tree in ("gateway", "dispatcher"):
        assert len(measured["memory"][tree]["samples"]) > 1
        assert measured["memory"][tree]["start"] > 10


def test_a_result_that_is_there_is_not_replaced_and_nothing_measured(tmp_path: Path) -> None:
    (tmp_path / "earlier.json").write_text("earlier")
    done = command("--output", str(tmp_path / "earlier.json"))
    assert (done.returncode, "--force replaces it" in done.stderr) == (2, True)
    assert (tmp_path / "earlier.json").read_text() == "earlier"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--endpoints", "5", "--fan-out", "2"), "groups of 2"),
        (("--slow", "0.5"), "SHARE:SECONDS"),
        (("--fail", "0.9", "--slow", "0.2:1"), "so large a share"),
        (("--output", "/nonexistent/result.json"), "no folder"),
    ],
)
def test_a_load_that_cannot_be_is_wrong_usage(words: tuple[str, ...], told: str) -> None:
    done = command(*words)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr
