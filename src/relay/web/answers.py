"""An answer as a value.

Owns the shape; how it leaves is the exchange's. Invariant: an answer is complete before its first byte is sent.
"""

from __future__ import annotations

from typing import NamedTuple

Headers = tuple[tuple[bytes, bytes], ...]

JSON = b"application/json"


class Answer(NamedTuple):
    """A whole response; `headers` come on top of `Content-Type` and `Content-Length`.

    A tuple, since one is made per event.
    """

    status: int
    media_type: bytes
    body: bytes
    headers: Headers = ()
