"""The HTTP API but for the ingest of events: endpoints, receipts, deliveries, health, and its own description.

Owns the resources' shapes on the wire and the checks of what a client may set. What the values mean is the domain's,
where they live is the store's. Invariant: whatever is sent, the answer is a resource or a problem document, and a
request that was refused has changed nothing.
"""

from relay.api.app import create_api
from relay.api.deps import ApiDeps, EndpointLimits

__all__ = ["ApiDeps", "EndpointLimits", "create_api"]
