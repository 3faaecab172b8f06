"""Claims about what processes cost: whose time is counted, and as what."""

from __future__ import annotations

import os

import pytest

from relay.loadtest.accounting import child_seconds, machine_seconds, tree_seconds
from relay.loadtest.children import child
from relay.loadtest.installation import sink_url


def test_a_child_is_found_by_its_arguments_and_no_other_process_is() -> None:
    with child("relay.loadtest.sink", "--capacity", "17") as sink:
        sink_url(sink)
        assert child_seconds("relay.loadtest.sink", "--capacity", "17") == pytest.approx(
            tree_seconds(sink.pid), abs=0.1
        )
        assert child_seconds("--capacity", "1") is None
    assert child_seconds("relay.loadtest.sink", "--capacity", "17") is None


def test_the_machine_has_worked_at_least_as_long_as_any_process() -> None:
    assert machine_seconds() > tree_seconds(os.getpid()) > 0
