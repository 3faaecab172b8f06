"""Where an installation may send: the egress policy, and the chat platforms' addresses.

Owns the one way from settings to both: the gateway judges urls by them when an endpoint is written, the dispatcher
urls and addresses before each send. Invariant: both processes, given the same settings, judge alike.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from ipaddress import ip_address

from relay.app import interfaces
from relay.domain.egress import Address, EgressPolicy
from relay.settings import Bind, Settings
from relay.transports.chat import Platforms

logger = logging.getLogger("relay")


def policy_of(settings: Settings) -> EgressPolicy:
    """What endpoints may be, by these settings."""
    return EgressPolicy(
        allow_private=settings.allow_private_endpoints,
        require_https=settings.require_https,
        allowed_ports=settings.allowed_ports,
        allow_cidrs=settings.egress_allow_cidrs,
        own_addresses=frozenset(_own_addresses(settings.bind, settings.metrics_bind)),
        own_loopback_ports=frozenset(_own_loopback_ports(settings.bind, settings.metrics_bind)),
    )


def platforms_of(settings: Settings) -> Platforms:
    """Where the chat platforms' APIs are, by these settings."""
    return Platforms(telegram=settings.telegram_url, discord=settings.discord_url)


def _own_addresses(*binds: Bind) -> Iterator[Address]:
    """The addresses that Relay listens on, as far as this machine knows them: a relay that sends to itself is a loop,
    and its API may trust whoever comes from here.

    Loopback is left out: it is refused for what it is, and where it is opened it is shared with others. An address
    that a router or a balancer translates to one of this machine's is not known here.
    """
    for bind in binds:
        for bound in _bound_to(bind):
            if bound.is_unspecified:
                yield from interfaces.addresses()
            elif not bound.is_loopback:
                yield bound


def _own_loopback_ports(*binds: Bind) -> Iterator[int]:
    """The ports by which Relay is reached over loopback; one that the system chooses at the start is not known here."""
    for bind in binds:
        if bind.port and any(bound.is_loopback or bound.is_unspecified for bound in _bound_to(bind)):
            yield bind.port


def _bound_to(bind: Bind) -> list[Address]:
    """What is bound: an address as it stands, or those of a name."""
    try:
        return [ip_address(bind.host)]
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(bind.host, None, type=socket.SOCK_STREAM)
    except OSError:  # a name that means nothing here leads nobody back to us
        return []
    return [ip_address(str(address[0]).partition("%")[0]) for _, _, _, _, address in found]


def tell_of_bug(what: str, bug: BaseException) -> None:
    """Write a line about a bug in a request; of which delivery, its trace says."""
    logger.error("sender_met_bug", exc_info=bug, extra={"fields": {"detail": what}})
