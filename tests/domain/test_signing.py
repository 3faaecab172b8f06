"""Signatures that receivers' own libraries can check, and secrets that cannot fail at send.

The vendors' libraries themselves verify whole requests in `tests/transports`.
"""

import base64
import hmac
import itertools
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relay.domain.endpoint import SignatureProfile
from relay.domain.secret import Secret
from relay.domain.signing import InvalidSecret, Signer, check_secret, new_secret, prepare

DELIVERY = UUID("0197c0de-0000-7000-8000-000000000001")
AT = 1_614_265_330
BODY = b'{"test": 2432232314}'
NEW, OLD = new_secret(bytes(range(32))), new_secret(bytes(range(1, 33)))
SIGNING = [profile for profile in SignatureProfile if profile is not SignatureProfile.NONE]
TEXT_PROFILES = [profile for profile in SignatureProfile if profile is not SignatureProfile.STANDARD]


class MessageId(UUID):
    """An id whose text is another system's message id, for answers that are known for such ids only."""

    def __str__(self) -> str:
        return "msg_p5jXN8AQM9LWM0D4loKWxJek"


def _headers(signer: Signer, body: bytes = BODY) -> dict[str, str]:
    return dict(signer.headers(AT, DELIVERY, "invoice.paid", body))


def _sign(profile: SignatureProfile, *secrets: Secret, body: bytes = BODY) -> dict[str, str]:
    return _headers(prepare(profile, secrets), body)


def _hex(secret: Secret, signed: bytes) -> str:
    return hmac.digest(secret.expose().encode(), signed, "sha256").hex()


def test_standard_gives_the_known_answer_of_the_reference_libraries() -> None:
    signer = prepare(SignatureProfile.STANDARD, (Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),))
    assert dict(signer.headers(AT, MessageId(int=0), "any", BODY)) == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_github_gives_the_known_answer_of_its_documentation() -> None:
    assert _sign(SignatureProfile.GITHUB, Secret("It's a Secret to Everybody"), body=b"Hello, World!") == {
        "X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        "X-GitHub-Event": "invoice.paid",
        "X-GitHub-Delivery": "0197c0de-0000-7000-8000-000000000001",
    }


def test_relay_signs_the_time_and_the_body_with_the_whole_secret_text() -> None:
    signature = _hex(NEW, b"1614265330." + BODY)
    assert _sign(SignatureProfile.RELAY, NEW) == {"Relay-Timestamp": "1614265330", "Relay-Signature": f"v1={signature}"}


def test_relay_signs_with_both_secrets_while_an_overlap_runs() -> None:
    new, old = (_hex(secret, b"1614265330." + BODY) for secret in (NEW, OLD))
    assert _sign(SignatureProfile.RELAY, NEW, OLD)["Relay-Signature"] == f"v1={new},v1={old}"


def test_stripe_carries_time_and_both_signatures_in_one_header_without_spaces() -> None:
    new, old = (_hex(secret, b"1614265330." + BODY) for secret in (NEW, OLD))
    assert _sign(SignatureProfile.STRIPE, NEW, OLD) == {"Stripe-Signature": f"t=1614265330,v1={new},v1={old}"}


def test_standard_puts_exactly_one_space_between_two_signatures() -> None:
    both = _sign(SignatureProfile.STANDARD, NEW, OLD)["webhook-signature"]
    alone = [_sign(SignatureProfile.STANDARD, secret)["webhook-signature"] for secret in (NEW, OLD)]
    assert both == " ".join(alone)


def test_github_has_room_for_the_newest_secret_only() -> None:
    assert _sign(SignatureProfile.GITHUB, NEW, OLD) == _sign(SignatureProfile.GITHUB, NEW)


def test_the_profile_none_adds_nothing_and_needs_no_secret() -> None:
    assert prepare(SignatureProfile.NONE, ()).headers(AT, DELIVERY, "invoice.paid", BODY) == ()


def test_a_profile_that_signs_is_not_prepared_without_a_secret() -> None:
    for profile in SIGNING:
        with pytest.raises(ValueError, match="needs a secret"):
            prepare(profile, ())


def test_one_flipped_bit_of_the_body_changes_the_signature() -> None:
    signers = [prepare(profile, (NEW,)) for profile in SIGNING]
    assert [signer.profile for signer in signers if _headers(signer, b"\x00") == _headers(signer, b"\x01")] == []


@settings(max_examples=30)
@given(st.text("ab~ ", min_size=1, max_size=200), st.binary(max_size=300))
@example("k" * 64, b"a key of exactly one block of the hash")
@example("k" * 65, b"a longer one, which HMAC hashes first")
def test_the_prepared_key_gives_what_hmac_gives(text: str, body: bytes) -> None:
    signature = hmac.digest(text.encode(), body, "sha256").hex()
    assert _sign(SignatureProfile.GITHUB, Secret(text), body=body)["X-Hub-Signature-256"] == f"sha256={signature}"


def test_no_printable_form_of_a_signer_shows_its_secret() -> None:
    shown = [f"{signer!r} {signer}" for signer in (prepare(profile, (NEW, OLD)) for profile in SIGNING)]
    assert [text for text in shown if NEW.expose() in text or "_Key" in text] == []


def test_a_new_secret_suits_every_profile_and_decodes_to_its_entropy() -> None:
    entropy = bytes(range(100, 132))
    secret = new_secret(entropy)
    assert [check_secret(profile, secret.expose()) for profile in SignatureProfile] == [secret] * 5
    assert base64.b64decode(secret.expose().removeprefix("whsec_")) == entropy


def test_a_new_secret_takes_all_its_entropy_or_none() -> None:
    with pytest.raises(ValueError, match="32 random bytes"):
        new_secret(bytes(31))


def _whsec(key: bytes) -> str:
    return "whsec_" + base64.b64encode(key).decode()


def test_standard_takes_24_to_64_bytes_in_base64() -> None:
    texts = [_whsec(b"\xfb" * size) for size in (24, 25, 32, 64)]
    assert [check_secret(SignatureProfile.STANDARD, text).expose() for text in texts] == texts


NO_STANDARD_SECRET = {
    base64.b64encode(bytes(24)).decode(): "starts with whsec_",
    "WHSEC_" + base64.b64encode(bytes(24)).decode(): "starts with whsec_",
    "v1," + _whsec(bytes(24)): "leave out the v1,",
    "whsec_" + base64.urlsafe_b64encode(b"\xfb" * 24).decode(): "standard alphabet",
    _whsec(bytes(32)).rstrip("="): "padded",
    _whsec(bytes(32)) + "==": "padded",
    _whsec(bytes(32))[:-2] + "B=": "standard alphabet",  # bits that no decoder keeps
    _whsec(bytes(30))[:20] + " " + _whsec(bytes(30))[20:]: "standard alphabet",
    "whsec_this is no base64": "standard alphabet",
    _whsec(bytes(23)): "24 to 64",
    _whsec(bytes(65)): "24 to 64",
}

NO_SECRET = [
    *(
        "",
        "x",
        "fifteen-letters",
        "x" * 257,
        "x" * 10_240,
        "pässword-of-some-length",
        "sixteen letters\n",
        " sixteen-letters",
    ),
    *("sixteen-letters ", "sixteen\tletters-and", "sixteen\0letters-and", "\ud800sixteen-letters-and"),
]


def test_a_secret_that_the_standard_library_would_read_otherwise_is_refused_with_what_to_do() -> None:
    for text, advice in NO_STANDARD_SECRET.items():
        with pytest.raises(InvalidSecret, match=advice) as refused:
            check_secret(SignatureProfile.STANDARD, text)
        assert text not in str(refused.value)


def test_standard_secrets_are_checked_when_they_are_prepared_too() -> None:
    with pytest.raises(InvalidSecret):
        prepare(SignatureProfile.STANDARD, (Secret("not of that form at all"),))


def test_a_secret_that_is_short_endless_or_not_plain_text_is_refused_by_every_profile() -> None:
    for profile, text in itertools.product(SignatureProfile, NO_SECRET):
        with pytest.raises(InvalidSecret, match="16 to 256 printable ASCII"):
            check_secret(profile, text)


def test_a_secret_used_as_text_may_be_any_line_of_ascii() -> None:
    texts = [
        "It's a Secret to Everybody",
        "whsec_test_secret",
        "x" * 16,
        "~" * 256,
        base64.b64encode(bytes(24)).decode(),
    ]
    for profile, text in itertools.product(TEXT_PROFILES, texts):
        assert check_secret(profile, text).expose() == text
