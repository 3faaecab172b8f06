"""What is kept of an attempt."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from relay.domain.ambient import Ambient
from relay.domain.attempt import WORDS_LIMIT, snippet_text, words_of


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b"ok", "ok"),
        (b"ok\x00", "ok"),
        (b"\xff\xfe\x00", "\ufffd\ufffd"),
        ("grün".encode()[:3], "gr\ufffd"),
        (b"", ""),
        ("grün".encode("latin-1"), "gr\ufffdn"),
    ],
)
def test_a_snippet_is_text_that_any_database_can_hold(body: bytes, kept: str) -> None:
    """C15."""
    assert snippet_text(body) == kept


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"signed with none of the 2 known secrets\n", "signed with none of the 2 known secrets"),
        (b'{\n  "detail": "no"\n}', '{ "detail": "no" }'),
        (b"", ""),
        (b"<html>Forbidden</html>", ""),
        (b"\x1b[31mred", ""),
        (b"x" * WORDS_LIMIT, "x" * WORDS_LIMIT),
        (b"x" * (WORDS_LIMIT + 1), "x" * (WORDS_LIMIT - 1) + "…"),
    ],
)
def test_the_words_of_a_refusal_are_one_short_line(body: bytes, words: str) -> None:
    assert words_of(body) == words


async def test_what_the_world_supplies_is_handed_in() -> None:
    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    slept: list[float] = []
    instant = datetime(2026, 1, 2, tzinfo=UTC)
    ambient = Ambient(lambda: instant, lambda: 1.5, bytes, lambda: 0.25, sleep)
    await ambient.sleep(3.0)
    assert (ambient.now(), ambient.monotonic(), ambient.entropy(2), ambient.draw(), slept) == (
        instant,
        1.5,
        b"\x00\x00",
        0.25,
        [3.0],
    )
