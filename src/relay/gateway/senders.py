"""Who sends: the tenant and the source that a request belongs to.

Owns that question. Invariant: nothing below the gateway learns of a sender in any other way.
"""

from __future__ import annotations

from dataclasses import dataclass

from relay.gateway.headers import Headers


@dataclass(frozen=True, slots=True)
class Sender:
    """A source, and the tenant that it belongs to."""

    tenant: str
    source: str


ANONYMOUS = Sender("acct_default", "anonymous")
"""Everybody, as long as no credential is configured. The first migration writes both."""


def identify(_: Headers) -> Sender:
    """The sender of a request with these headers. Without configured credentials everybody is anonymous."""
    return ANONYMOUS
