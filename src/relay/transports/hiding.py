"""What a request carried that nobody may read, taken out of an answer that repeats it.

A receiver that fails often shows the request it got, credentials and all, and the head of its answer is stored and
shown. Owns the replacing. Invariant: no fact that comes out of here holds one of the values, whole or cut at the end of
the snippet. A value in another form (encoded, reversed) is not found; whoever wants to give it away can. But NULs,
which nobody will see, are left out before: UTF-16 has them between the letters, and the stored text would be the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from relay.domain.sending import SendFacts

STARS = "***"

LEAST_CUT = 6
"""Characters of a value that a snippet may end in: fewer give nothing away, and are often no such value at all. A value
is longer than that."""


class Hidden:
    """Values (ASCII) that are to be seen nowhere. Made once per destination: most answers hold none of them, and to
    find that out costs next to nothing."""

    __slots__ = ("_beginnings", "_values")

    def __init__(self, values: Iterable[str]) -> None:
        # the longest first: one may be a part of another
        self._values = tuple(sorted({each for each in values if len(each) > LEAST_CUT}, key=len, reverse=True))
        beginnings = {re.escape(each[:LEAST_CUT].encode()) for each in self._values}
        self._beginnings = re.compile(b"|".join(sorted(beginnings)) if beginnings else rb"(?!)")

    def taken_out_of(self, facts: SendFacts) -> SendFacts:
        """The facts with stars for the values."""
        snippet, detail = facts.snippet, facts.detail
        if b"\0" in snippet:
            snippet = snippet.replace(b"\0", b"")
        if self._beginnings.search(snippet):
            for value in self._values:
                snippet = _without(snippet, value.encode())
        for value in self._values if detail else ():
            detail = detail.replace(value, STARS)
        if snippet is facts.snippet and detail == facts.detail:
            return facts
        return facts._replace(snippet=snippet, detail=detail)


def _without(snippet: bytes, value: bytes) -> bytes:
    if value in snippet:
        snippet = snippet.replace(value, STARS.encode())
    # It may begin shortly before the end.
    place = max(0, len(snippet) - len(value) + 1)
    while (place := snippet.find(value[:LEAST_CUT], place)) >= 0:
        if value.startswith(snippet[place:]):
            return snippet[:place] + STARS.encode()
        place += 1
    return snippet
