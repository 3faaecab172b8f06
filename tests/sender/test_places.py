"""Places on the wire: bounded, given to whoever waits longest, at a price that does not grow with the line."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relay.sender.places import Origin, Places

TOTAL, PER_ORIGIN = 4, 2
ORIGINS = range(3)


class Lines(RuleBasedStateMachine):
    """Whatever is done in whatever order, the next one is the first in a plain list whose origin has room."""

    def __init__(self) -> None:
        super().__init__()
        self.places: Places[tuple[int, int]] = Places(total=TOTAL, per_origin=PER_ORIGIN)
        self.origins: list[Origin[tuple[int, int]]] = [Origin() for _ in ORIGINS]
        self.line: list[tuple[int, int]] = []
        self.on_wire: list[int] = []
        self.count = 0

    def room(self, number: int) -> bool:
        return len(self.on_wire) < TOTAL and self.on_wire.count(number) < PER_ORIGIN

    @rule(number=st.sampled_from(ORIGINS))
    def arrive(self, number: int) -> None:
        assert self.places.has_room(self.origins[number]) is self.room(number)
        if self.room(number):
            self.places.take(self.origins[number])
            self.on_wire.append(number)
        else:
            self.count += 1
            self.line.append((number, self.count))
            self.places.wait(self.origins[number], self.line[-1])

    @precondition(lambda self: self.on_wire)
    @rule(data=st.data(), takes=st.booleans())
    def leave(self, data: Any, takes: bool) -> None:
        number = data.draw(st.sampled_from(sorted(set(self.on_wire))))
        self.on_wire.remove(number)
        self.places.give_back(self.origins[number])
        while (item := self.places.next()) is not None:
            assert item == next(each for each in self.line if self.room(each[0]))
            self.line.remove(item)
            if takes:  # else it came to nothing before it began
                self.places.take(self.origins[item[0]])
                self.on_wire.append(item[0])
        assert not any(self.room(number) for number, _ in self.line)

    @rule(kept=st.integers(1, 5))
    def grow_late(self, kept: int) -> None:
        late = [each for each in self.line if each[1] % kept]
        assert sorted(self.places.take_out(lambda each: bool(each[1] % kept))) == sorted(late)
        self.line = [each for each in self.line if each not in late]

    @invariant()
    def counts_are_those_of_the_model(self) -> None:
        assert self.places.on_wire == len(self.on_wire)
        assert self.places.anyone_waits is bool(self.line)


TestLines = Lines.TestCase
TestLines.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def calls_of_handing_a_place_on(waiting: int) -> int:
    places: Places[int] = Places(total=2, per_origin=1)
    full, other = Origin[int](), Origin[int]()
    places.take(full)
    places.take(other)
    for number in range(waiting):
        places.wait(full, number)
        places.wait(other, number)
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.disable()  # what other tests left to be collected would be counted as well
    sys.setprofile(count)
    try:
        places.give_back(other)
        item = places.next()
    finally:
        sys.setprofile(None)
        gc.enable()
    assert item == 0
    return calls


@pytest.mark.parametrize("waiting", [100, 5000])
def test_handing_a_place_on_costs_the_same_however_many_wait(waiting: int) -> None:
    assert calls_of_handing_a_place_on(waiting) == calls_of_handing_a_place_on(2)
