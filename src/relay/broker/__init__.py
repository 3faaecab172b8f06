"""The broker: what carries ids of deliveries that are due between the dispatchers of a fleet.

Owns the Protocol (`broker.py`) and its transport, Redis Streams. Which deliveries are announced, when again, and what
is done meanwhile without a broker is the dispatcher's. Invariant: ids of rows that are committed in PostgreSQL go over
the wire and nothing else, so whatever the broker holds may be lost at any moment.
"""

from relay.broker.address import Address, AddressRefused, read_address
from relay.broker.broker import LONGEST_WAIT_SECONDS, MESSAGE_DELIVERIES, Broker, BrokerUnavailable, Message, Standing
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
