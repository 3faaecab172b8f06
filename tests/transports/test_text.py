"""Claims about the text of chat messages: exact, within the limit, cut where no reader sees a wound."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.endpoint import Destination
from relay.transports.text import MARK, Unit, fitted, readable, width
from tests.transports.chats import DISCORD, TELEGRAM, event, message, shown

ROCKET = "\U0001f680"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
FLAGS = "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7"
CLUSTERS = [FAMILY, FLAGS[:2], "e\u0301", "\u2764\ufe0f", "\U0001f44b\U0001f3fd", "1\ufe0f\u20e3"]
LIMITS = [(TELEGRAM, 4096, Unit.UTF16), (DISCORD, 2000, Unit.CODE_POINTS)]


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@given(st.text())
def test_the_width_is_the_platforms_count(text: str) -> None:
    try:
        units = utf16(text)
    except UnicodeEncodeError:
        return
    assert (width(text, Unit.UTF16), width(text, Unit.CODE_POINTS)) == (units, len(text))


@pytest.mark.parametrize(
    "text",
    [
        ROCKET * 2049,
        "a" * 4095 + ROCKET,
        "a" * 4095 + " " + ROCKET,
        "a" * 4090 + FAMILY * 3,
        "a" * 4096,
        "a" * 4097,
    ],
)
def test_a_telegram_text_is_cut_in_utf16_units_between_characters_and_marked(text: str) -> None:
    """C136."""
    sent = shown(TELEGRAM, event(text))
    assert sent.startswith("invoice.paid\n\n")
    assert 4096 - len(FAMILY) * 2 <= utf16(sent) <= 4096
    assert sent.endswith(MARK)
    kept = sent.removeprefix("invoice.paid\n\n").removesuffix(MARK)
    assert text.startswith(kept)
    assert not kept.endswith("\u200d")
    assert not text[len(kept) :].startswith("\u200d")


@pytest.mark.parametrize("room", range(1, 12))
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_cut_does_not_part_what_looks_like_one_character(cluster: str, room: int) -> None:
    """C136: a family emoji across the boundary."""
    text = ("x" + cluster) * 4
    cut = fitted(text, room + 1, Unit.CODE_POINTS).removesuffix(MARK)
    whole = [("x" + cluster) * times + end for times in range(5) for end in ("", "x")]
    assert cut in whole or len(cut) == room < len(cluster) + 1


def test_flags_are_parted_only_between_two_halves() -> None:
    cuts = {limit: fitted(FLAGS * 3, limit, Unit.CODE_POINTS).removesuffix(MARK) for limit in range(3, 8)}
    assert cuts == {3: FLAGS[:2], 4: FLAGS[:2], 5: FLAGS, 6: FLAGS, 7: FLAGS + FLAGS[:2]}


def test_a_character_of_hundreds_of_marks_is_cut_at_the_limit() -> None:
    assert len(fitted("e" + "\u0301" * 500, 300, Unit.CODE_POINTS)) == 300


@pytest.mark.parametrize(("destination", "limit", "unit"), LIMITS)
@settings(max_examples=60)
@given(payload=st.binary(max_size=300) | st.text(max_size=30).map(lambda text: (text * 300).encode(errors="replace")))
def test_any_payload_gives_a_valid_message_within_the_limit(
    destination: Destination, limit: int, unit: Unit, payload: bytes
) -> None:
    for kind in ("application/json", "text/plain", ""):
        text = shown(destination, event(payload, kind))
        assert text.startswith("invoice.paid\n")
        assert text.encode()  # no lone surrogate
        assert width(text, unit) <= limit
        assert not any(ord(character) < 32 and character not in "\n\t" for character in text)


@pytest.mark.parametrize("destination", [TELEGRAM, DISCORD])
@pytest.mark.parametrize(
    "payload", [rb'{"s":"x\ud83d"}', rb'{"\ud800":1}', rb'{"s":"\udc00\ud800"}', b'{"s":"\xed\xa0\x80"}']
)
def test_half_a_surrogate_pair_is_shown_as_it_was_written(destination: Destination, payload: bytes) -> None:
    """Case C70, in chats: an escape stands there as an escape; bytes that are no text are told of."""
    text = shown(destination, event(payload, "application/json"))
    assert text.encode()
    escapes = [part for part in payload.decode("latin-1").split('"') if part.startswith(("\\u", "x\\u"))]
    assert all(escape in text for escape in escapes)
    assert escapes or "not UTF-8" in text


@pytest.mark.parametrize(("destination", "limit", "unit"), LIMITS)
def test_a_push_of_megabytes_is_a_message_that_says_it_goes_on(
    destination: Destination, limit: int, unit: Unit
) -> None:
    """Case C162, in chats: cut between characters and marked, where HTTP has all of it."""
    payload = json.dumps({"commits": [{"message": f"\u00c4nderung {n} \u20ac" * 100} for n in range(2000)]})
    text = shown(destination, event(payload, "application/json"))
    assert MARK in text[-20:]
    assert limit - 40 < width(text, unit) <= limit


@pytest.mark.parametrize("destination", [TELEGRAM, DISCORD])
def test_a_payload_that_is_empty_or_no_text_is_told_of(destination: Destination) -> None:
    assert "(no payload)" in shown(destination, event(b""))
    assert "(3 bytes, not UTF-8, image/png)" in shown(destination, event(b"\xff\xfe\x00", "image/png"))
    assert "(1 bytes, not UTF-8, of no type)" in shown(destination, event(b"\xff", ""))


@pytest.mark.parametrize("destination", [TELEGRAM, DISCORD])
def test_a_long_text_that_ends_in_the_middle_of_a_character_is_still_text(destination: Destination) -> None:
    text = shown(destination, event(b"a" + "\u00e9".encode() * 50_000))
    assert "a\u00e9\u00e9" in text
    assert MARK in text


def test_control_characters_are_shown_as_pictures() -> None:
    assert readable(b"a\x00b\x1b[1mc\x7f\r\nd\te", "text/plain").text == "a\u2400b\u241b[1mc\u2421\nd\te"


def test_json_is_laid_out_and_no_token_of_it_changes() -> None:
    posted = b'{"b":1.0,"a":1E400,"dup":1,"dup":2,"esc":"\\u001B,{}","list":[1,[],{}],"u":"\xc3\xa9"}'
    assert readable(posted, "application/json; charset=utf-8").text == (
        '{\n  "b": 1.0,\n  "a": 1E400,\n  "dup": 1,\n  "dup": 2,\n  "esc": "\\u001B,{}",\n'
        '  "list": [\n    1,\n    [],\n    {}\n  ],\n  "u": "\u00e9"\n}'
    )


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60)
@given(JSON, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_laying_json_out_changes_nothing_but_white_space_between_tokens(
    value: Any, indent: Any, ensure_ascii: bool
) -> None:
    try:
        posted = json.dumps(value, indent=indent, ensure_ascii=ensure_ascii).encode()
    except UnicodeEncodeError:
        return
    read = partial(json.loads, parse_float=str, parse_int=str)
    assert read(readable(posted, "application/json").text) == read(posted)


def test_what_calls_itself_json_and_is_none_is_shown_as_it_is() -> None:
    assert readable(b'{"a":  1', "application/json").text == '{"a":  1'


def test_a_long_json_is_cut_and_marked_even_if_its_layout_has_room() -> None:
    spaces = b'{"a":' + b" " * 200_000 + b'1,"b":2}'
    assert shown(TELEGRAM, event(spaces, "application/json")) == 'invoice.paid\n\n{\n  "a": ' + MARK


MARKUP = r"a_b@example.test *x `tick [l](javascript:x <b &amp; 1-2=3. (Done!) \\"


def test_markup_in_an_event_reaches_telegram_as_it_was_typed() -> None:
    """C139: without `parse_mode` there is nothing to escape and nothing that a cut could break."""
    sent = message(TELEGRAM, event(MARKUP))
    assert sent == {
        "chat_id": -1001234567890,
        "text": f"invoice.paid\n\n{MARKUP}",
        "link_preview_options": {"is_disabled": True},
    }
    long = shown(TELEGRAM, event("\\" * 5000))
    assert long == "invoice.paid\n\n" + "\\" * (4096 - 15) + MARK


def test_markup_in_an_event_stands_in_a_code_block_on_discord() -> None:
    assert shown(DISCORD, event(MARKUP)) == f"invoice.paid\n```\n{MARKUP}\n```"


def test_a_fence_in_an_event_does_not_end_its_code_block() -> None:
    sent = shown(DISCORD, event("```\n@everyone\n````````"))
    assert sent.count("```") == 2
    assert sent.endswith("\n```")
    assert sent.replace("\u200b", "").removesuffix("\n```") == "invoice.paid\n```\n```\n@everyone\n````````"


def test_a_cut_discord_message_keeps_the_end_of_its_code_block() -> None:
    sent = shown(DISCORD, event("a" * 3000))
    assert len(sent) == 2000
    assert sent.endswith(f"a{MARK}\n```")


def test_a_type_with_underscores_at_its_edges_is_shown_by_discord_as_it_is() -> None:
    assert shown(DISCORD, event("x", type="__a_b__._c")).startswith("\\_\\_a_b\\_\\_.\\_c\n")


def test_every_discord_message_allows_no_mention() -> None:
    """C141."""
    pings = b'{"title":"@everyone","body":"@here <@&123456789012345678> <@123456789012345678> [](@everyone)"}'
    for claimed in (event(pings, "application/json"), event(pings), event(pings * 100), event(b"")):
        assert message(DISCORD, claimed)["allowed_mentions"] == {"parse": []}
