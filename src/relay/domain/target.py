"""The one reading of an endpoint's url: strict, to one normal form, or refused.

Owns the syntax. A url is read by several programs (this check, libcurl, whatever shows it), and all must see one host.
So the grammar is narrow on purpose: where two known parsers could take different hosts, ports or paths from one text,
the text is refused, and the sentence says how to write it. What may be reached is `egress`' business.
Invariant: reading a target's `url` gives that same target again, and every character of it is visible ASCII.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import idna

from relay.domain.addresses import Address, read_address
from relay.domain.refusal import Refusal, RefusalReason

MAX_URL_CHARACTERS = 2048
"""Longest url, as given and in its normal form."""

DEFAULT_PORTS = {"https": 443, "http": 80}

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)"
    r"(?P<path>/[^?#]*)?(?P<query>\?[^#]*)?(?P<fragment>#.*)?"
)
_AUTHORITY = re.compile(r"(?:\[(?P<ipv6>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::(?P<port>[^:\[\]]*))?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
_NUMBER_LAST = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?")
# RFC 3986, 3.3 and 3.4, and the brackets and bars that real query strings hold and every parser leaves alone.
_PATH_AND_QUERY = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?\[\]|-]|%[0-9A-Fa-f]{2})*")
_ESCAPE = re.compile(r"%[0-9a-f]{2}", re.IGNORECASE)
_DOT_SEGMENT = re.compile(r"/(?:\.|%2[Ee]){1,2}(?:/|\Z)")


@dataclass(frozen=True, slots=True)
class Target:
    """A url taken apart: what to dial and what to ask for.

    `host` is a lower-case ASCII name or, without brackets, an address in its shortest text; `address` is that address,
    None for a name. `port` is always set, `path` starts with a slash and includes the query. `url` is the normal form
    of the whole, which is stored, shown and sent, so that the judged url is the one that is requested.
    """

    scheme: str
    host: str
    port: int
    path: str
    address: Address | None
    url: str


class _Refused(Exception):
    """Carries a refusal up to `read_target`; never leaves this module."""

    def __init__(self, reason: RefusalReason, detail: str) -> None:
        super().__init__(detail)
        self.refusal = Refusal(reason, detail)


def read_target(text: str) -> Target | Refusal:
    """Read an absolute http or https url. Never raises, whatever the text."""
    try:
        return _read(text)
    except _Refused as refused:
        return refused.refusal


def _read(text: str) -> Target:
    _check_characters(text)
    parts = _URL.fullmatch(text)
    if parts is None or not parts["authority"]:
        raise _Refused(RefusalReason.MALFORMED, "write the url in full, like https://example.com/hook")
    scheme = parts["scheme"].lower()
    if scheme not in DEFAULT_PORTS:
        raise _Refused(RefusalReason.SCHEME, "the url must start with https://, or with http:// where that is allowed")
    if "@" in parts["authority"]:
        raise _Refused(RefusalReason.USERINFO, "put credentials in a header, not before an @ in the url")
    if parts["fragment"] is not None:
        raise _Refused(RefusalReason.FRAGMENT, "leave out the # and what follows it: it is never sent")
    host, port, address = _read_authority(parts["authority"], DEFAULT_PORTS[scheme])
    path = _read_path(parts["path"] or "/", parts["query"] or "")
    return _normal(scheme, host, port, path, address)


def _normal(scheme: str, host: str, port: int, path: str, address: Address | None) -> Target:
    authority = f"[{host}]" if ":" in host else host
    if port != DEFAULT_PORTS[scheme]:
        authority = f"{authority}:{port}"
    url = f"{scheme}://{authority}{path}"
    _check_length(url)
    return Target(scheme, host, port, path, address, url)


def _check_length(text: str) -> None:
    if len(text) > MAX_URL_CHARACTERS:
        raise _Refused(RefusalReason.TOO_LONG, f"use a url of at most {MAX_URL_CHARACTERS} characters")


def _check_characters(text: str) -> None:
    _check_length(text)
    # Not printable are control, format (soft hyphen, zero-width, bidirectional) and lone surrogate characters as well
    # as every white space but the plain one: parsers strip, skip or keep them as each sees fit.
    if not text.isprintable() or " " in text or "\\" in text:
        raise _Refused(RefusalReason.MALFORMED, "remove white space, control characters and backslashes from the url")


def _read_authority(text: str, default_port: int) -> tuple[str, int, Address | None]:
    parts = _AUTHORITY.fullmatch(text)
    if parts is None:
        raise _Refused(RefusalReason.HOST, "write an IPv6 address in one pair of brackets, like https://[2600::1]/")
    port = default_port if parts["port"] is None else _read_port(parts["port"])
    if parts["name"] is None:
        address = _read_ipv6(parts["ipv6"])
        return str(address), port, address
    name = _to_ascii(parts["name"])
    if _NUMBER_LAST.fullmatch(name):
        address = _read_ipv4(name)
        return str(address), port, address
    return _check_name(name), port, None


def _read_port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 0xFFFF:
        raise _Refused(RefusalReason.PORT, "write the port as a plain number from 1 to 65535, or leave it out")
    return int(text)


def _read_ipv6(text: str) -> Address:
    address = read_address(text) if ":" in text else None
    if address is None:
        raise _Refused(RefusalReason.HOST, "between brackets belongs an IPv6 address without a zone")
    return address


def _read_ipv4(text: str) -> Address:
    # inet_aton's other spellings (127.1, 0177.0.0.1, 2130706433, 0x7f000001, a dot at the end) are read by some
    # parsers and taken for a name by others.
    address = read_address(text)
    if address is None:
        raise _Refused(RefusalReason.HOST, "write an IPv4 address as four decimal numbers without leading zeros")
    return address


def _to_ascii(name: str) -> str:
    """Lower case; an international name as its A-labels (IDNA 2008 after UTS 46, non-transitional, like browsers)."""
    if name.isascii():
        return name.lower()
    try:
        return idna.encode(name, uts46=True, std3_rules=True).decode("ascii")
    except UnicodeError:
        raise _Refused(RefusalReason.HOST, "write the international host name in its ASCII form (xn--…)") from None


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise _Refused(
            RefusalReason.HOST,
            "a host name has labels of letters, digits and inner hyphens, joined by single dots, none at the end",
        )
    return name


def _read_path(path: str, query: str) -> str:
    if not _PATH_AND_QUERY.fullmatch(path + query):
        raise _Refused(RefusalReason.MALFORMED, "percent-encode what is not plain in the url's path or query")
    if _DOT_SEGMENT.search(path):
        raise _Refused(RefusalReason.MALFORMED, "write the path without . and .. segments")
    # RFC 3986, 6.2.2.1; libcurl sends them so in any case
    return _ESCAPE.sub(lambda escape: escape[0].upper(), path + query)
