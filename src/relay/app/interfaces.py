"""The addresses of this machine's interfaces, read from the kernel's own tables.

Owns the reading. Python has no call for it, asking a resolver for the machine's name finds what somebody wrote into the
hosts file (127.0.1.1 on Debian), and `ioctl` knows one address per interface. Invariant: a table that is not there or
reads otherwise than expected leads to fewer addresses, never to an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from relay.domain.egress import Address

IPV4_ROUTES = Path("/proc/net/fib_trie")
IPV6_ADDRESSES = Path("/proc/net/if_inet6")

_LEAF, _OWN = "|-- ", "/32 host LOCAL"


def addresses(ipv4_routes: Path = IPV4_ROUTES, ipv6_addresses: Path = IPV6_ADDRESSES) -> frozenset[Address]:
    """Every address that an interface of this machine, or of this container, has; loopback is left out."""
    known: set[Address] = {*_ipv4(_lines(ipv4_routes)), *_ipv6(_lines(ipv6_addresses))}
    return frozenset(each for each in known if not each.is_loopback)


def _lines(table: Path) -> list[str]:
    try:
        return table.read_text("ascii").splitlines()
    except (OSError, UnicodeError):  # not Linux, or without /proc: nothing is known
        return []


def _ipv4(lines: list[str]) -> Iterator[IPv4Address]:
    """A leaf of the routing trie names an address, and the lines below it what it is routed as."""
    leaf = ""
    for line in lines:
        if _LEAF in line:
            leaf = line.partition(_LEAF)[2].strip()
        elif line.strip() == _OWN:
            address = _read(leaf)
            if isinstance(address, IPv4Address):
                yield address


def _ipv6(lines: list[str]) -> Iterator[IPv6Address]:
    """A line per address: 32 hexadecimal digits, and what does not matter here."""
    for line in lines:
        digits = line.partition(" ")[0]
        address = _read(":".join(digits[place : place + 4] for place in range(0, 32, 4)))
        if isinstance(address, IPv6Address):
            yield address


def _read(text: str) -> Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
