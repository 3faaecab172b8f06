"""The broker: what carries ids of deliveries that are due between the dispatchers of a fleet.

Owns the Protocol (`broker.py`) and its transport, Redis Streams. Which deliveries are announced, when again, and what
is done meanwhile without a broker is the dispatcher's. Invariant: ids of rows that are committed in PostgreSQL go over
the wire and nothing else, so whatever the broker holds may be lost at any moment.

What needs the client's library is imported when it is first asked for, by `relay.broker.RedisStreams`: that library
brings ten megabytes with it, which a process without a broker does not pay.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from relay.broker.address import Address, AddressRefused, read_address
from relay.broker.broker import LONGEST_WAIT_SECONDS, MESSAGE_DELIVERIES, Broker, BrokerUnavailable, Message, Standing

if TYPE_CHECKING:
    from relay.broker.client import ServerFacts
    from relay.broker.redis_streams import RedisStreams

__all__ = [
    "LONGEST_WAIT_SECONDS",
    "MESSAGE_DELIVERIES",
    "Address",
    "AddressRefused",
    "Broker",
    "BrokerUnavailable",
    "Message",
    "RedisStreams",
    "ServerFacts",
    "Standing",
    "read_address",
]

_LATER = {"RedisStreams": "relay.broker.redis_streams", "ServerFacts": "relay.broker.client"}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
