"""Who is at the other end of a connection, looked at once, when it is made.

Owns the list of trusted proxies and the look at a connection's certificate. Invariant: nothing that a client sends
decides whether it is a proxy; only the address that it comes from does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address

from relay.settings.kinds import Network
from relay.web.certificates import UNREADABLE, Certificate, Peer, Unreadable, read_certificate


class Peers:
    """Knows the peers of one listener. `proxies` are the networks whose hosts are believed what they hand on."""

    def __init__(self, proxies: Sequence[Network] = ()) -> None:
        self._proxies = proxies

    def look(self, transport: asyncio.Transport, address: str | None) -> Peer | None:
        """Who connected from that address; None for a client that showed nothing.

        The certificate of a proxy is the proxy's own, and says nothing of its clients.
        """
        if self._proxies and address is not None and self._is_proxy(address):
            return Peer(is_proxy=True)
        certificate = _certificate_of(transport)
        return None if certificate is None else Peer(is_proxy=False, certificate=certificate)

    def _is_proxy(self, address: str) -> bool:
        found = ip_address(address)
        if isinstance(found, IPv6Address):
            # how a socket for both families shows who came by the older one; a network has no zone
            found = found.ipv4_mapped or IPv6Address(found.packed)
        return any(found in network for network in self._proxies)


def _certificate_of(transport: asyncio.Transport) -> Certificate | None:
    tls = transport.get_extra_info("ssl_object")
    der: bytes | None = None if tls is None else tls.getpeercert(True)
    if der is None:
        return None
    try:
        return read_certificate(der)
    except Unreadable:
        return UNREADABLE
