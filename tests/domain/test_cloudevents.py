"""Claims about what makes attributes a CloudEvent."""

from __future__ import annotations

import re
from hashlib import sha256
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.domain.cloudevents import (
    LONGEST_ID,
    CloudEvent,
    InvalidCloudEvent,
    check_cloudevent,
    decode_header,
    is_uri_reference,
)
from relay.domain.idempotency import check_key

LEAST = {"specversion": "1.0", "id": "A234-1234-1234", "source": "/mycontext", "type": "com.example.someevent"}

TAKEN: dict[str, dict[str, str]] = {
    "nothing but what is required": {},
    "everything": {
        "subject": "larger-context",
        "time": "2018-04-05T17:31:00Z",
        "dataschema": "https://example.com/a.json",
        "datacontenttype": "application/json; charset=utf-8",
        "comexampleextension1": "value",
        "comexampleothervalue": "5",
    },
    "an id with spaces and other scripts": {"id": "Ré f 1 😀"},
    "an id of the longest length": {"id": "x" * LONGEST_ID},
    "a source with everything that a URI may have": {
        "source": "https://user@example.com:80/a;b/(c)?d=%C3%A9&e=f,g#h/[::1]"
    },
    "a source that is a name": {"source": "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66"},
    "a source that is a fragment": {"source": "#here"},
    "a time with fractions and an offset": {"time": "2018-04-05T17:31:00.123456789+05:30"},
    "a time in small letters": {"time": "2018-04-05t17:31:00z"},
    "a leap second": {"time": "2016-12-31T23:59:60Z"},
    "a leap day": {"time": "2024-02-29T00:00:00Z"},
    "an empty extension": {"extension": ""},
    "a name that begins with a digit": {"1st": "x"},
}

REFUSED: dict[str, dict[str, str]] = {
    "another version": {"specversion": "0.3"},
    "no version": {"specversion": ""},
    "an empty id": {"id": ""},
    "an empty source": {"source": ""},
    "an empty type": {"type": ""},
    "an id that is too long": {"id": "x" * (LONGEST_ID + 1)},
    "a zero in the id": {"id": "a\x00b"},
    "a line break": {"subject": "a\nb"},
    "a control character of latin-1": {"extension": "\x85"},
    "half of a surrogate pair": {"id": "\ud800"},
    "a noncharacter": {"id": "\uffff"},
    "a noncharacter of another plane": {"id": "\U0001fffe"},
    "a noncharacter in the middle": {"id": "\ufdd0"},
    "a source with a space": {"source": "my service"},
    "a source beyond ASCII": {"source": "/événements"},
    "a source with two fragments": {"source": "/a#b#c"},
    "a source with half a code": {"source": "/a%2"},
    "a type that is none of Relay's": {"type": "com.example:made"},
    "a type with a space": {"type": "made here"},
    "an empty subject": {"subject": ""},
    "a time without an offset": {"time": "2018-04-05T17:31:00"},
    "a time with a space": {"time": "2018-04-05 17:31:00Z"},
    "a time of the thirteenth month": {"time": "2018-13-05T17:31:00Z"},
    "a day that never was": {"time": "2023-02-29T00:00:00Z"},
    "the hour 24": {"time": "2018-04-05T24:00:00Z"},
    "a time in other digits": {"time": "٢٠١٨-04-05T17:31:00Z"},
    "an empty time": {"time": ""},
    "a schema that is relative": {"dataschema": "/a.json"},
    "an empty schema": {"dataschema": ""},
    "a schema with a space": {"dataschema": "https://example.com/a b"},
    "a content type that is none": {"datacontenttype": "json"},
    "a name with a capital": {"myExtension": "x"},
    "a name with a dash": {"my-extension": "x"},
    "a name with an underscore": {"my_extension": "x"},
    "an empty name": {"": "x"},
    "data as an attribute": {"data": "x"},
}


@pytest.mark.parametrize("attributes", TAKEN.values(), ids=TAKEN)
def test_what_the_specification_allows_is_an_event(attributes: dict[str, str]) -> None:
    given_ones = {**LEAST, **attributes}
    event = check_cloudevent(given_ones)
    assert (event.id, event.source, event.type) == (given_ones["id"], given_ones["source"], given_ones["type"])


@pytest.mark.parametrize("attributes", REFUSED.values(), ids=REFUSED)
def test_what_the_specification_or_relay_forbids_is_refused_by_name(attributes: dict[str, str]) -> None:
    (name,) = attributes
    with pytest.raises(InvalidCloudEvent) as refused:
        check_cloudevent({**LEAST, **attributes})
    assert name[:64] in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("name", LEAST)
def test_what_is_required_is_asked_for_by_name(name: str) -> None:
    attributes = {known: value for known, value in LEAST.items() if known != name}
    with pytest.raises(InvalidCloudEvent, match=f"a non-empty {name}"):
        check_cloudevent(attributes)


def test_the_key_is_documented_and_fits_the_rules_of_keys() -> None:
    event = CloudEvent("x y 1", "https://example.com/a", "a")
    assert event.key == "cloudevent-" + sha256(b"https://example.com/a x y 1").hexdigest()
    assert check_key(event.key) == event.key


def test_the_type_is_no_part_of_the_key() -> None:
    assert CloudEvent("1", "/a", "a").key == CloudEvent("1", "/a", "b").key


sources = st.text("abc/#?:%20", min_size=1).filter(is_uri_reference)
ids = st.text(min_size=1, max_size=LONGEST_ID).filter(lambda text: not re.search("[\ud800-\udfff]", text))


@given(st.tuples(sources, ids), st.tuples(sources, ids))
def test_keys_are_equal_only_for_equal_sources_and_ids(first: tuple[str, str], second: tuple[str, str]) -> None:
    keys = [CloudEvent(name, source, "a").key for source, name in (first, second)]
    assert (keys[0] == keys[1]) == (first == second)


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        ("plain", "plain"),
        ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),
        ("%e2%82%ac", "€"),
        ("%41%42", "AB"),
        ("%2541", "%41"),
        ("100% sure", "100% sure"),
        ("50%", "50%"),
        ('"quoted \\"text\\" %41"', 'quoted "text" A'),
        ('"not quoted', '"not quoted'),
        ("", ""),
    ],
)
def test_a_header_is_decoded_once(value: str, meaning: str) -> None:
    assert decode_header(value) == meaning


@pytest.mark.parametrize("value", ["%ff", "%C3", "%ED%A0%80", "a%80"])
def test_a_header_that_is_not_utf8_is_refused(value: str) -> None:
    with pytest.raises(InvalidCloudEvent, match="UTF-8"):
        decode_header(value)


@given(ids)
def test_whatever_was_encoded_as_the_specification_says_is_read_back(text: str) -> None:
    assert decode_header(quote(text, safe="")) == text
