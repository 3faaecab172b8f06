"""Who sends: the tenant and the source that a request belongs to.

Owns that question. Invariant: nothing below the gateway learns of a sender in any other way.
"""

from __future__ import annotations

from relay.gateway.headers import Headers
from relay.web.credentials import ANONYMOUS, Caller


def identify(_: Headers) -> Caller:
    """The sender of a request with these headers. Without configured credentials everybody is anonymous."""
    return ANONYMOUS
