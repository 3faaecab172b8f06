"""Claims about the diagrams that are drawn from the transition tables."""

import re

from relay.domain import breaker, delivery
from relay.domain.diagram import breaker_diagram, delivery_diagram, diagram

ARROW = re.compile(r"    (\w+) --> (\w+): (\w+(?:, \w+)*)")


def arrows(text: str) -> dict[tuple[str, str], str]:
    """Every labelled arrow of a diagram, one entry for each of its labels."""
    drawn: dict[tuple[str, str], str] = {}
    for line in text.splitlines()[2:]:
        arrow = ARROW.fullmatch(line)
        assert arrow, line
        drawn |= {(arrow[1], label): arrow[2] for label in arrow[3].split(", ")}
    return drawn


def test_the_diagram_of_a_delivery_has_the_moves_of_its_table() -> None:
    assert arrows(delivery_diagram()) == delivery.MOVES


def test_the_diagram_of_a_breaker_has_the_moves_of_its_table() -> None:
    assert arrows(breaker_diagram()) == breaker.MOVES


def test_moves_between_the_same_states_share_an_arrow() -> None:
    state, move = breaker.BreakerState, breaker.BreakerMove
    table = {
        (state.CLOSED, move.TRIP): state.OPEN,
        (state.OPEN, move.PROBE): state.CLOSED,
        (state.OPEN, move.RELEASE): state.CLOSED,
    }

    assert diagram(state.CLOSED, table) == (
        "stateDiagram-v2\n    [*] --> closed\n    closed --> open: trip\n    open --> closed: probe, release\n"
    )
