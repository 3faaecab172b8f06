"""Claims about what `/verify` lets pass. The vendors' own libraries, and published examples, do the signing."""

import base64
import datetime as dt
import hashlib
import hmac
from uuid import UUID

import pytest
import standardwebhooks
import stripe
import svix
from hypothesis import given
from hypothesis import strategies as st

from relay.domain.endpoint import SignatureProfile
from relay.domain.secret import Secret
from relay.domain.signing import prepare
from relay.testkit.verification import RefusalReason, verify

NOW = 1_764_474_000.0
BODY = b'{"type":"order.paid","amount":4999}'
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(32)).decode()
DELIVERY = b"0197c0de-0197-7c0d-8197-c0de0197c0de"

Headers = dict[bytes, bytes]


def reason(
    headers: Headers, body: bytes = BODY, secrets: tuple[str, ...] = (SECRET,), now: float = NOW
) -> RefusalReason | None:
    refusal = verify(headers, body, [Secret(text) for text in secrets], now=now)
    return None if refusal is None else refusal.reason


def relay(*secrets: str, body: bytes = BODY, timestamp: int = int(NOW)) -> Headers:
    signed = b"%d." % timestamp + body
    signatures = [hmac.new(text.encode(), signed, hashlib.sha256).hexdigest() for text in secrets]
    return {
        b"relay-delivery-id": DELIVERY,
        b"relay-timestamp": b"%d" % timestamp,
        b"relay-signature": ",".join(f"v1={signature}" for signature in signatures).encode(),
    }


def stripe_signed(secret: str = SECRET, timestamp: int = int(NOW)) -> Headers:
    header = stripe.WebhookSignature.generate_signature_header(BODY.decode(), secret, timestamp)
    return {b"stripe-signature": header.encode()}


def standard(secret: str = SECRET, timestamp: int = int(NOW), message_id: str = "msg_1") -> Headers:
    moment = dt.datetime.fromtimestamp(timestamp, dt.UTC)
    signature = standardwebhooks.Webhook(secret).sign(message_id, moment, BODY.decode())
    return {
        b"webhook-id": message_id.encode(),
        b"webhook-timestamp": b"%d" % timestamp,
        b"webhook-signature": signature.encode(),
    }


def github(secret: str, body: bytes) -> Headers:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        b"x-github-event": b"push",
        b"x-github-delivery": DELIVERY,
        b"x-hub-signature-256": b"sha256=" + digest.encode(),
    }


def test_what_the_relay_profile_describes_passes() -> None:
    assert reason(relay(SECRET)) is None


def test_a_relay_signature_is_what_stripe_computes_over_the_same_text() -> None:
    header = stripe.WebhookSignature.generate_signature_header(BODY.decode(), SECRET, int(NOW))
    signature = header.partition(",")[2].encode()

    assert reason(relay(SECRET) | {b"relay-signature": signature}) is None


def test_what_stripe_signs_passes() -> None:
    assert reason(stripe_signed()) is None


def test_what_standardwebhooks_signs_passes() -> None:
    assert reason(standard()) is None


def test_what_svix_signs_passes() -> None:
    moment = dt.datetime.fromtimestamp(NOW, dt.UTC)
    signature = svix.Webhook(SECRET).sign("msg_1", moment, BODY.decode())

    assert reason(standard() | {b"webhook-signature": signature.encode()}) is None


def test_the_example_in_githubs_documentation_passes() -> None:
    headers = {
        b"x-github-event": b"push",
        b"x-github-delivery": DELIVERY,
        b"x-hub-signature-256": b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    }

    assert reason(headers, b"Hello, World!", ("It's a Secret to Everybody",)) is None


def test_the_example_of_standard_webhooks_passes() -> None:
    headers = {
        b"webhook-id": b"msg_p5jXN8AQM9LWM0D4loKWxJek",
        b"webhook-timestamp": b"1614265330",
        b"webhook-signature": b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }

    assert reason(headers, b'{"test": 2432232314}', ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",), 1_614_265_330) is None


@pytest.mark.parametrize("profile", [p for p in SignatureProfile if p is not SignatureProfile.NONE])
def test_what_relay_itself_signs_passes_under_either_secret_of_a_rotation(profile: SignatureProfile) -> None:
    signer = prepare(profile, (Secret(SECRET), Secret(OTHER)))
    headers = {
        name.lower().encode(): value.encode()
        for name, value in signer.headers(int(NOW), UUID(DELIVERY.decode()), "order.paid", BODY)
    } | {b"relay-delivery-id": DELIVERY}

    assert reason(headers, secrets=(SECRET,)) is None
    # GitHub's header has room for one signature: the newest.
    old = RefusalReason.SIGNATURE_MISMATCH if profile is SignatureProfile.GITHUB else None
    assert reason(headers, secrets=(OTHER,)) is old


SIGNED = {
    "relay": relay(SECRET),
    "stripe": stripe_signed(),
    "standard": standard(),
    "github": github(SECRET, BODY),
}
each_profile = pytest.mark.parametrize("profile", SIGNED)
each_dated_profile = pytest.mark.parametrize("profile", [name for name in SIGNED if name != "github"])


@each_profile
def test_another_secret_does_not_pass(profile: str) -> None:
    assert reason(SIGNED[profile], secrets=(OTHER,)) is RefusalReason.SIGNATURE_MISMATCH


@each_profile
def test_any_known_secret_will_do(profile: str) -> None:
    assert reason(SIGNED[profile], secrets=(OTHER, SECRET)) is None


@each_profile
def test_a_changed_body_does_not_pass(profile: str) -> None:
    assert reason(SIGNED[profile], BODY + b" ") is RefusalReason.SIGNATURE_MISMATCH


@each_profile
def test_nothing_passes_while_no_secret_is_known(profile: str) -> None:
    assert reason(SIGNED[profile], secrets=()) is RefusalReason.SECRET_MISSING


@each_profile
def test_every_header_of_a_profile_is_needed(profile: str) -> None:
    for missing in SIGNED[profile]:
        headers = {name: value for name, value in SIGNED[profile].items() if name != missing}
        assert reason(headers) in (RefusalReason.HEADER_MISSING, RefusalReason.SIGNATURE_MISSING), missing


@each_dated_profile
@pytest.mark.parametrize("off", [-301, 301])
def test_a_timestamp_beyond_the_window_is_stale_in_either_direction(profile: str, off: float) -> None:
    assert reason(SIGNED[profile], now=NOW + off) is RefusalReason.TIMESTAMP_STALE


@each_dated_profile
@pytest.mark.parametrize("off", [-300, 300])
def test_a_timestamp_at_the_edge_of_the_window_passes(profile: str, off: float) -> None:
    assert reason(SIGNED[profile], now=NOW + off) is None


@pytest.mark.parametrize("timestamp", [b"soon", b"-1", b"1764474000.5", b"1764474000 ", b"1" * 13])
def test_a_timestamp_that_is_no_unix_seconds_is_malformed(timestamp: bytes) -> None:
    for headers, name in ((relay(SECRET), b"relay-timestamp"), (standard(), b"webhook-timestamp")):
        assert reason(headers | {name: timestamp}) is RefusalReason.TIMESTAMP_MALFORMED


def test_a_request_without_any_signature_does_not_pass() -> None:
    assert reason({b"content-type": b"application/json"}) is RefusalReason.SIGNATURE_MISSING


def test_during_a_rotation_either_of_the_two_secrets_will_do() -> None:
    headers = relay(OTHER, SECRET)

    assert reason(headers, secrets=(SECRET,)) is None
    assert reason(headers, secrets=(OTHER,)) is None


def test_during_a_rotation_stripes_second_signature_will_do() -> None:
    first = stripe_signed(OTHER)[b"stripe-signature"]
    second = stripe_signed(SECRET)[b"stripe-signature"].partition(b",")[2]

    assert reason({b"stripe-signature": first + b"," + second}) is None


def test_during_a_rotation_the_second_standard_signature_will_do() -> None:
    both = standard(OTHER)[b"webhook-signature"] + b" " + standard(SECRET)[b"webhook-signature"]

    assert reason(standard() | {b"webhook-signature": both}) is None


def test_one_wrong_profile_spoils_a_right_one() -> None:
    assert reason(relay(SECRET) | standard(OTHER)) is RefusalReason.SIGNATURE_MISMATCH


@pytest.mark.parametrize(
    "signature",
    [
        b"v1=" + b"A" * 64,
        b"v1=" + b"a" * 63,
        b"v1=" + b"a" * 64 + b", v1=" + b"a" * 64,
        b"v1=" + b"a" * 64 + b",",
        b"a" * 64,
    ],
)
def test_a_relay_signature_has_one_exact_form(signature: bytes) -> None:
    assert reason(relay(SECRET) | {b"relay-signature": signature}) is RefusalReason.SIGNATURE_MALFORMED


@pytest.mark.parametrize("change", [(b" v1,", b"  v1,"), (b"v1,", b"v1"), (b"v1,", b" v1,")])
def test_a_standard_signature_that_the_libraries_trip_over_is_malformed(change: tuple[bytes, bytes]) -> None:
    both = standard(OTHER)[b"webhook-signature"] + b" " + standard(SECRET)[b"webhook-signature"]

    assert reason(standard() | {b"webhook-signature": both.replace(*change)}) is RefusalReason.SIGNATURE_MALFORMED


def test_a_standard_message_id_with_a_full_stop_is_malformed() -> None:
    assert reason(standard(message_id="msg.1")) is RefusalReason.SIGNATURE_MALFORMED


def test_stripes_header_takes_no_space_after_a_comma() -> None:
    header = stripe_signed()[b"stripe-signature"].replace(b",", b", ")

    assert reason({b"stripe-signature": header}) is RefusalReason.SIGNATURE_MALFORMED


def test_githubs_digest_has_to_be_in_lower_case() -> None:
    headers = github(SECRET, BODY)
    upper = headers[b"x-hub-signature-256"].upper().replace(b"SHA256", b"sha256")

    assert reason(headers | {b"x-hub-signature-256": upper}) is RefusalReason.SIGNATURE_MALFORMED


@pytest.mark.parametrize("text", ["whsec_not base64", "whsec_a-_b", "whsec_"])
def test_a_secret_that_is_no_standard_base64_is_named_as_the_trouble(text: str) -> None:
    assert reason(standard(), secrets=(text,)) is RefusalReason.SECRET_UNUSABLE


def test_the_same_text_is_another_key_in_the_standard_profile() -> None:
    as_text = hmac.new(SECRET.encode(), b"msg_1.%d." % int(NOW) + BODY, hashlib.sha256).digest()
    headers = standard() | {b"webhook-signature": b"v1," + base64.b64encode(as_text)}

    assert reason(headers) is RefusalReason.SIGNATURE_MISMATCH


def test_a_content_digest_that_is_not_the_bodys_does_not_pass() -> None:
    digest = base64.b64encode(hashlib.sha256(b"else").digest())

    assert reason(relay(SECRET) | {b"content-digest": b"sha-256=:" + digest + b":"}) is RefusalReason.DIGEST_MISMATCH


def test_a_right_content_digest_passes() -> None:
    digest = base64.b64encode(hashlib.sha256(BODY).digest())

    assert reason(relay(SECRET) | {b"content-digest": b"sha-256=:" + digest + b":"}) is None


@given(body=st.binary(max_size=300))
def test_any_bytes_can_be_signed_and_pass(body: bytes) -> None:
    assert reason(relay(SECRET, body=body), body) is None


@given(value=st.binary(max_size=200), name=st.sampled_from(sorted({n for h in SIGNED.values() for n in h})))
def test_no_header_value_makes_the_check_raise(value: bytes, name: bytes) -> None:
    everything = {n: v for headers in SIGNED.values() for n, v in headers.items()}

    assert reason(everything | {name: value}) is None or value != everything[name]
