"""What an endpoint receives: the exact payload, and every header of the contract exactly once."""

import base64
import hashlib
from dataclasses import replace
from datetime import timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.delivery import ClaimedDelivery
from relay.domain.endpoint import Destination, SignatureProfile
from relay.domain.headers import is_reserved
from relay.domain.secret import Secret
from relay.domain.sending import OutboundRequest
from relay.domain.signing import InvalidSecret
from relay.transports.http import build, display_url, prepare
from tests.transports.samples import AT, BODY, CLAIMED, DESTINATION, ENTROPY

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def _request(claimed: ClaimedDelivery = CLAIMED, destination: Destination = DESTINATION) -> OutboundRequest:
    ready = prepare(destination, user_agent="Relay/1.2.3", timeout_seconds=10.0)
    return build(claimed, ready, timestamp=AT, entropy=ENTROPY)


def _headers(claimed: ClaimedDelivery = CLAIMED, destination: Destination = DESTINATION) -> dict[str, str]:
    headers = _request(claimed, destination).headers
    assert len({name.lower() for name, _ in headers}) == len(headers)
    return dict(headers)


def test_an_endpoint_receives_every_header_of_the_contract_once() -> None:
    headers = _headers()
    signature = headers.pop("Relay-Signature")
    assert headers == {
        "Content-Type": "application/json",
        "Relay-Timestamp": "1764480000",
        "Relay-Delivery-Id": "0197c0de-0000-7000-8000-000000000001",
        "Relay-Receipt-Id": "rcp_0197c0de000070008000000000000000",
        "Relay-Event-Id": "order-4711",
        "Relay-Event-Type": "invoice.paid",
        "Relay-Received-At": "2026-11-30T12:00:00.042Z",
        "Relay-Journal-Position": "p07:18442913",
        "Relay-Attempt": "3",
        "Relay-Generation": "1",
        "Relay-Hops": "3",
        "Content-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(BODY).digest()).decode()}:",
        "traceparent": "00-000102030405060708090a0b0c0d0e0f-1011121314151617-02",
        "User-Agent": "Relay/1.2.3",
        "Authorization": "Bearer a.b-c",
        "X-Api-Key": "k",
    }
    assert len(signature) == len("v1=") + 64


def test_the_body_is_the_payload_itself() -> None:
    assert _request().body is BODY


def test_only_the_relay_profile_has_relays_own_signature_headers() -> None:
    others = [profile for profile in SignatureProfile if profile is not SignatureProfile.RELAY]
    for profile in others:
        headers = _headers(destination=replace(DESTINATION, signature=profile))
        assert not {"Relay-Signature", "Relay-Timestamp"} & set(headers)
        assert headers["Relay-Delivery-Id"] == str(CLAIMED.id)


def test_every_header_but_the_customers_is_reserved_so_none_can_be_set_twice() -> None:
    forwarded = (("traceparent", TRACEPARENT), ("tracestate", "a=b"), ("ce-id", "1"))
    own = dict(DESTINATION.headers)
    for profile in SignatureProfile:
        headers = _headers(CLAIMED._replace(forwarded=forwarded), replace(DESTINATION, signature=profile))
        assert [name for name in headers if name not in own and not is_reserved(name)] == []


def test_a_rotation_signs_with_both_secrets_only_while_the_claim_says_so() -> None:
    alone = _headers()["Relay-Signature"]
    both = _headers(CLAIMED._replace(sign_with_previous=True))["Relay-Signature"]
    assert both.split(",")[0] == alone
    assert both.count("v1=") == 2


def test_a_claim_of_before_a_rotation_that_is_known_by_now_is_signed_with_both_secrets() -> None:
    """It cannot know of the previous secret, which is the only one that its receiver may have."""
    rotated = replace(DESTINATION, revision=CLAIMED.endpoint_revision + 1)
    both = _headers(CLAIMED._replace(sign_with_previous=True))["Relay-Signature"]
    assert _headers(CLAIMED, rotated)["Relay-Signature"] == both


def test_a_claim_that_asks_for_a_previous_secret_which_is_gone_gets_the_current_one() -> None:
    no_previous = replace(DESTINATION, previous_secret=None)
    rotating = _headers(CLAIMED._replace(sign_with_previous=True), no_previous)
    assert rotating["Relay-Signature"] == _headers()["Relay-Signature"]


def test_a_destination_whose_secret_does_not_suit_its_profile_is_not_prepared() -> None:
    unsuited = replace(DESTINATION, secret=Secret("sixteen letters!"), signature=SignatureProfile.STANDARD)
    with pytest.raises(InvalidSecret):
        prepare(unsuited, user_agent="Relay", timeout_seconds=10.0)


def test_an_endpoints_own_timeout_replaces_the_installations() -> None:
    assert _request().timeout_seconds == 10.0
    assert _request(destination=replace(DESTINATION, timeout_seconds=2.5)).timeout_seconds == 2.5


def test_an_endpoint_may_be_silent_for_the_time_that_it_names_itself() -> None:
    assert _request().silence_seconds == 0.0
    assert _request(destination=replace(DESTINATION, timeout_seconds=20.0)).silence_seconds == 20.0


def test_the_reception_time_is_shown_in_utc() -> None:
    elsewhere = CLAIMED.received_at.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert _headers(CLAIMED._replace(received_at=elsewhere))["Relay-Received-At"] == "2026-11-30T12:00:00.042Z"


def test_an_attempt_continues_its_events_trace_with_a_parent_id_of_its_own() -> None:
    forwarded = (("tracestate", "congo=t61rcWkgMzE"), ("traceparent", TRACEPARENT))
    headers = _headers(CLAIMED._replace(forwarded=forwarded))
    assert headers["traceparent"] == "00-0af7651916cd43dd8448eb211c80319c-1011121314151617-01"
    assert headers["tracestate"] == "congo=t61rcWkgMzE"


def test_without_a_valid_trace_a_new_one_starts_and_tracestate_is_dropped() -> None:
    for forwarded in ((("tracestate", "a=b"),), (("traceparent", "00-nonsense"), ("tracestate", "a=b"))):
        headers = _headers(CLAIMED._replace(forwarded=forwarded))
        assert headers["traceparent"].startswith("00-000102030405060708090a0b0c0d0e0f-")
        assert "tracestate" not in headers


def test_cloudevents_attributes_travel_on_and_other_forwarded_names_do_not() -> None:
    forwarded = (("ce-id", "1"), ("ce-source", "/a b%20c"), ("host", "internal"), ("content-length", "0"))
    headers = _headers(CLAIMED._replace(forwarded=forwarded))
    assert (headers["ce-id"], headers["ce-source"]) == ("1", "/a b%20c")
    assert not {"host", "content-length"} & set(headers)


@settings(max_examples=60)
@given(st.text(), st.text(), st.text())
def test_nothing_that_a_sender_wrote_can_break_a_header(event_id: str, content_type: str, attribute: str) -> None:
    claimed = CLAIMED._replace(event_id=event_id, content_type=content_type, forwarded=(("ce-subject", attribute),))
    values = "".join(value for _, value in _request(claimed).headers)
    assert all(" " <= character <= "~" or character == "\t" for character in values)


def test_an_event_id_outside_of_visible_ascii_is_percent_encoded() -> None:
    assert _headers(CLAIMED._replace(event_id="a b€\r\nHost: x"))["Relay-Event-Id"] == "a%20b%E2%82%AC%0D%0AHost:%20x"


def test_the_shown_url_hides_the_values_of_its_query() -> None:
    shown = {
        "https://example.com/hook": "https://example.com/hook",
        "https://example.com/hook?": "https://example.com/hook?",
        "https://example.com/hook?token=s3cret&n=1": "https://example.com/hook?token=***&n=***",
        "https://example.com/hook?s3cret": "https://example.com/hook?***",
        "https://example.com/?a=s3cret=s3cret&=s3cret&&b=": "https://example.com/?a=***&=***&***&b=***",
        "https://example.com/?a=s3?cret": "https://example.com/?a=***",
    }
    assert {url: display_url(url) for url in shown} == shown


def test_no_printable_form_of_a_request_or_a_prepared_destination_holds_a_credential() -> None:
    destination = replace(DESTINATION, url="https://example.com/hook?token=s3cret")
    ready = prepare(destination, user_agent="Relay", timeout_seconds=10.0)
    shown = f"{ready!r} {build(CLAIMED, ready, timestamp=AT, entropy=ENTROPY)!r}"
    assert not [word for word in ("s3cret", "a.b-c", DESTINATION.secret.expose()) if word in shown]
    assert "https://example.com/hook?token=***" in shown
