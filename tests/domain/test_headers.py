"""A custom header never meets one that Relay sets, and nothing that a sender wrote can break a header."""

from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain import signing
from relay.domain.headers import (
    MAX_BYTES,
    MAX_HEADERS,
    InvalidHeaders,
    check_custom_headers,
    is_reserved,
    restored_headers,
    shown_headers,
    wire_id,
    wire_value,
)

RESERVED_EXAMPLES = """
    Host Connection Keep-Alive TE Trailer Transfer-Encoding Upgrade Proxy-Connection Proxy-Authorization HTTP2-Settings
    Content-Length Content-Type Content-Encoding Content-Digest Content-Anything Expect Accept-Encoding Cookie
    User-Agent traceparent tracestate Relay-Delivery-Id Relay-Signature Relay-Timestamp Relay-Hops Relay-Anything
    ce-id ce-type webhook-id webhook-timestamp webhook-signature Stripe-Signature X-Hub-Signature X-Hub-Signature-256
    X-GitHub-Event X-GitHub-Delivery
"""


def test_a_reserved_header_is_refused_in_any_case_and_named() -> None:
    """C05; that each goes out once: `test_http` of the transports."""
    for examples in (RESERVED_EXAMPLES, RESERVED_EXAMPLES.lower(), RESERVED_EXAMPLES.upper()):
        names = examples.split()
        with pytest.raises(InvalidHeaders, match="transfer-encoding, upgrade") as refused:
            check_custom_headers(dict.fromkeys(names, "x"))
        assert list(refused.value.reserved) == names


def test_every_header_that_a_signature_profile_sets_is_reserved() -> None:
    names = [
        value for name, value in vars(signing).items() if name.startswith(("RELAY_", "WEBHOOK_", "STRIPE_", "GITHUB_"))
    ]
    assert len(names) == 9
    assert [name for name in names if not is_reserved(name)] == []


def test_the_customers_own_headers_are_kept_in_order_and_as_written() -> None:
    own = {
        "Authorization": "Bearer a.b-c",
        "X-Api-Key": "k",
        "accept": "application/json",
        "X-Empty": "",
        "X-Tabs": "a\tb c",
    }
    assert check_custom_headers(own) == tuple(own.items())
    assert check_custom_headers({}) == ()


def test_a_name_that_is_no_token_is_refused() -> None:
    for name in [
        "",
        " ",
        "X Y",
        "X:",
        ":X",
        "Host\r\nX",
        "Host\n",
        "X\0",
        "Ünicode",
        "X(1)",
        "x" * 257,
        "\ud800",
        "relay-\n",
    ]:
        with pytest.raises(InvalidHeaders, match="is not a header name") as refused:
            check_custom_headers({name: "x"})
        assert refused.value.reserved == ()
        assert str(refused.value).isprintable()


def test_a_value_that_is_not_plain_is_refused() -> None:
    for value in ["a\r\nHost: b", "a\nb", "a\rb", "a\0b", " a", "a ", "\ta", "ä", "€", "a\x7f", "\ud800", "\n"]:
        with pytest.raises(InvalidHeaders, match=r"X-Key.* must be visible ASCII"):
            check_custom_headers({"X-Key": value})


def test_a_refusal_does_not_repeat_the_value_since_it_may_be_a_credential() -> None:
    with pytest.raises(InvalidHeaders) as refused:
        check_custom_headers({"Host": "hunter2", "X Y": "hunter2", "X-Key": "hunter2\n"})
    assert "hunter2" not in str(refused.value)


def test_a_value_is_hidden_where_its_name_says_that_it_opens_something() -> None:
    names = "Authorization X-Api-Key X-Auth-Token PRIVATE-TOKEN X-Session-Id X-Signature X-Password Client-Secret"
    assert set(shown_headers(dict.fromkeys(names.split(), "s3cret")).values()) == {"***"}
    plain = {"X-Team": "billing", "Accept": "application/json", "X-Empty-Token": ""}
    assert shown_headers(plain) == plain


def test_what_was_shown_can_be_written_back() -> None:
    known = {"Authorization": "Bearer x", "X-Team": "billing"}
    assert restored_headers(shown_headers(known), known) == known
    assert restored_headers({"AUTHORIZATION": "***"}, known) == {"AUTHORIZATION": "Bearer x"}
    assert restored_headers({"Authorization": "Bearer y", "X-Team": "***"}, known) == {
        "Authorization": "Bearer y",
        "X-Team": "***",
    }
    assert restored_headers({}, known) == {}


def test_stars_without_a_value_behind_them_are_refused() -> None:
    with pytest.raises(InvalidHeaders, match="X-Api-Key"):
        restored_headers({"X-Api-Key": "***"}, {"Authorization": "Bearer x"})


def test_the_same_name_in_different_case_is_refused() -> None:
    with pytest.raises(InvalidHeaders, match="x-a is given twice"):
        check_custom_headers({"X-A": "1", "x-a": "2"})


def test_count_and_size_are_bounded() -> None:
    full = {f"X-{number:02}": "v" for number in range(MAX_HEADERS)}
    assert len(check_custom_headers(full)) == MAX_HEADERS
    with pytest.raises(InvalidHeaders, match=f"at most {MAX_HEADERS} headers"):
        check_custom_headers({**full, "X-More": "v"})
    largest = "v" * (MAX_BYTES - len("X-A: \r\n"))
    assert check_custom_headers({"X-A": largest}) == (("X-A", largest),)
    with pytest.raises(InvalidHeaders, match=f"at most {MAX_BYTES} bytes"):
        check_custom_headers({"X-A": largest + "v"})


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(InvalidHeaders) as refused:
        check_custom_headers({"Host": "internal", "X Y": "1", "X-A": "1\n"})
    assert len(refused.value.faults) == 3


SENDERS_TEXT = st.one_of(st.text(max_size=30), st.text(st.characters(exclude_categories=()), max_size=30))


@settings(max_examples=40)
@given(SENDERS_TEXT)
def test_whatever_a_sender_wrote_is_plain_ascii_on_one_line(text: str) -> None:
    encoded, encoded_id = wire_value(text), wire_id(text)
    assert all(" " <= character <= "~" or character == "\t" for character in encoded)
    assert all("!" <= character <= "~" for character in encoded_id)


@settings(max_examples=40)
@given(st.text(st.characters(exclude_characters="%", exclude_categories=["Cs"]), max_size=30))
def test_an_encoded_text_decodes_to_what_the_sender_wrote(text: str) -> None:
    assert unquote(wire_value(text), errors="strict") == text
    assert unquote(wire_id(text), errors="strict") == text


def test_visible_ascii_travels_as_it_is() -> None:
    visible = "".join(map(chr, range(0x21, 0x7F)))
    assert wire_id(visible) == wire_value(visible) == visible
    assert wire_value("text/plain;\tcharset=utf-8") == "text/plain;\tcharset=utf-8"
    assert wire_value("a b") == "a b"


def test_everything_else_becomes_the_bytes_of_its_utf_8() -> None:
    assert wire_id("Euro €😀\r\n") == "Euro%20%E2%82%AC%F0%9F%98%80%0D%0A"
    assert wire_id("\ud83d") == "%ED%A0%BD"
