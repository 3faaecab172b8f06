"""The vendors' own libraries accept what Relay sends, as it is sent, and nothing else.

The requests come out of `build`, so that the headers of a profile and Relay's own are checked side by side.
"""

import hashlib
import hmac
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import standardwebhooks
import stripe
import svix.webhooks

from relay.domain.endpoint import Destination, SignatureProfile
from relay.domain.secret import Secret
from relay.domain.signing import new_secret
from relay.transports.http import build, prepare
from tests.transports.samples import CLAIMED, DESTINATION, ENTROPY

Receiver = Callable[[str, dict[str, str], bytes], None]

NEW, OLD, UNKNOWN = (new_secret(bytes([seed] * 32)) for seed in (1, 2, 3))
BODIES = [
    b'{"type":"invoice.paid","data":{"amount":1.0,"e":1E400,"big":12345678901234567890123,"dup":1,"dup":2}}',
    b'{\n  "esc": "\\u001B",\r\n  "sl": "\\/",\n  "u": "\\u00e9\xc3\xa9\xf0\x9f\x98\x80"\n}\n',
    b"{}",
]


def standard_webhooks(secret: str, headers: dict[str, str], body: bytes) -> None:
    """The reference library of Standard Webhooks."""
    standardwebhooks.Webhook(secret).verify(body, headers)


def svix_library(secret: str, headers: dict[str, str], body: bytes) -> None:
    """Svix's library, which takes the standard's headers too."""
    svix.webhooks.Webhook(secret).verify(body, headers)


def stripe_library(secret: str, headers: dict[str, str], body: bytes) -> None:
    """Stripe's library, with its own tolerance of 300 seconds."""
    stripe.WebhookSignature.verify_header(body, headers["Stripe-Signature"], secret, tolerance=300)


def stripe_library_on_relays_own_headers(secret: str, headers: dict[str, str], body: bytes) -> None:
    """Relay's own profile is Stripe's computation under other names, so Stripe's library can stand in."""
    header = f"t={headers['Relay-Timestamp']},{headers['Relay-Signature']}"
    stripe.WebhookSignature.verify_header(body, header, secret, tolerance=300)


def githubs_documented_check(secret: str, headers: dict[str, str], body: bytes) -> None:
    """The check that GitHub's documentation gives receivers."""
    expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected, headers["X-Hub-Signature-256"]):
        raise ValueError("Request signatures didn't match!")


RECEIVERS: list[tuple[SignatureProfile, Receiver]] = [
    (SignatureProfile.STANDARD, standard_webhooks),
    (SignatureProfile.STANDARD, svix_library),
    (SignatureProfile.STRIPE, stripe_library),
    (SignatureProfile.RELAY, stripe_library_on_relays_own_headers),
    (SignatureProfile.GITHUB, githubs_documented_check),
]
each_receiver = pytest.mark.parametrize(("profile", "verify"), RECEIVERS)
each_rotating_receiver = pytest.mark.parametrize(("profile", "verify"), RECEIVERS[:-1])


def _destination(profile: SignatureProfile) -> Destination:
    return replace(DESTINATION, signature=profile, secret=NEW, previous_secret=OLD)


def _sent(profile: SignatureProfile, body: bytes, *, rotating: bool = False, age: int = 0) -> dict[str, str]:
    digest = hashlib.sha256(body).digest()
    claimed = CLAIMED._replace(payload=body, payload_sha256=digest, sign_with_previous=rotating)
    ready = prepare(_destination(profile), user_agent="Relay", timeout_seconds=10.0)
    return dict(build(claimed, ready, timestamp=int(time.time()) - age, entropy=ENTROPY).headers)


@each_receiver
@pytest.mark.parametrize("body", BODIES)
def test_the_vendors_library_accepts_the_request(profile: SignatureProfile, verify: Receiver, body: bytes) -> None:
    verify(NEW.expose(), _sent(profile, body), body)


@each_receiver
def test_the_vendors_library_refuses_a_changed_body(profile: SignatureProfile, verify: Receiver) -> None:
    with pytest.raises(Exception, match=r"(?i)match"):
        verify(NEW.expose(), _sent(profile, BODIES[0]), BODIES[0].replace(b"1.0", b"1"))


@each_rotating_receiver
@pytest.mark.parametrize("secret", [NEW, OLD], ids=["new", "previous"])
def test_during_a_rotation_a_receiver_with_either_secret_accepts(
    profile: SignatureProfile, verify: Receiver, secret: Secret
) -> None:
    verify(secret.expose(), _sent(profile, BODIES[0], rotating=True), BODIES[0])


@each_rotating_receiver
def test_a_receiver_with_another_secret_refuses(profile: SignatureProfile, verify: Receiver) -> None:
    with pytest.raises(Exception, match=r"(?i)no (matching )?signatures? found"):
        verify(UNKNOWN.expose(), _sent(profile, BODIES[0], rotating=True), BODIES[0])


@each_rotating_receiver
def test_after_the_overlap_the_previous_secret_is_worth_nothing(profile: SignatureProfile, verify: Receiver) -> None:
    with pytest.raises(Exception, match=r"(?i)no (matching )?signatures? found"):
        verify(OLD.expose(), _sent(profile, BODIES[0]), BODIES[0])


@each_rotating_receiver
def test_a_request_kept_for_longer_than_the_tolerance_is_refused(profile: SignatureProfile, verify: Receiver) -> None:
    with pytest.raises(Exception, match=r"(?i)too old|tolerance"):
        verify(NEW.expose(), _sent(profile, BODIES[0], age=400), BODIES[0])


def test_github_names_the_event_and_the_delivery() -> None:
    headers = _sent(SignatureProfile.GITHUB, BODIES[0])
    assert (headers["X-GitHub-Event"], headers["X-GitHub-Delivery"]) == ("invoice.paid", str(CLAIMED.id))
