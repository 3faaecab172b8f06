"""What a request carried that nobody may read, taken out of an answer that repeats it.

A receiver that fails often shows the request it got, credentials and all, and the head of its answer is stored and
shown. Owns the replacing. Invariant: no fact that comes out of here holds one of the values, whole or cut at the end of
the snippet. A value in another form (encoded, reversed) is not found; whoever wants to give it away can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relay.domain.sending import SendFacts

STARS = "***"

LEAST_CUT = 6
"""Characters of a value that a snippet may end in: fewer give nothing away, and are often no such value at all."""


def hide(facts: SendFacts, values: Sequence[str]) -> SendFacts:
    """The facts with stars for these values (ASCII, the longest first)."""
    snippet, detail = facts.snippet, facts.detail
    for value in values:
        snippet = _without(snippet, value.encode())
        detail = detail.replace(value, STARS)
    if snippet is facts.snippet and detail is facts.detail:
        return facts
    return replace(facts, snippet=snippet, detail=detail)


def _without(snippet: bytes, value: bytes) -> bytes:
    if value in snippet:
        snippet = snippet.replace(value, STARS.encode())
    # It may begin shortly before the end. Where its beginning is not, which is quickly seen, it does not.
    place = max(0, len(snippet) - len(value) + 1)
    while (place := snippet.find(value[:LEAST_CUT], place)) >= 0:
        if value.startswith(snippet[place:]):
            return snippet[:place] + STARS.encode()
        place += 1
    return snippet
