"""The names of senders.

Owns their forms. Invariant: a source's name can stand in a header, and no key's name in records is one.
"""

from __future__ import annotations

import hashlib
import re

LONGEST_NAME = 100

SOURCE_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,98}[A-Za-z0-9])?"
TENANT_ID = r"acct_[A-Za-z0-9_-]{1,64}"

_SOURCE_NAME = re.compile(SOURCE_NAME)
_TENANT_ID = re.compile(TENANT_ID)


class InvalidName(ValueError):
    """The text is no name of that kind; the message says what would be."""


def check_source_name(text: str) -> str:
    """Return the name as it is. Raises `InvalidName`."""
    if not _SOURCE_NAME.fullmatch(text):
        raise InvalidName(
            "a source's name has 1 to 100 of A-Z a-z 0-9 . _ / -, the first and the last a letter or digit"
        )
    return text


def check_name(text: str) -> str:
    """Return the name of a key or a tenant as it is. Raises `InvalidName`."""
    if not 1 <= len(text) <= LONGEST_NAME or not text.isprintable() or text != text.strip():
        raise InvalidName(f"a name has 1 to {LONGEST_NAME} printable characters, spaces only inside")
    return text


def check_tenant_id(text: str) -> str:
    """Return the id as it is. Raises `InvalidName`."""
    if not _TENANT_ID.fullmatch(text):
        raise InvalidName("a tenant's id is acct_ and 1 to 64 of A-Z a-z 0-9 _ -")
    return text


def partition_of(tenant: str) -> int:
    """The journal partition of the tenant's events: the first byte of its id's SHA-256, modulo 16."""
    return hashlib.sha256(tenant.encode()).digest()[0] % 16
