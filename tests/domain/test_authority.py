"""Claims about urls that name several hosts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.domain.authority import Authority, authority_of

SPECIAL = st.text(alphabet=":/?#@,[]a1%\n", max_size=24)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("redis://h", ("redis", None, ["h"], "")),
        ("a+b://u:p@h:1,[::2]:2/db?x=1#f", ("a+b", "u:p", ["h:1", "[::2]:2"], "/db?x=1#f")),
        ("s://u:p@q@h,/db", ("s", "u:p@q", ["h", ""], "/db")),
        ("s://@h", ("s", "", ["h"], "")),
        ("s:///run?host=a", ("s", None, [""], "/run?host=a")),
        ("s://u:p?q@h/db", ("s", None, ["u:p"], "?q@h/db")),
    ],
)
def test_a_url_is_taken_apart_where_its_parts_end(url: str, parts: tuple[str, str | None, list[str], str]) -> None:
    found = authority_of(url)
    assert found is not None
    assert (found.scheme, found.credential, found.each, found.behind) == parts


@given(scheme=st.text(alphabet="ab+:/?#", max_size=4), rest=SPECIAL)
def test_the_parts_together_are_the_url(scheme: str, rest: str) -> None:
    url = f"{scheme}://{rest}"
    found = authority_of(url)
    assert (found is None) == (not scheme or not set(scheme).isdisjoint(":/?#"))
    assert found is None or found.at(found.places) == url


def test_another_host_takes_the_place_of_all() -> None:
    found = authority_of("s://u:p@a:1,b:2/db?x")
    assert found is not None
    assert found.at("c") == "s://u:p@c/db?x"


@pytest.mark.parametrize("text", ["", "host", "//host", "://host", "a:b"])
def test_what_has_no_scheme_has_no_authority(text: str) -> None:
    assert authority_of(text) is None


def test_no_printable_form_holds_a_credential() -> None:
    assert "hidden" not in repr(Authority("s", "u:hidden", "h", "?password=hidden"))
