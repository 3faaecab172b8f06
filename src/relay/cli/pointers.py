"""What Relay refuses in a body, in the words of a command line.

Owns the exchange of JSON Pointers for what a person has written. Invariant: a pointer that stands for no option stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from relay.cli.client import Refused

OF_SENDERS: Mapping[str, str] = MappingProxyType(
    {
        "name": "NAME",
        "scopes": "--scope",
        "source": "--source",
        "tenant": "--tenant",
        "auth": "--auth",
        "certificate_subject": "--subject",
        "id": "--id",
    }
)
"""The members of the bodies that make keys, sources and tenants, and the options that stand for them."""


@contextmanager
def in_words_of(options: Mapping[str, str]) -> Iterator[None]:
    """What Relay refuses inside the block is told by the names of the options that stand for a body's members."""
    pointer = re.compile(rf"(?<![\w/])/({'|'.join(options)})\b(?:/([\w-]+))?")

    def option(found: re.Match[str]) -> str:
        return f"{options[found[1]]} {found[2]}" if found[2] else options[found[1]]

    try:
        yield
    except Refused as refusal:
        raise refusal.reworded(pointer.sub(option, str(refusal))) from refusal
