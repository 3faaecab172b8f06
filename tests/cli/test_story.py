"""Claims about the story of an event as it is drawn: from fixed receipts to lines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from relay.cli.rendering import words
from relay.cli.story import MOST_LANES, MOST_STEPS, Story, drawn

RECEIVED = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
RECEIPT = "rcp_0198c0de4b5e7a3c9f10d2b4a6c8e0f1"
ID = "0198c0de-4b5e-7a3c-9f10-d2b4a6c8e0f1"
WIDTHS = [40, 80, 200]


def at(seconds: float) -> str:
    return (RECEIVED + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(boundary: str, what: str, ms: float, consumer: str | None = None) -> dict[str, Any]:
    return {"boundary": boundary, "what": what, "at_ms": ms, "consumer": consumer}


def delivery(**facts: Any) -> dict[str, Any]:
    return {
        "id": ID,
        "endpoint_id": "ep_1",
        "consumer": "ledger",
        "status": "pending",
        "attempts": 0,
        "generation": 0,
        "acked_at": None,
        "next_attempt_at": None,
        "waiting_for": None,
        "reason": None,
        "boundary": "B3",
        "last_error": None,
        "redriven_at": None,
        "discarded_at": None,
        **facts,
    }


def attempt(number: int, seconds: float, outcome: str = "retryable", **facts: Any) -> dict[str, Any]:
    return {
        "attempt": number,
        "generation": 0,
        "at": at(seconds),
        "outcome_class": outcome,
        "reason": None,
        "deferred_for_ms": None,
        "status_code": 503,
        "error_class": None,
        "snippet": None,
        "wait_ms": 0.5,
        "connect_ms": 1.5,
        "send_ms": 0.2,
        "first_byte_ms": 7.5,
        "total_ms": 9.4,
        "display_url": None,
        **facts,
    }


def wait(seconds: float, until: float, gate: str) -> dict[str, Any]:
    """A wait behind a gate that was told when it opened, at `until`."""
    nothing = dict.fromkeys(("status_code", "wait_ms", "connect_ms", "send_ms", "first_byte_ms", "total_ms"))
    return attempt(1, until, "deferred", reason=gate, deferred_for_ms=int(seconds * 1000), **nothing)


def receipt(*deliveries: dict[str, Any], moments: tuple[dict[str, Any], ...] = (), **facts: Any) -> dict[str, Any]:
    begin = (
        moment("B1", "checked", 0.1),
        moment("B1", "receipt_assigned", 0.2),
        moment("B2", "committed", 7.0),
        moment("B2", "confirmed", 7.0),
        moment("B1", "accepted", 7.0),
        moment("B3", "routed", 7.0),
    )
    return {
        "receipt_id": RECEIPT,
        "type": "invoice.paid",
        "received_at": at(0),
        "state": "open",
        "outcome": None,
        "reason": None,
        "discarded": 0,
        "delivery_count": len(deliveries),
        "deliveries": list(deliveries),
        "timeline": [*begin, *moments],
        **facts,
    }


def lines(shown: dict[str, Any], *attempts: dict[str, Any], now: float = 60.0, width: int = 80) -> list[str]:
    story = Story(shown, RECEIVED + timedelta(seconds=now), {ID: attempts})
    return [line.plain for line in drawn(story, width)]


def text(*shown: Any, **choices: Any) -> str:
    return "\n".join(lines(*shown, **choices))


def unwrapped(*shown: Any, **choices: Any) -> str:
    return " ".join(text(*shown, **choices).split())


DELIVERED = receipt(
    delivery(status="delivered", attempts=1, acked_at=at(0.02), boundary="B4"),
    moments=(moment("B4", "acked", 21.6, "ledger"), moment("B4", "closed", 21.6)),
    state="closed",
    outcome="delivered",
)
WAITING = receipt(
    delivery(attempts=2, waiting_for="retry", next_attempt_at=at(64), last_error="the answer was 503"),
)
TRIED = (attempt(1, 0.01), attempt(2, 2.1, reason="the answer was 503"))
PAUSED = receipt(delivery(waiting_for="paused"))
DEAD = receipt(
    delivery(status="dead", attempts=1, reason="permanent_failure", last_error="the answer was 400"),
    moments=(moment("B3", "dead_lettered", 30.0, "ledger"),),
)
REDRIVEN = receipt(
    delivery(status="delivered", attempts=2, generation=1, boundary="B4"),
    moments=(
        moment("B3", "dead_lettered", 30.0, "ledger"),
        moment("B4", "redriven", 3_600_000.0, "ledger"),
        moment("B4", "acked", 3_600_020.0, "ledger"),
        moment("B4", "closed", 3_600_020.0),
    ),
    state="closed",
    outcome="delivered_after_redrive",
)


def test_a_delivered_event_is_drawn_as_one_line_of_boundaries_and_a_lane() -> None:
    assert lines(DELIVERED, attempt(1, 0.01, "success", status_code=200)) == [
        f"{RECEIPT}  invoice.paid  closed: delivered",
        "It has arrived: its consumer has acked it, the last 21.6 ms after the request.",
        "",
        "B1 Accept --------- B2 Durable -------- B3 Route ---------- B4 Prove",
        "* 0.2 ms            * 7.0 ms            * 7.0 ms            * 21.6 ms",
        "",
        "time since the request, log scale",
        "  |1 ms                                                     |10 ms",
        "  - on its way  : ack awaited  o 2xx  * acked",
        "",
        f"ledger  delivered  1 try  {ID}",
        "                                                   --------------------------o:*",
        "  o +19.9 ms    try 1  200  success  claimed for 0.5 ms  connect 1.5 ms",
        "    send 0.2 ms  first byte 7.5 ms  total 9.4 ms",
        "  * +21.6 ms    acked",
    ]


def test_what_waits_for_a_retry_says_why_and_when_it_is_tried_next() -> None:
    shown = unwrapped(WAITING, *TRIED)
    assert "It has not arrived at ledger: try 2 failed (the answer was 503); the next try is at" in shown
    assert f"{at(64)}, in 4.0 s." in shown


def test_the_wait_between_two_tries_is_told_with_its_length_and_its_cause() -> None:
    assert "after 2.1 s of backoff" in text(WAITING, *TRIED)


@pytest.mark.parametrize("gate", ["breaker", "rate_limit", "endpoint_concurrency", "retry_after"])
def test_a_wait_behind_a_gate_is_told_by_the_name_of_the_gate(gate: str) -> None:
    shown = lines(WAITING, TRIED[0], wait(1.5, 2.0, gate), TRIED[1])
    assert any(line.startswith("  ~") and line.endswith(f"waited 1.5 s: {gate}") for line in shown)


@pytest.mark.parametrize("gate", ["breaker", "rate_limit", "retry_after"])
def test_what_stands_before_a_gate_that_opens_says_when(gate: str) -> None:
    shown = unwrapped(receipt(delivery(waiting_for=gate, next_attempt_at=at(90))))
    assert f"It has not arrived at ledger: {gate} holds it" in shown
    assert f"the next try is at {at(90)}, in 30.0 s." in shown


def test_what_is_paused_says_that_a_person_has_to_resume_it() -> None:
    shown = unwrapped(PAUSED)
    assert "its endpoint is paused, with no next try until `relay endpoints resume ledger`." in shown
    assert "waits: paused no next try until it is resumed" in shown


def test_what_its_own_answer_disabled_is_told_from_what_a_person_paused() -> None:
    endpoint = {"state": "disabled", "state_reason": "it answered 410"}
    story = Story(PAUSED, RECEIVED, {}, {"ep_1": endpoint})
    shown = " ".join(" ".join(line.plain for line in drawn(story, 80)).split())
    assert "its endpoint is disabled (it answered 410), with no next try until" in shown


def test_a_dead_letter_names_its_boundary_its_reason_and_the_way_out() -> None:
    shown = unwrapped(DEAD, attempt(1, 0.01, "permanent", status_code=400))
    assert "it is a dead letter at B3 (permanent_failure) after try 1 failed (the answer was 400)" in shown
    assert f"`relay redrive {RECEIPT} --consumer ledger`" in shown
    assert "! 1 dead" in shown
    assert "dead because permanent_failure at B3" in shown


def test_a_redrive_begins_a_generation_on_the_same_lane() -> None:
    shown = text(REDRIVEN, attempt(1, 0.01), attempt(2, 3600.005, "success", generation=1, status_code=200))
    marks = [line.split()[0] for line in shown.splitlines() if line.startswith("  ") and " +" in line]
    assert marks == ["x", "!", "R", "o", "*"]
    assert "sent again: generation 1" in shown
    assert "It has arrived after a re-drive" in shown


def test_an_ack_that_is_awaited_is_no_try_under_way() -> None:
    shown = unwrapped(receipt(delivery(status="in_flight", attempts=1, waiting_for="ack")), attempt(1, 0.01, "success"))
    assert "its receiver took it and has not acked it yet" in shown
    assert "its ack is awaited" in shown


def test_an_event_that_nobody_wanted_stops_at_the_third_boundary() -> None:
    nobody = receipt(reason="no_route", timeline=[moment("B1", "checked", 0.1), moment("B2", "committed", 7.0)])
    shown = unwrapped(nobody)
    assert "no endpoint subscribes to invoice.paid: add one, then `relay redrive" in shown
    assert "! no_route" in shown


def test_what_was_given_up_is_not_said_to_have_arrived() -> None:
    given_up = receipt(
        delivery(status="dead", attempts=1, reason="exhausted", discarded_at=at(50)),
        state="closed",
        outcome="closed_incomplete",
        discarded=1,
    )
    assert "It has not arrived everywhere, and nothing more is sent: 1 of 1 given up." in unwrapped(given_up)


def test_of_several_that_miss_it_the_dead_one_is_told_and_when_another_is_tried() -> None:
    two = receipt(
        delivery(id="1", consumer="later", attempts=1, waiting_for="retry", next_attempt_at=at(70)),
        delivery(id="2", consumer="dead", status="dead", reason="exhausted"),
    )
    shown = unwrapped(two)
    assert "It has not arrived at 2 of 2 consumers" in shown
    assert f"; at later the next try is at {at(70)}, in 10.0 s." in shown


def test_a_thousand_consumers_are_some_lanes_and_a_count() -> None:
    many = [delivery(id=f"id-{number}", consumer=f"c{number}", status="delivered") for number in range(998)]
    many += [delivery(id="w", consumer="waits", waiting_for="retry", next_attempt_at=at(70))]
    many += [delivery(id="d", consumer="dies", status="dead", reason="exhausted")]
    shown = lines(receipt(*many))
    assert len(shown) < 100
    assert [line.split()[0] for line in shown if "  id-" in line or line.endswith(("  w", "  d"))][:2] == [
        "dies",
        "waits",
    ]
    assert shown[-1] == f"and {1000 - MOST_LANES} more consumers: {1000 - MOST_LANES} delivered"


def test_of_very_many_tries_the_first_and_the_last_are_told() -> None:
    shown = lines(WAITING, *(attempt(number, number / 1000) for number in range(1, 501)))
    tries = [line for line in shown if line.startswith("  x ")]
    assert len(tries) <= MOST_STEPS
    assert "  try 1 " in tries[0]
    assert "  try 500 " in tries[-1]
    assert any(line.strip() == f"... {501 - MOST_STEPS} more: relay deliveries {ID}" for line in unbroken(shown))


def unbroken(shown: list[str]) -> list[str]:
    """Lines that stand further in belong to the one before them."""
    whole: list[str] = []
    for line in shown:
        if line.startswith("    ") and whole:
            whole[-1] += " " + line.strip()
        else:
            whole.append(line)
    return whole


ODD = "\x1b[2Jcaf\u00e9\n\x9b31m\u202egnp"


def test_control_characters_of_names_and_reasons_are_shown_as_escapes() -> None:
    """C174, of the cases of the command line: what came from elsewhere is shown and never steers."""
    odd = receipt(
        delivery(consumer=ODD, attempts=1, waiting_for=ODD, last_error=ODD, next_attempt_at=at(64)),
        delivery(id="2", consumer=ODD, status="dead", reason=ODD, last_error=ODD),
        type=ODD,
    )
    shown = lines(odd, attempt(1, 0.01, reason=ODD, error_class=ODD, outcome_class=ODD))
    assert all(character.isprintable() for line in shown for character in line)
    assert str(words(ODD)) in "\n".join(shown)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shown", [DELIVERED, WAITING, PAUSED, DEAD, REDRIVEN])
def test_no_line_is_wider_than_the_terminal(shown: dict[str, Any], width: int) -> None:
    wide = [line for line in lines(shown, *TRIED, width=width) if len(line) > width]
    assert all(" " not in line.strip() for line in wide)


@pytest.mark.parametrize("shown", [DELIVERED, WAITING, PAUSED, DEAD, REDRIVEN])
def test_it_is_ascii_where_the_names_are(shown: dict[str, Any]) -> None:
    assert text(shown, *TRIED).isascii()


def test_a_pipe_gets_plain_lines() -> None:
    console = Console(width=80, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(Story(WAITING, RECEIVED, {ID: TRIED}), crop=False)
    assert "\x1b" not in capture.get()


def test_clocks_that_disagree_never_run_a_lane_backwards() -> None:
    late = receipt(delivery(status="delivered", attempts=1), moments=(moment("B4", "acked", 8.0, "ledger"),))
    shown = lines(late, attempt(1, -5.0, "success"))
    assert [line.split()[1] for line in shown if line.startswith(("  o +", "  * +"))] == ["+7.0", "+8.0"]
