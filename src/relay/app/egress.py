"""The egress policy of an installation.

Owns the one way from settings to the policy: the gateway judges urls by it when an endpoint is written, the dispatcher
urls and addresses before each send. Invariant: both processes, given the same settings, judge alike.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import ip_address

from relay.app import interfaces
from relay.domain.egress import Address, EgressPolicy
from relay.settings import Bind, Settings


def policy_of(settings: Settings) -> EgressPolicy:
    """What endpoints may be, by these settings."""
    return EgressPolicy(
        allow_private=settings.allow_private_endpoints,
        require_https=settings.require_https,
        allowed_ports=settings.allowed_ports,
        allow_cidrs=settings.egress_allow_cidrs,
        own_addresses=frozenset(_own_addresses(settings.bind, settings.metrics_bind)),
    )


def _own_addresses(*binds: Bind) -> Iterator[Address]:
    """The addresses that Relay listens on, as far as this machine knows them: a relay that sends to itself is a loop,
    and its API may trust whoever comes from here.

    Loopback is left out, since it is refused for what it is. An address that a router or a balancer translates to one
    of this machine's is not known here.
    """
    for bind in binds:
        try:
            bound = ip_address(bind.host)
        except ValueError:
            yield from _addresses_of(bind.host)
        else:
            if bound.is_unspecified:
                yield from interfaces.addresses()
            elif not bound.is_loopback:
                yield bound


def _addresses_of(name: str) -> Iterator[Address]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:  # a name that means nothing here leads nobody back to us
        return
    for _, _, _, _, address in found:
        known = ip_address(str(address[0]).partition("%")[0])
        if not known.is_loopback:
            yield known
