"""What a receiver repeats of our credentials is not kept, in whatever part of its answer."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.attempt import snippet_text
from relay.domain.endpoint import Destination, SignatureProfile
from relay.domain.secret import Secret
from relay.domain.sending import ErrorClass, SendFacts
from relay.transports.hiding import LEAST_CUT, Hidden
from relay.transports.http import build, prepare
from tests.transports.samples import AT, CLAIMED, DESTINATION, ENTROPY

TOKEN, PASSWORD = "t0ken-of-the-url", "p%40ssw0rd-of-the-url"
BEARER, BASIC, API_KEY = "bearer.of-the-header", "dXNlcjpvcGVuIHNlc2FtZQ==", "key-of-the-header"
CAREFUL = replace(
    DESTINATION,
    url=f"https://example.com/hook?token={TOKEN}&p={PASSWORD}&v=1",
    headers=(("Authorization", f"Bearer {BEARER}"), ("X-Other", f"Basic {BASIC}"), ("X-Api-Key", API_KEY)),
)
PREVIOUS = DESTINATION.previous_secret
assert PREVIOUS is not None
VALUES = [
    TOKEN,
    PASSWORD,
    "p@ssw0rd-of-the-url",
    BEARER,
    BASIC,
    API_KEY,
    DESTINATION.secret.expose(),
    PREVIOUS.expose(),
]


def read(body: bytes, destination: Destination = CAREFUL) -> SendFacts:
    ready = prepare(destination, user_agent="Relay/1.2.3", timeout_seconds=10.0)
    return ready.read(SendFacts(500, snippet=body))


@pytest.mark.parametrize("value", VALUES)
def test_an_answer_that_repeats_a_credential_is_kept_without_it(value: str) -> None:
    echo = f"bad request: {value} ({value}): what is {value}".encode()
    assert read(echo).snippet == b"bad request: *** (***): what is ***"


@pytest.mark.parametrize("value", VALUES)
def test_a_credential_that_is_cut_off_at_the_end_is_not_kept_either(value: str) -> None:
    for length in range(LEAST_CUT, len(value)):
        assert read(b"who is " + value[:length].encode()).snippet == b"who is ***"


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_a_credential_with_nul_between_its_letters_is_not_kept(value: str, encoding: str) -> None:
    """The stored text is without NUL, so what a machine answers in UTF-16 is plain there."""
    for echo in (f"who is {value}?", f"who is {value[:-1]}"):
        kept = snippet_text(read(echo.encode(encoding)).snippet)
        assert kept.removesuffix("?") == "who is ***"


@pytest.mark.parametrize("profile", [each for each in SignatureProfile if each is not SignatureProfile.NONE])
def test_an_answer_that_repeats_the_whole_request_is_kept_without_what_makes_it_repeatable(
    profile: SignatureProfile,
) -> None:
    destination = replace(CAREFUL, signature=profile)
    ready = prepare(destination, user_agent="Relay/1.2.3", timeout_seconds=10.0)
    request = build(CLAIMED._replace(sign_with_previous=True), ready, timestamp=AT, entropy=ENTROPY)
    unsigned = build(CLAIMED, prepare(replace(destination, signature=SignatureProfile.NONE), user_agent="Relay/1.2.3",
                                      timeout_seconds=10.0), timestamp=AT, entropy=ENTROPY)  # fmt: skip
    echo = "".join(f"{name}: {value}\n" for name, value in request.headers)
    kept = ready.read(SendFacts(200, snippet=echo.encode())).snippet.decode()
    assert not [value for value in VALUES if value in kept]
    signed = dict(set(request.headers) - set(unsigned.headers))
    (signature,) = [value for name, value in signed.items() if "signature" in name.lower()]
    pieces = signature.replace(" ", ",").split(",")
    assert not [piece for piece in pieces if len(piece) > 40 and piece in kept]
    assert "Relay-Event-Type: invoice.paid" in kept


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.slack.com/services/T000/B000/t0ken-of-the-path",
        "https://discord.com/api/webhooks/123456/t0ken-of-the-path?wait=true",
        "https://api.telegram.org/bot123456:t0ken-of-the-path/sendMessage",
    ],
)
def test_a_token_in_the_path_of_a_well_known_service_is_shown_nowhere(url: str) -> None:
    destination = replace(CAREFUL, url=url)
    made = prepare(destination, user_agent="", timeout_seconds=10.0)
    assert "t0ken" not in made.display_url
    assert made.display_url.startswith(url.partition("t0ken")[0])
    assert read(f"no such place: {url}".encode(), destination).snippet.startswith(b"no such place: https://")
    assert b"t0ken" not in read(f"no such place: {url}".encode(), destination).snippet


@pytest.mark.parametrize(
    "signature", ["v1=" + "0a" * 32, "v1," + "aB3+" * 10 + "/x9=", "sha256=" + "f1" * 32, "t=1,v1=" + "9" * 64]
)
def test_a_signature_that_is_cut_off_at_the_end_is_not_kept_either(signature: str) -> None:
    """What is missing of it could be guessed."""
    prefix = max(signature.find(each) + len(each) for each in ("v1=", "v1,", "sha256=") if each in signature)
    for length in range(prefix + 8, len(signature) + 1):
        assert read(f"got {signature[:length]}".encode()).snippet == f"got {signature[:prefix]}***".encode()


def test_an_answer_without_them_stays_as_it_came() -> None:
    ordinary = [b"", b"ok", b"\xff\xfe", b'{"v":1,"error":"Bearer token expected"}', b"v1=abc sha256=", b"x" * 4096]
    for body in ordinary:
        facts = SendFacts(500, snippet=body)
        assert prepare(CAREFUL, user_agent="", timeout_seconds=10.0).read(facts) is facts


def test_short_words_of_headers_and_queries_are_no_credentials() -> None:
    destination = replace(CAREFUL, url="https://example.com/?v=1&mode=test", headers=(("X-Env", "prod"),))
    echo = b"v=1, mode=test: not in production"
    assert read(echo, destination).snippet == echo


def test_without_an_answer_the_facts_stay_what_the_sender_says() -> None:
    facts = SendFacts(error_class=ErrorClass.CONNECT_REFUSED, detail="refused")
    assert prepare(CAREFUL, user_agent="", timeout_seconds=10.0).read(facts) is facts


ALPHABET = st.text("ab", min_size=0, max_size=40)


@settings(max_examples=300)
@given(ALPHABET, st.text("ab", min_size=LEAST_CUT + 1, max_size=20))
def test_whatever_comes_back_no_value_is_left_whole_or_cut(body: str, value: str) -> None:
    kept = Hidden([value]).taken_out_of(SendFacts(500, snippet=body.encode(), detail=body))
    assert value.encode() not in kept.snippet
    assert value not in kept.detail
    assert not [cut for cut in range(LEAST_CUT, len(value)) if kept.snippet.endswith(value[:cut].encode())]


def test_what_hides_values_does_not_print_them() -> None:
    assert "a-credential" not in f"{Hidden(['a-credential'])!r}"


def test_a_secret_is_not_printed_with_its_destination() -> None:
    destination = replace(CAREFUL, secret=Secret("whsec_" + "S" * 43 + "="))
    assert "SSSS" not in repr(prepare(destination, user_agent="", timeout_seconds=10.0))
