"""The authority of a url that may name several hosts: `scheme://user:password@host1:1,[::2]:2/…`.

Owns where each part begins and ends; what a part may hold is for whoever reads such a url. Python's `urlsplit` knows
one host, and some of its versions take brackets around the first of several and some around none. Invariants: the parts
together are the url, character for character; a credential ends at the last @ before what is behind the hosts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_URL = re.compile(r"(?P<scheme>[^:/?#]+)://(?:(?P<credential>[^/?#]*)@)?(?P<places>[^/?#]*)(?P<behind>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Authority:
    """`credential` is None where there is no @, and as written, like everything here; `places` are the hosts with their
    ports as one text, `behind` is the path, the query and the fragment."""

    scheme: str
    credential: str | None = field(repr=False)
    places: str
    behind: str = field(repr=False)

    @property
    def each(self) -> list[str]:
        """Each host with its port; one empty text where none is named."""
        return self.places.split(",")

    def at(self, place: str) -> str:
        """The same url with that in the place of its hosts."""
        credential = "" if self.credential is None else f"{self.credential}@"
        return f"{self.scheme}://{credential}{place}{self.behind}"


def authority_of(url: str) -> Authority | None:
    """Take a url apart; None for what has no `scheme://`."""
    found = _URL.fullmatch(url)
    return None if found is None else Authority(**found.groupdict())
