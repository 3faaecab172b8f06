"""An attempt continues its event's trace, and an invalid field never travels on."""

from relay.domain.trace import TRACE_ENTROPY_BYTES, TraceParent, next_traceparent, read_traceparent

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ENTROPY = bytes(range(1, TRACE_ENTROPY_BYTES + 1))
SPAN = "1112131415161718"


def test_only_the_known_flags_are_read() -> None:
    read = [read_traceparent(f"00-{TRACE}-{PARENT}-{flags}") for flags in ("00", "01", "02", "03", "ff", "fc")]
    assert read == [TraceParent(TRACE, PARENT, known) for known in (0, 1, 2, 3, 3, 0)]


def test_a_later_version_is_read_by_its_first_four_parts() -> None:
    expected = TraceParent(TRACE, PARENT, 1)
    assert read_traceparent(f"01-{TRACE}-{PARENT}-01") == expected
    assert read_traceparent(f"cc-{TRACE}-{PARENT}-01-what-the-future-brings") == expected


INVALID = [
    "",
    "00",
    f"ff-{TRACE}-{PARENT}-01",
    f"00-{'0' * 32}-{PARENT}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"00-{TRACE.upper()}-{PARENT}-01",
    f"00-{TRACE}-{PARENT}-01-more",
    f"00-{TRACE}-{PARENT}-01 ",
    f"00-{TRACE}-{PARENT}-01\n",
    f"00-{TRACE}-{PARENT}-1",
    f"01-{TRACE}-{PARENT}-01more",
    f"00-{TRACE[1:]}-{PARENT}-01",
    f"0x-{TRACE}-{PARENT}-01",
]


def test_an_invalid_field_is_ignored() -> None:
    assert [text for text in INVALID if read_traceparent(text) is not None] == []


def test_an_attempt_has_a_parent_id_of_its_own_in_the_events_trace() -> None:
    assert next_traceparent(TraceParent(TRACE, PARENT, 1), ENTROPY) == f"00-{TRACE}-{SPAN}-01"


def test_an_event_without_a_trace_starts_one_that_is_random_and_not_sampled() -> None:
    assert next_traceparent(None, ENTROPY) == f"00-{ENTROPY[:16].hex()}-{SPAN}-02"


def test_an_event_without_a_trace_starts_one_that_is_sampled_where_spans_are_made() -> None:
    assert next_traceparent(None, ENTROPY, roots_sampled=True) == f"00-{ENTROPY[:16].hex()}-{SPAN}-03"
    parent = TraceParent(TRACE, PARENT, 2)
    assert next_traceparent(parent, ENTROPY, roots_sampled=True) == f"00-{TRACE}-{SPAN}-02"


def test_a_trace_is_recorded_if_whoever_began_it_says_so() -> None:
    assert [TraceParent(TRACE, PARENT, flags).is_sampled for flags in range(4)] == [False, True, False, True]


def test_what_is_sent_can_be_read_again() -> None:
    for parent in (None, TraceParent(TRACE, PARENT, 3)):
        assert read_traceparent(next_traceparent(parent, ENTROPY)) is not None
