"""A url has one reading, or it is refused: no spelling of a host reaches the resolver in a second meaning."""

from urllib.parse import urlsplit

from hypothesis import example, given, settings
from hypothesis import strategies as st

from relay.domain.refusal import Refusal
from relay.domain.target import MAX_URL_CHARACTERS, Target, read_target
from tests.support.odd_urls import REFUSED, TAKEN


def test_a_spelling_that_two_parsers_could_read_differently_is_refused_with_its_reason() -> None:
    """C21, C45."""
    read = {url: read_target(url) for url in REFUSED}
    assert {
        url: reading.reason if isinstance(reading, Refusal) else reading for url, reading in read.items()
    } == REFUSED
    assert len(REFUSED) > 60


def test_every_refusal_says_what_to_do() -> None:
    refusals = [reading for url in REFUSED if isinstance(reading := read_target(url), Refusal)]
    assert [refusal for refusal in refusals if len(refusal.detail.split()) < 5] == []


def test_an_accepted_url_is_brought_to_its_one_normal_form() -> None:
    read = {url: read_target(url) for url in TAKEN}
    assert {url: reading.url if isinstance(reading, Target) else reading for url, reading in read.items()} == TAKEN


def test_a_target_names_what_to_dial_and_what_to_ask_for() -> None:
    target = read_target("HTTPS://[2606:4700::ABCD]:8443/hook?x=1")
    assert isinstance(target, Target)
    assert (target.scheme, target.host, target.port, target.path) == ("https", "2606:4700::abcd", 8443, "/hook?x=1")
    assert str(target.address) == target.host


def test_the_longest_name_and_url_are_taken() -> None:
    host = ".".join(["a" * 63] * 3 + ["b" * 61])
    url = f"https://{host}/"
    longest = url + "p" * (MAX_URL_CHARACTERS - len(url))
    target = read_target(longest)
    assert isinstance(target, Target)
    assert (len(target.host), target.url) == (253, longest)


PIECES = st.sampled_from(
    [
        *(
            "http",
            "https",
            ":",
            "://",
            "/",
            "//",
            "?",
            "#",
            "@",
            "[",
            "]",
            "::1",
            "%",
            "%2e",
            "..",
            ".",
            "\\",
            "127",
            "0x7f",
        ),
        *(
            "example",
            "localhost",
            "xn--",
            "bücher",
            "1",
            "\uff10",
            "ⓛ",
            "\u3002",
            "\n",
            "\t",
            " ",
            "&",
            "=",
            "-",
            "_",
            ":443",
        ),
    ]
)
URL_LIKE = st.one_of(
    st.text(max_size=12),
    st.lists(PIECES, max_size=8).map("".join),
    st.lists(PIECES, max_size=6).map(lambda pieces: "https://" + "".join(pieces)),
)


@settings(max_examples=150)
@example("https://example.com/")
@given(URL_LIKE)
def test_reading_never_raises_and_other_parsers_see_the_same_host_port_and_path(text: str) -> None:
    target = read_target(text)
    if isinstance(target, Target):
        assert read_target(target.url) == target
        assert target.url.isascii()
        seen = urlsplit(target.url)
        assert (seen.scheme, seen.hostname, seen.username, seen.fragment) == (target.scheme, target.host, None, "")
        assert seen.port == target.port or (seen.port is None and target.port in {80, 443})
        assert seen.path + ("?" + seen.query if "?" in target.path else "") == target.path
