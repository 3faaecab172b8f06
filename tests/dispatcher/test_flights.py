"""Permits are taken and returned, whatever becomes of their flight."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relay.dispatcher.directory import Address
from relay.dispatcher.flights import Flight, Flights
from relay.transports import http
from tests.support.deliveries import claimed, destination, new_id

LIMIT, AHEAD = 3, 2
ENDPOINTS = [new_id() for _ in range(3)]


def flight(**changes: Any) -> Flight:
    target = destination()
    ready = http.prepare(target, user_agent="Relay/test", timeout_seconds=10.0)
    address = Address(target.endpoint_id, target.tenant, 1, target.name, target.ack, target.retry, ready)
    return Flight(claimed(**changes), address, asked_at=0.0, claimed_at=0.0, lease_seconds=60.0)


def busy(flights: Flights) -> dict[UUID, int]:
    allowance = flights.lanes.allowance(0.0)
    return {lane: number for lane, number in zip(allowance.lanes, allowance.busy, strict=True) if number}


def test_landing_twice_returns_a_permit_once() -> None:
    flights = Flights(limit=LIMIT, ahead=AHEAD)
    first, second = flight(endpoint_id=ENDPOINTS[0]), flight(endpoint_id=ENDPOINTS[0])
    flights.board([first, second], 0.0)
    for each in flights.ready():
        flights.launch(each, 1.0)
    flights.land(first)
    flights.land(first)
    assert (flights.launched, busy(flights)) == (1, {ENDPOINTS[0]: 1})


def test_grounding_returns_what_was_not_launched_and_its_permits() -> None:
    flights = Flights(limit=1, ahead=AHEAD)
    boarded = [flight(endpoint_id=ENDPOINTS[0]) for _ in range(3)]
    flights.board(boarded, 0.0)
    (launched,) = flights.ready()
    flights.launch(launched, 1.0)
    assert flights.ground() == boarded[1:]
    assert (flights.held, busy(flights)) == (1, {ENDPOINTS[0]: 1})


class Permits(RuleBasedStateMachine):
    """Whatever is done in whatever order, the counts are those of the flights that are held."""

    def __init__(self) -> None:
        super().__init__()
        self.flights = Flights(limit=LIMIT, ahead=AHEAD)
        self.waiting: list[Flight] = []
        self.launched: list[Flight] = []

    @precondition(lambda self: self.flights.room > 0)
    @rule(endpoint=st.sampled_from(ENDPOINTS))
    def board(self, endpoint: Any) -> None:
        each = flight(endpoint_id=endpoint)
        self.flights.board([each], 0.0)
        self.waiting.append(each)

    @rule()
    def launch(self) -> None:
        ready = self.flights.ready()
        assert ready == self.waiting[: len(ready)]
        del self.waiting[: len(ready)]
        for each in ready:
            self.flights.launch(each, 1.0)
        self.launched += ready

    @precondition(lambda self: self.launched)
    @rule()
    def land(self) -> None:
        self.flights.land(self.launched.pop())

    @rule()
    def ground(self) -> None:
        assert self.flights.ground() == self.waiting
        self.waiting = []

    @invariant()
    def counts_are_true(self) -> None:
        held = self.waiting + self.launched
        assert self.flights.launched == len(self.launched) <= LIMIT
        assert self.flights.held == len(held)
        assert busy(self.flights) == dict(Counter(each.claimed.endpoint_id for each in held))


TestPermits = Permits.TestCase
TestPermits.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
