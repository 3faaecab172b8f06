"""Claims about what each mode decides, without a connection."""

import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.testkit.modes import (
    LARGEST_BODY_KB,
    LARGEST_BOMB_MB,
    LONGEST_WAIT_MS,
    MODES,
    AckLater,
    Answer,
    BadOption,
    Bomb,
    Flood,
    Hang,
    Later,
    ModeRequest,
    Reply,
    Reset,
    Trickle,
    plan,
)
from relay.testkit.verification import Refusal, RefusalReason

RECEIPT = "rcp_0197c0de01977c0d8197c0de0197c0de"
DELIVERY = "0197c0de-0197-7c0d-8197-c0de00000001"


def decide(
    path: str,
    query: dict[str, str] | None = None,
    *,
    visit: int = 1,
    headers: dict[bytes, bytes] | None = None,
    refusal: Callable[[], Refusal | None] = lambda: None,
) -> Reply:
    mode, *rest = path.strip("/").split("/")
    reply = plan(mode, ModeRequest(path, tuple(rest), query or {}, headers or {}, visit, refusal))
    assert reply is not None
    return reply


def statuses(path: str, visits: int, query: dict[str, str] | None = None) -> list[int | None]:
    return [decide(path, query, visit=visit).status for visit in range(1, visits + 1)]


def test_an_unknown_mode_has_no_reply() -> None:
    assert plan("no-such", ModeRequest("/no-such", (), {}, {}, 1, lambda: None)) is None


def test_ok_is_200_on_every_path_below_it() -> None:
    assert decide("/ok").status == decide("/ok/ledger-writer").status == 200


@pytest.mark.parametrize("code", [200, 204, 301, 410, 429, 503, 599])
def test_a_status_can_be_asked_for(code: int) -> None:
    assert decide(f"/status/{code}/any/where").status == code


@pytest.mark.parametrize("path", ["/status", "/status/100", "/status/600", "/status/abc", "/status/2000"])
def test_what_is_no_final_status_is_refused(path: str) -> None:
    with pytest.raises(BadOption):
        decide(path)


@pytest.mark.parametrize("code", [204, 205, 304])
def test_a_status_that_has_no_body_gets_none(code: int) -> None:
    assert decide(f"/status/{code}") == Answer(code, ())


def test_verify_says_why_it_refuses() -> None:
    reply = decide("/verify", refusal=lambda: Refusal(RefusalReason.TIMESTAMP_STALE, "301 s old"))

    assert isinstance(reply, Answer)
    assert reply.status == 401
    assert json.loads(reply.body)["code"] == "timestamp_stale"


def test_only_verify_looks_at_signatures() -> None:
    def never() -> Refusal | None:
        raise AssertionError

    assert decide("/ok", refusal=never).status == 200


def test_toggle_is_up_and_down_in_turn() -> None:
    assert statuses("/toggle", 4) == [200, 500, 200, 500]


def test_toggle_stays_as_long_as_it_is_told() -> None:
    assert statuses("/toggle", 7, {"every": "3"}) == [200, 200, 200, 500, 500, 500, 200]


def test_flaky_fails_the_same_requests_each_time() -> None:
    assert statuses("/flaky", 50, {"seed": "a"}) == statuses("/flaky", 50, {"seed": "a"})


def test_flaky_fails_others_with_another_seed_or_at_another_path() -> None:
    once = statuses("/flaky", 50, {"seed": "a"})

    assert once != statuses("/flaky", 50, {"seed": "b"})
    assert once != statuses("/flaky/other", 50, {"seed": "a"})


@pytest.mark.parametrize(("pct", "least", "most"), [("0", 0, 0), ("10", 60, 140), ("100", 1000, 1000)])
def test_flaky_fails_its_share(pct: str, least: int, most: int) -> None:
    assert least <= statuses("/flaky", 1000, {"pct": pct}).count(500) <= most


def test_slow_waits_in_milliseconds() -> None:
    reply = decide("/slow", {"ms": "250"})

    assert isinstance(reply, Later)
    assert (reply.seconds, reply.status) == (0.25, 200)


@pytest.mark.parametrize("value", ["7", "Wed, 21 Oct 2026 07:28:00 GMT", "-1", "1.5", "soon", ""])
def test_retry_after_is_sent_as_it_is_given(value: str) -> None:
    reply = decide("/429", {"retry_after": value})

    assert isinstance(reply, Answer)
    assert (b"retry-after", value.encode()) in reply.headers


@pytest.mark.parametrize("value", ["1\r\nset-cookie: a", "1\n", "é", " 1"])
def test_retry_after_cannot_break_out_of_its_header(value: str) -> None:
    with pytest.raises(BadOption):
        decide("/429", {"retry_after": value})


def test_redirect_escapes_what_could_break_out_of_its_header() -> None:
    reply = decide("/redirect", {"to": "http://127.0.0.1:9/a?b=c\r\nset-cookie: d"})

    assert isinstance(reply, Answer)
    assert dict(reply.headers)[b"location"] == b"http://127.0.0.1:9/a?b=c%0D%0Aset-cookie:%20d"


def test_redirect_redirects_with_the_status_that_is_asked_for() -> None:
    assert (decide("/redirect").status, decide("/redirect", {"status": "308"}).status) == (302, 308)


def test_redirect_is_no_other_status() -> None:
    with pytest.raises(BadOption):
        decide("/redirect", {"status": "200"})


def test_the_modes_that_are_no_ordinary_answer() -> None:
    assert decide("/bigbody", {"kb": "3"}) == Flood(200, 3072)
    assert decide("/trickle", {"ms": "20"}) == Trickle(200, 0.02)
    assert decide("/gzipbomb", {"mb": "10"}) == Bomb(10)
    assert decide("/hang") == Hang()
    assert decide("/reset") == Reset(200)
    assert decide("/reset", {"at": "start"}) == Reset(None)


def test_an_ack_is_for_the_delivery_that_came() -> None:
    headers = {b"relay-receipt-id": RECEIPT.encode(), b"relay-delivery-id": DELIVERY.encode()}

    assert decide("/ack-later", {"ms": "5"}, headers=headers) == AckLater(0.005, RECEIPT, DELIVERY)


@pytest.mark.parametrize(
    ("receipt", "delivery"), [("", DELIVERY), (RECEIPT, ""), ("../../v1/keys", DELIVERY), (RECEIPT, "not a uuid")]
)
def test_an_ack_needs_both_ids_whole(receipt: str, delivery: str) -> None:
    headers = {b"relay-receipt-id": receipt.encode(), b"relay-delivery-id": delivery.encode()}

    with pytest.raises(BadOption):
        decide("/ack-later", headers=headers)


BOUNDED = [
    ("/slow", "ms", 0, LONGEST_WAIT_MS),
    ("/ack-later", "ms", 0, LONGEST_WAIT_MS),
    ("/trickle", "ms", 1, LONGEST_WAIT_MS),
    ("/bigbody", "kb", 0, LARGEST_BODY_KB),
    ("/gzipbomb", "mb", 1, LARGEST_BOMB_MB),
    ("/flaky", "pct", 0, 100),
    ("/toggle", "every", 1, 1_000_000),
    ("/slow", "status", 200, 599),
]
ACKABLE = {b"relay-receipt-id": RECEIPT.encode(), b"relay-delivery-id": DELIVERY.encode()}


@pytest.mark.parametrize(("path", "option", "least", "most"), BOUNDED)
def test_every_number_has_bounds(path: str, option: str, least: int, most: int) -> None:
    for inside in (least, most):
        decide(path, {option: str(inside)}, headers=ACKABLE)
    for outside in (str(least - 1), str(most + 1), "nan", "inf", "x", ""):
        with pytest.raises(BadOption):
            decide(path, {option: outside}, headers=ACKABLE)


@given(
    mode=st.sampled_from(sorted(MODES)),
    rest=st.lists(st.text(max_size=5), max_size=2),
    query=st.dictionaries(
        st.sampled_from(["ms", "pct", "kb", "mb", "to", "status", "retry_after", "every", "at", "seed"]), st.text()
    ),
)
def test_whatever_is_asked_a_mode_decides_or_refuses_the_option(
    mode: str, rest: list[str], query: dict[str, str]
) -> None:
    request = ModeRequest(f"/{mode}", tuple(rest), query, ACKABLE, 1, lambda: None)
    status: int | None = 400
    with suppress(BadOption):
        reply = plan(mode, request)
        assert reply is not None
        status = reply.status
    assert status is None or 200 <= status <= 599
