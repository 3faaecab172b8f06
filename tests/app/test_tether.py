"""Claims about what a worker and its parent tell each other."""

from __future__ import annotations

import socket
import threading

import pytest

from relay.app.tether import Ready, Refused, Report, WorkerEnd, decode, encode

PATIENCE_SECONDS = 10.0


@pytest.mark.parametrize("report", [Ready(), Refused("the port is taken: ünï\ncode")], ids=str)
def test_a_report_arrives_as_it_was_made_and_is_one_line(report: Report) -> None:
    line = encode(report)
    assert line.count(b"\n") == 1
    assert decode(line) == report


@pytest.mark.parametrize("line", [b'{"ready": fal', b"[]", b"{}", b"\xff", b'{"ready": false}'])
def test_a_report_that_was_cut_off_is_none(line: bytes) -> None:
    assert decode(line) is None


def test_a_worker_learns_of_its_parents_end() -> None:
    ours, its = socket.socketpair()
    parted = threading.Event()
    worker = WorkerEnd(its.detach())
    worker.watch(parted.set)
    assert not parted.is_set()
    ours.close()
    assert parted.wait(PATIENCE_SECONDS)
    worker.close()


def test_a_report_to_a_parent_that_is_gone_is_no_fault() -> None:
    ours, its = socket.socketpair()
    worker = WorkerEnd(its.detach())
    ours.close()
    worker.report(Ready())
    worker.close()
