"""Claims about how long a worker may take to stop: what it waits for, one after the other, fits into its bound."""

from __future__ import annotations

from relay.app import watching
from relay.app.roles import LAST_APPENDS_SECONDS, MARGIN_SECONDS, Role, bounds
from relay.broker import redis_streams
from relay.dispatcher.consumer import LET_GO_SECONDS
from relay.dispatcher.dispatcher import RECORD_GRACE_SECONDS
from relay.gateway import APPEND_SECONDS
from relay.metrics import logs
from relay.settings import read
from relay.store.database import CLOSE_SECONDS

POOLS = 5
SENDER_SECONDS = METRICS_SECONDS = 1.0


def test_what_a_stopping_worker_waits_for_fits_into_its_margin() -> None:
    telling = logs.FLUSH_SECONDS + watching.FLUSH_SECONDS
    closing = POOLS * CLOSE_SECONDS
    assert LAST_APPENDS_SECONDS + closing + telling < MARGIN_SECONDS
    assert SENDER_SECONDS + RECORD_GRACE_SECONDS + METRICS_SECONDS + closing + telling < MARGIN_SECONDS


def test_the_leave_of_a_broker_that_hangs_is_over_before_the_drain_must_be() -> None:
    forget, forget_idle, close = [redis_streams.CLOSE_SECONDS] * 3
    assert LET_GO_SECONDS + forget + forget_idle + close < SENDER_SECONDS + RECORD_GRACE_SECONDS


def test_an_append_under_way_may_come_to_its_end() -> None:
    assert APPEND_SECONDS < LAST_APPENDS_SECONDS


def test_the_delay_of_a_gateways_stop_is_no_part_of_the_time_after_which_it_is_killed() -> None:
    soon, later = (bounds(Role.GATEWAY, read({"RELAY_SHUTDOWN_DELAY_SECS": seconds})) for seconds in ("0", "30"))
    assert (later.delay, later.stop - later.delay) == (30.0, soon.stop)


def test_a_dispatcher_to_which_nobody_is_routed_delays_nothing() -> None:
    assert bounds(Role.DISPATCHER, read({"RELAY_SHUTDOWN_DELAY_SECS": "30"})) == bounds(Role.DISPATCHER, read({}))
