"""Claims about the overview: what is shown of what processes serve, from fixed texts."""

from __future__ import annotations

from math import inf

import pytest
from rich.console import Console

from relay.cli.overview import MOST_CONSUMERS, Overview, Source, overview, shown
from relay.metrics.reading import NotMetrics, quantile, read

ODD = "\x1b[2J\x9b31m\u202egnp"


def gateway(accepted: int, slow: int = 0) -> str:
    return f"""
# TYPE journal_commit_seconds histogram
journal_commit_seconds_bucket{{le="+Inf"}} {accepted}
journal_commit_seconds_count {accepted}
journal_commit_seconds_sum 1.0
# TYPE gateway_request_seconds histogram
gateway_request_seconds_bucket{{le="0.01"}} {accepted - slow}
gateway_request_seconds_bucket{{le="0.1"}} {accepted}
gateway_request_seconds_bucket{{le="+Inf"}} {accepted}
gateway_request_seconds_count {accepted}
gateway_request_seconds_sum 1.0
"""


def dispatcher(delivered: int = 0, dead: int = 0, late: str = "0.0", name: str = "ledger", opened: int = 0) -> str:
    return f"""
# TYPE relay_delivery_seconds histogram
relay_delivery_seconds_bucket{{le="0.1"}} {delivered}
relay_delivery_seconds_bucket{{le="+Inf"}} {delivered}
relay_delivery_seconds_count {delivered}
relay_delivery_seconds_sum 1.0
# TYPE relay_queue_oldest_pending_age_seconds gauge
relay_queue_oldest_pending_age_seconds {late}
# TYPE relay_queue_depth gauge
relay_queue_depth{{status="pending"}} 7.0
# TYPE receipts_open_age_seconds gauge
receipts_open_age_seconds{{stat="max"}} 42.0
# TYPE relay_deliveries_deferred_total counter
relay_deliveries_deferred_total{{reason="breaker"}} {delivered}
# TYPE relay_breaker_open gauge
relay_breaker_open{{consumer="{name}"}} {opened}
# TYPE dlq_depth gauge
dlq_depth{{consumer="{name}"}} {dead}
# TYPE dlq_inflow_total counter
dlq_inflow_total{{consumer="{name}",reason="exhausted"}} {dead}
"""


def source(*texts: str, every: float = 2.0, url: str = "http://127.0.0.1:1") -> Source:
    made = Source(url)
    for number, text in enumerate(texts):
        made.said(number * every, read(text))
    return made


def seen(*sources: Source) -> Overview:
    return overview(sources)


def text(overview_shown: Overview, width: int = 80) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        for each in shown(overview_shown):
            console.print(each, crop=False)
    return capture.get()


def test_rates_are_the_growth_of_the_counters_by_the_seconds_between() -> None:
    now = seen(source(gateway(100), gateway(300)), source(dispatcher(10), dispatcher(50)))
    assert (now.accepted_per_second, now.delivered_per_second) == (100.0, 20.0)
    assert now.deferred_per_second == {"breaker": 20.0}


def test_rates_of_several_processes_are_added_up() -> None:
    assert seen(source(gateway(0), gateway(20)), source(gateway(5), gateway(25))).accepted_per_second == 20.0


def test_a_process_that_began_anew_counts_from_zero() -> None:
    assert seen(source(gateway(1000), gateway(40))).accepted_per_second == 20.0


def test_only_the_last_twenty_seconds_count() -> None:
    looks = source(gateway(0), gateway(1000), *[gateway(1000)] * 12)
    assert seen(looks).accepted_per_second == 0.0


def test_p99_is_of_what_came_in_the_window() -> None:
    assert seen(source(gateway(100, slow=100), gateway(300, slow=100))).ingest_p99_seconds == pytest.approx(0.0099)


def test_gauges_are_shown_as_they_are_told_last() -> None:
    now = seen(source(dispatcher(late="3.5")))
    assert (now.late_seconds, now.oldest_open_receipt_seconds, now.depth) == (3.5, 42.0, {"pending": 7})


def test_before_the_second_look_there_is_no_rate() -> None:
    assert seen(source(gateway(100))).accepted_per_second is None


def test_lateness_of_an_empty_queue_is_none() -> None:
    assert seen(source(dispatcher(late="NaN"))).late_seconds is None


def test_dead_letters_are_counted_per_consumer_since_the_watching_began() -> None:
    (ledger,) = seen(source(dispatcher(dead=3), dispatcher(dead=8))).dead_letters or ()
    assert (ledger.consumer, ledger.waiting, ledger.came) == ("ledger", 8, 5)


def test_open_breakers_are_named() -> None:
    assert seen(source(dispatcher(opened=1))).open_breakers == ["ledger"]


def test_what_a_process_knows_that_is_away_is_a_dash_and_its_absence_is_told() -> None:
    gone = source(dispatcher(10), dispatcher(50), url="http://127.0.0.1:9091")
    gone.away("Connection refused")
    now = seen(source(gateway(100), gateway(300)), gone)
    assert (now.accepted_per_second, now.delivered_per_second, now.depth, now.dead_letters) == (100.0, None, None, None)
    assert "http://127.0.0.1:9091 is away: Connection refused" in " ".join(text(now).split())


def test_a_process_that_came_back_has_rates_after_its_second_answer_and_no_dead_letter_is_missed() -> None:
    back = source(dispatcher(0, dead=1))
    back.away("Connection refused")
    back.said(100.0, read(dispatcher(1000, dead=4)))
    assert seen(back).delivered_per_second is None
    back.said(102.0, read(dispatcher(1010, dead=4)))
    assert seen(back).delivered_per_second == 5.0
    assert [each.came for each in seen(back).dead_letters or ()] == [3]


def test_of_many_consumers_some_have_a_line_and_the_rest_is_counted() -> None:
    letters = "\n".join(f'dlq_depth{{consumer="c{number}"}} 1.0' for number in range(1000))
    shown_now = text(seen(source(f"# TYPE dlq_depth gauge\n{letters}\n")))
    assert len(shown_now.splitlines()) < 30
    assert f"and {1000 - MOST_CONSUMERS} more consumers: relay dlq list" in shown_now


def test_a_name_cannot_steer_the_terminal() -> None:
    """C174, of the cases of the command line: what came from elsewhere is shown and never steers."""
    shown_now = text(seen(source(dispatcher(dead=1, opened=1, name=ODD))))
    assert all(character.isprintable() or character == "\n" for character in shown_now)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    now = seen(source(gateway(100), gateway(300)), source(dispatcher(10), dispatcher(50, dead=4, opened=1)))
    assert all(len(line.rstrip()) <= width for line in text(now, width).splitlines())


def test_above_every_bound_is_told_and_is_no_number_for_a_program() -> None:
    nothing = overview([])
    above = Overview(**{**vars(nothing), "delivery_p99_seconds": inf})
    assert "longer than it is measured" in text(above)
    assert above.document()["delivery_p99_seconds"] is None


@pytest.mark.parametrize("odd", ["<html></html>", '{"data": []}', "a{b} c d e"])
def test_what_is_no_metrics_is_told_from_a_process_without_any(odd: str) -> None:
    with pytest.raises(NotMetrics):
        read(odd)


@pytest.mark.parametrize(
    ("counts", "value"),
    [
        ([], None),
        ([(1.0, 0.0), (inf, 0.0)], None),
        ([(1.0, 100.0), (inf, 100.0)], 0.99),
        ([(1.0, 1.0), (inf, 100.0)], inf),
    ],
)
def test_a_quantile_is_reckoned_as_prometheus_does(counts: list[tuple[float, float]], value: float | None) -> None:
    assert quantile(0.99, counts) == value
