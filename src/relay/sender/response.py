"""Reading a response's head: the raw lines that libcurl passed on, into names and values.

Pure. Informational responses and trailers come in the same list as the head that counts, and are told apart here.
Invariant: whatever the bytes, a bounded number of headers comes out and nothing is raised.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_HEADERS = 64
MAX_CHARACTERS = 8 * 1024
"""Bounds of what is kept of a head; libcurl itself gives up on one of more than 300 KiB."""

_STATUS_LINE = re.compile(rb"HTTP/(?:1\.[01]|2) ([1-9])\d\d[ \r\n]")
"""What a status line begins with (RFC 9112, 4), in HTTP/2 as libcurl makes one up."""

_USUAL = frozenset({b"HTTP/1.1 200 ", b"HTTP/1.1 202 ", b"HTTP/1.1 204 ", b"HTTP/2 200 \r\n"})
"""How most of them begin, for which the pattern need not be asked."""

_BLANK = (b"\r\n", b"\n")


def read_headers(lines: Sequence[bytes]) -> tuple[tuple[str, str], ...]:
    """The headers of the last response among the lines, names in lower case, in order; folded lines are left out.

    Bytes outside of ASCII become the characters of the same number (RFC 9110, 5.5), so nothing is lost or refused.
    """
    headers: list[tuple[str, str]] = []
    left = MAX_CHARACTERS
    for line in lines[_head_of_last(lines) + 1 :]:
        left -= len(line)
        if line in _BLANK or left < 0 or len(headers) == MAX_HEADERS:
            break
        name, colon, value = line.decode("latin-1").partition(":")
        if colon and not name[:1].isspace():
            headers.append((name.strip().lower(), value.strip()))
    return tuple(headers)


def has_status_line(lines: Sequence[bytes]) -> bool:
    """Whether the response begins with a status line, as far as the end of its code.

    libcurl reads three digits, whatever follows, and takes 2000 for 200.
    """
    if lines and lines[0][:13] in _USUAL:
        return True
    found = _STATUS_LINE.match(lines[0]) if lines else None
    if found is not None and found[1] == b"1":  # an informational response stands before the one that counts
        found = _STATUS_LINE.match(lines[_head_of_last(lines)])
    return found is not None


def is_complete(lines: Sequence[bytes]) -> bool:
    """Whether the last response's head came to its end, the blank line."""
    if lines and lines[-1] in _BLANK:
        return True
    return any(line in _BLANK for line in lines[_head_of_last(lines) + 1 :])


def has_two_lengths(lines: Sequence[bytes]) -> bool:
    """Whether a head gives both a length and a transfer coding, on which two readers may disagree (RFC 9112, 6.3)."""
    head = b"".join(lines).lower()
    return b"\ntransfer-encoding:" in head and b"\ncontent-length:" in head


def _head_of_last(lines: Sequence[bytes]) -> int:
    """Where the last status line stands; -1 if there is none."""
    for place in range(len(lines) - 1, -1, -1):
        if lines[place].startswith(b"HTTP/"):
            return place
    return -1
