"""Which addresses are special: every range to which a request from inside a network must not be steered.

Owns the range tables and the reading of addresses. Sources: IANA's special-purpose and address-space registries for
IPv4 and IPv6, and the metadata services of the large clouds. `ipaddress.is_global` is not used: on the supported
Pythons it calls multicast, NAT64, IPv4-compatible and mapped carrier-grade addresses global (decision 0004).
Invariant: an address that `classify` passes is unicast, assigned for use on the public internet, and carries no second
address inside it. What may be re-opened for whom is `egress`' business.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from relay.domain.refusal import RefusalReason

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class SpecialRange:
    """A range that is not simply public: its network, why that matters, and its name in the registry."""

    network: Network
    reason: RefusalReason
    name: str


def _table(*rows: tuple[str, RefusalReason, str]) -> tuple[SpecialRange, ...]:
    return tuple(SpecialRange(ip_network(text), reason, name) for text, reason, name in rows)


# The first match counts: single addresses stand before the ranges around them.
SPECIAL_IPV4 = _table(
    ("169.254.169.254/32", RefusalReason.METADATA, "cloud metadata"),
    ("169.254.170.2/32", RefusalReason.METADATA, "container credentials"),
    ("169.254.170.23/32", RefusalReason.METADATA, "container credentials"),
    ("100.100.100.200/32", RefusalReason.METADATA, "cloud metadata"),
    ("192.0.0.192/32", RefusalReason.METADATA, "cloud metadata"),
    ("168.63.129.16/32", RefusalReason.METADATA, "cloud host agent"),  # a public address, in no special range
    ("0.0.0.0/8", RefusalReason.UNSPECIFIED, "this network"),
    ("127.0.0.0/8", RefusalReason.LOOPBACK, "loopback"),
    ("10.0.0.0/8", RefusalReason.PRIVATE, "private use"),
    ("172.16.0.0/12", RefusalReason.PRIVATE, "private use"),
    ("192.168.0.0/16", RefusalReason.PRIVATE, "private use"),
    ("100.64.0.0/10", RefusalReason.SHARED, "shared by carriers"),
    ("169.254.0.0/16", RefusalReason.LINK_LOCAL, "link-local"),
    ("192.0.2.0/24", RefusalReason.DOCUMENTATION, "documentation"),
    ("198.51.100.0/24", RefusalReason.DOCUMENTATION, "documentation"),
    ("203.0.113.0/24", RefusalReason.DOCUMENTATION, "documentation"),
    ("192.88.99.0/24", RefusalReason.TRANSITION, "6to4 relay"),
    ("192.0.0.0/24", RefusalReason.RESERVED, "protocol assignments"),
    ("192.31.196.0/24", RefusalReason.RESERVED, "AS112 sink"),
    ("192.52.193.0/24", RefusalReason.RESERVED, "multicast tunnelling"),
    ("192.175.48.0/24", RefusalReason.RESERVED, "AS112 sink"),
    ("198.18.0.0/15", RefusalReason.RESERVED, "benchmarking"),
    ("224.0.0.0/4", RefusalReason.MULTICAST, "multicast"),
    ("255.255.255.255/32", RefusalReason.BROADCAST, "broadcast"),
    ("240.0.0.0/4", RefusalReason.RESERVED, "reserved"),
)

# Mapped addresses (::ffff:0:0/96) are not listed: `read_address` turns them into the IPv4 address that they are.
SPECIAL_IPV6 = _table(
    ("fd00:ec2::254/128", RefusalReason.METADATA, "cloud metadata"),
    ("fd00:ec2::23/128", RefusalReason.METADATA, "container credentials"),
    ("fd20:ce::254/128", RefusalReason.METADATA, "cloud metadata"),
    ("::/128", RefusalReason.UNSPECIFIED, "unspecified"),
    ("::1/128", RefusalReason.LOOPBACK, "loopback"),
    ("::/96", RefusalReason.TRANSITION, "IPv4-compatible"),
    ("::ffff:0:0:0/96", RefusalReason.TRANSITION, "IPv4-translated"),
    ("64:ff9b::/96", RefusalReason.TRANSITION, "NAT64"),
    ("64:ff9b:1::/48", RefusalReason.TRANSITION, "local NAT64"),
    ("100::/64", RefusalReason.RESERVED, "discard only"),
    ("100:0:0:1::/64", RefusalReason.RESERVED, "dummy prefix"),
    ("2001::/32", RefusalReason.TRANSITION, "Teredo"),
    ("2001::/23", RefusalReason.RESERVED, "protocol assignments"),
    ("2001:db8::/32", RefusalReason.DOCUMENTATION, "documentation"),
    ("2002::/16", RefusalReason.TRANSITION, "6to4"),
    ("2620:4f:8000::/48", RefusalReason.RESERVED, "AS112 sink"),
    ("3fff::/20", RefusalReason.DOCUMENTATION, "documentation"),
    ("5f00::/16", RefusalReason.RESERVED, "segment routing"),
    ("fc00::/7", RefusalReason.PRIVATE, "unique local"),
    ("fe80::/10", RefusalReason.LINK_LOCAL, "link-local"),
    ("fec0::/10", RefusalReason.PRIVATE, "site-local"),
    ("ff00::/8", RefusalReason.MULTICAST, "multicast"),
    # IANA assigns unicast addresses in 2000::/3 alone, so whatever else lies outside of it is refused as a whole.
    ("::/3", RefusalReason.RESERVED, "outside of 2000::/3"),
    ("4000::/2", RefusalReason.RESERVED, "outside of 2000::/3"),
    ("8000::/1", RefusalReason.RESERVED, "outside of 2000::/3"),
)

_NAT64 = IPv6Network("64:ff9b::/96")


def _as_numbers(table: tuple[SpecialRange, ...]) -> tuple[tuple[int, int, SpecialRange], ...]:
    return tuple((int(row.network[0]), int(row.network[-1]), row) for row in table)


_NUMBERS_IPV4 = _as_numbers(SPECIAL_IPV4)
_NUMBERS_IPV6 = _as_numbers(SPECIAL_IPV6)


def read_address(ip: str | bytes) -> Address | None:
    """Read an address from its text or its 4 or 16 bytes in network order; None for anything else.

    Zone ids, leading zeros and short forms are not read. A mapped address (`::ffff:10.0.0.5`) becomes its IPv4 address:
    a socket that dials the one reaches the other.
    """
    try:
        address = ip_address(ip)
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    return None if address.scope_id is not None else address.ipv4_mapped or address


def classify(address: Address) -> SpecialRange | None:
    """The special range that holds the address, or None if it is a public unicast address."""
    number = int(address)
    for first, last, special in _NUMBERS_IPV4 if address.version == 4 else _NUMBERS_IPV6:
        if first <= number <= last:
            return special
    return None


def translated_by_nat64(address: Address) -> IPv4Address | None:
    """The IPv4 address that the well-known NAT64 prefix (RFC 6052) carries in its last 32 bits; None outside of it."""
    return IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else None
