"""Claims about the record of what arrived."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from relay.testkit.arrivals import Arrival, ArrivalLog, Incoming, delivery_id_of

Lines = list[tuple[bytes, bytes]]


def add(log: ArrivalLog, delivery_id: str | None = None, *, body: bytes = b"", keep_body: bool = True) -> Arrival:
    headers = [] if delivery_id is None else [(b"relay-delivery-id", delivery_id.encode())]
    return log.add(
        Incoming(
            at=1.5,
            method="POST",
            path="/ok",
            query="",
            headers=headers,
            body=body,
            status=200,
            refusal=None,
            keep_body=keep_body,
        )
    )


def test_arrivals_are_numbered_from_one_in_order() -> None:
    log = ArrivalLog()
    add(log)
    add(log)

    assert [arrival.number for arrival in log.kept()] == [1, 2]


def test_an_arrival_bears_the_hash_and_length_of_its_body_although_the_body_is_not_kept() -> None:
    arrival = add(ArrivalLog(), body=b"\x00\xff", keep_body=False)

    assert (arrival.size, arrival.sha256, arrival.body) == (2, hashlib.sha256(b"\x00\xff").hexdigest(), None)


def test_each_return_of_a_delivery_is_counted() -> None:
    log = ArrivalLog()

    assert [add(log, "a").count, add(log, "b").count, add(log, "a").count] == [1, 1, 2]
    assert log.counts() == {"a": 2, "b": 1}


def test_the_latest_arrival_of_a_delivery_is_found() -> None:
    log = ArrivalLog()
    add(log, "a", body=b"first")
    second = add(log, "a", body=b"second")

    assert log.latest("a") is second


def test_past_the_bound_the_oldest_arrivals_go_and_are_counted() -> None:
    log = ArrivalLog(keep=3)
    for number in range(5):
        add(log, str(number))

    assert [arrival.delivery_id for arrival in log.kept()] == ["2", "3", "4"]
    assert (log.total, log.dropped) == (5, 2)


def test_an_arrival_that_went_is_not_found_but_still_counted() -> None:
    log = ArrivalLog(keep=1)
    add(log, "a")
    add(log, "b")

    assert log.latest("a") is None
    assert log.count("a") == 1


def test_the_bodies_kept_stay_within_their_bytes() -> None:
    log = ArrivalLog(keep_bytes=1_000)
    for _ in range(10):
        add(log, body=bytes(300))

    assert sum(len(arrival.body or b"") for arrival in log.kept()) == 900
    assert log.dropped == 7


def test_a_body_beyond_all_bytes_is_recorded_by_its_count_alone() -> None:
    log = ArrivalLog(keep_bytes=100)
    add(log, "a", body=bytes(101))

    assert (log.kept(), log.latest("a"), log.total, log.dropped, log.count("a")) == ([], None, 1, 1, 1)


def test_past_the_bound_the_id_that_was_not_seen_for_longest_is_forgotten_and_that_is_counted() -> None:
    log = ArrivalLog(keep_ids=2)
    for delivery_id in ("a", "b", "a", "c"):
        add(log, delivery_id)

    assert log.counts() == {"a": 2, "c": 1}
    assert log.forgotten_ids == 1


def test_after_clearing_numbers_and_counts_begin_anew() -> None:
    log = ArrivalLog(keep=1)
    add(log, "a")
    add(log, "a")
    log.note_incomplete()
    log.clear()

    assert (log.total, log.dropped, log.incomplete, log.kept(), log.counts()) == (0, 0, 0, [], {})
    assert add(log, "a").number == add(ArrivalLog(), "a").count == 1


def test_a_copy_of_the_record_does_not_change_with_later_arrivals() -> None:
    log = ArrivalLog()
    add(log)
    kept = log.kept()
    add(log)

    assert len(kept) == 1


def test_a_delivery_is_known_by_relays_header_before_the_profiles() -> None:
    headers = [(b"x-github-delivery", b"g"), (b"webhook-id", b"w"), (b"relay-delivery-id", b"r")]

    assert [delivery_id_of(headers[: 3 - left]) for left in range(3)] == ["r", "w", "g"]


def test_an_endless_id_is_none() -> None:
    assert delivery_id_of([(b"relay-delivery-id", b"x" * 201)]) is None


NAMES = st.from_regex(rb"[a-z][a-z0-9-]{0,20}", fullmatch=True)
VALUES = st.from_regex(rb"(?:[\x21-\x7e\x80-\xff](?:[\x20-\x7e\x80-\xff]{0,30}[\x21-\x7e])?)?", fullmatch=True)


@given(headers=st.lists(st.tuples(NAMES, VALUES), max_size=10))
def test_headers_are_kept_exactly_and_in_order(headers: Lines) -> None:
    arrival = ArrivalLog().add(
        Incoming(
            at=0.0, method="POST", path="/", query="", headers=headers, body=b"", status=None, refusal=None,
            keep_body=False,
        )
    )  # fmt: skip

    assert arrival.headers == tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)


def test_a_header_that_came_twice_is_joined() -> None:
    headers = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
    arrival = ArrivalLog().add(
        Incoming(
            at=0.0, method="POST", path="/", query="", headers=headers, body=b"", status=None, refusal=None,
            keep_body=False,
        )
    )  # fmt: skip

    assert (arrival.header("a"), arrival.header("b"), arrival.header("c")) == ("1, 3", "2", None)
