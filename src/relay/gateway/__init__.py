"""B1 and B2 of an event's way: check it, wrap it, route it, make it durable, and only then say yes.

Owns `POST /v1/events` and its batch: the order of the checks, the envelope, routing by the newest rules and the group
commit. How the journal writes is the store's. Invariant: a 202 leaves only after its event is durable with its whole
fan-out, and a refused request has stored nothing.
"""

from relay.gateway.appender import APPEND_SECONDS
from relay.gateway.gateway import Gateway, IngestLimits, Rulebook, create_gateway
from relay.gateway.senders import Senders

__all__ = ["APPEND_SECONDS", "Gateway", "IngestLimits", "Rulebook", "Senders", "create_gateway"]
