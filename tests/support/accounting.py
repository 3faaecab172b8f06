"""What was promised to senders, and what came of it at the receiver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from relay.testkit.arrivals import Arrival
from tests.support.producer import Event
from tests.support.wire import Reply


def event_of(arrival: Arrival) -> str:
    """The id of the event that arrived."""
    return next(value for name, value in arrival.headers if name.lower() == "relay-event-id")


def assert_complete(arrivals: Iterable[Arrival], accepted: Mapping[str, Reply], sent: Iterable[Event]) -> None:
    """Every accepted event has arrived, with its own bytes, and each time under the delivery id that its 202 named."""
    bodies = {event.key: event.body for event in sent}
    ids = defaultdict(set)
    for arrival in arrivals:
        assert arrival.body == bodies[event_of(arrival)]
        ids[event_of(arrival)].add(arrival.delivery_id)
    promised = {key: {owed["id"] for owed in reply.json()["deliveries"]} for key, reply in accepted.items()}
    assert ids == promised
