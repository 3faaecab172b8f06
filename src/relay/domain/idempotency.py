"""The sender's name for a request: how an `Idempotency-Key` is read, and what "the same request" means.

Owns the key's form and the fingerprint. Where keys live, for how long and who wins a race is the store's business.
Invariant: two requests have the same fingerprint only if their event type and their body's bytes are the same.
"""

from __future__ import annotations

import hashlib
import re

MAX_KEY_CHARACTERS = 255

_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_ESCAPED = re.compile(r"\\(.)")
_KEY = re.compile(rf"[!-~]{{1,{MAX_KEY_CHARACTERS}}}")


class InvalidKey(ValueError):
    """The header does not hold a key; the message says what would."""


def parse_key(header: str) -> str:
    """Read the value of an `Idempotency-Key` header.

    It is a structured-field string (RFC 9651, 3.3.3: in double quotes, inner quotes and backslashes escaped) as the
    draft wants it, or bare as most clients send it; `"k1"` and `k1` are the same key. It has 1 to 255 visible ASCII
    characters and no space; parameters after the closing quote are refused. Raises `InvalidKey`.
    """
    text = header.strip(" \t")
    if text.startswith('"'):
        quoted = _QUOTED.fullmatch(text)
        if quoted is None:
            raise InvalidKey("end the quoted Idempotency-Key with a quote, escape inner ones, and add nothing after it")
        text = _ESCAPED.sub(r"\1", quoted[1])
    return check_key(text)


def check_key(text: str) -> str:
    """Return the key itself as it is. Raises `InvalidKey`."""
    if not _KEY.fullmatch(text):
        raise InvalidKey(f"an Idempotency-Key has 1 to {MAX_KEY_CHARACTERS} visible ASCII characters and no space")
    return text


def fingerprint(event_type: str, payload_sha256: bytes) -> bytes:
    """What a request with a key is recognised by: 32 bytes over its event type and its body's SHA-256.

    The body counts byte for byte: the same JSON with other white space or key order is another request. The digest is
    taken instead of the body because the envelope needs it anyway, and a megabyte is hashed once. Raises `ValueError`
    for anything that is no SHA-256: only a first part of fixed length keeps the two apart.
    """
    if len(payload_sha256) != hashlib.sha256().digest_size:
        raise ValueError("a fingerprint is made from the payload's SHA-256, not from the payload")
    return hashlib.sha256(payload_sha256 + event_type.encode()).digest()
