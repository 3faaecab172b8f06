"""The names by which a client's certificate can be a source's: which of them count, and how they are compared.

Owns the forms of names and of a source's `certificate_subject`. How a certificate is read, and whether it is to be
believed, is decided where connections are. Invariants: two names are the same only if they are, character by character,
but for the case of host names; and no name that an authority signs can pass for a fingerprint.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FINGERPRINT = "sha256:"
"""How the name begins that every certificate has by itself: the SHA-256 of its DER."""

LONGEST_SUBJECT = 1000

_DIGEST = re.compile(r"[0-9a-f]{64}")
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_LONGEST_HOST_NAME = 253


class InvalidSubject(ValueError):
    """No certificate can have a name like this. The text says why, and can be shown to whoever gave it."""


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The names in a certificate's subject alternative names, as far as a sender can have them."""

    host_names: Sequence[str] = ()
    uris: Sequence[str] = ()
    emails: Sequence[str] = ()


def read_subject(text: str) -> str:
    """A source's `certificate_subject` in the form in which it is compared. Raises `InvalidSubject`."""
    if not 1 <= len(text) <= LONGEST_SUBJECT:
        raise InvalidSubject(f"a certificate's subject has 1 to {LONGEST_SUBJECT} characters")
    if not _is_printable(text):
        raise InvalidSubject("a certificate's subject is printable text, without spaces around it")
    if text.lower().startswith(FINGERPRINT):
        digest = text[len(FINGERPRINT) :].replace(":", "").lower()
        if not _DIGEST.fullmatch(digest):
            raise InvalidSubject("a fingerprint is `sha256:` and 64 hexadecimal digits")
        return FINGERPRINT + digest
    if "*" in text or text.endswith("."):
        raise InvalidSubject(
            "a certificate's subject is one whole name, without wildcards and without a dot at its end"
        )
    return _folded(text)


def fingerprint_of(sha256: bytes) -> str:
    """The name of a certificate whose DER has that SHA-256."""
    return FINGERPRINT + sha256.hex()


def names_of(alternatives: Alternatives | None, common_names: Sequence[str]) -> tuple[str, ...]:
    """The names of a certificate that count, each once, as they are compared; beside them it has its fingerprint.

    Those of its alternatives (None: it has no such extension); only where there are none at all, its one common name.
    A wildcard, a host name that is none and an absolute one, with a dot at its end, are passed over. A name that is not
    printable text, one with a NUL say, was meant to deceive somebody: then none of them counts.
    """
    if alternatives is None:
        return tuple(_counting(common_names)) if len(common_names) == 1 and _are_printable(common_names) else ()
    every = (*alternatives.host_names, *alternatives.uris, *alternatives.emails)
    if not _are_printable(every):
        return ()
    hosts = filter(_is_host_name, alternatives.host_names)
    return tuple(dict.fromkeys(_counting([*hosts, *alternatives.uris, *alternatives.emails])))


def _counting(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        try:
            read = read_subject(name)
        except InvalidSubject:
            continue
        if not read.startswith(FINGERPRINT):
            yield read


def _folded(name: str) -> str:
    """Host names are the same in capitals (RFC 4343); nothing else is."""
    return name.lower() if _is_host_name(name) else name


def _is_host_name(name: str) -> bool:
    return len(name) <= _LONGEST_HOST_NAME and _HOST_NAME.fullmatch(name) is not None


def _are_printable(names: Iterable[str]) -> bool:
    return all(map(_is_printable, names))


def _is_printable(name: str) -> bool:
    return name.isprintable() and name == name.strip()
