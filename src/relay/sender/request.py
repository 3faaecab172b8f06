"""An outbound request's headers, as libcurl wants them.

Pure. The values were checked where they came in; what is checked here once more is what would change the request's own
frame if it slipped through: a line break, or a header that belongs to HTTP itself. Invariant: as many headers go out as
were given, each on one line, empty ones included.
"""

from __future__ import annotations

import re

FRAME_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade", "expect"}
)
"""Headers that libcurl makes itself, out of the url and the body."""

NAME_SETS = 4_096

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

_additions: dict[tuple[str, ...], tuple[str, ...]] = {}
"""Checked sets of names, with the lines that keep libcurl from adding headers of its own: the same sets come again and
again, one per endpoint."""


class Unsendable(ValueError):
    """The request cannot be sent as it is; the message says why, and holds no value."""


def header_lines(headers: tuple[tuple[str, str], ...]) -> list[str]:
    """The headers as libcurl's list. Raises `Unsendable`."""
    names = tuple([name for name, _ in headers])
    additions = _additions.get(names)
    if additions is None:
        additions = _check_names(names)
    # "name;" is how libcurl is told to send a header without a value; "name:" would take it away
    lines = [f"{name}: {value}" if value else f"{name};" for name, value in headers]
    text = "".join(lines)
    if "\n" in text or "\r" in text or "\0" in text or not text.isascii():
        raise Unsendable("a header's value has a line break or a byte outside of ASCII")
    lines += additions
    return lines


def _check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    lowered = [name.lower() for name in names]
    for name in lowered:
        if not _TOKEN.fullmatch(name) or name in FRAME_HEADERS:
            raise Unsendable(f"{name[:64]!a} cannot be set as a header")
    # No waiting for "100 Continue", and no content type that nobody gave.
    additions = ("Expect:",) if "content-type" in lowered else ("Expect:", "Content-Type:")
    if len(_additions) >= NAME_SETS:
        _additions.clear()
    _additions[names] = additions
    return additions
