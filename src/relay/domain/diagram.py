"""State diagrams for the documentation, drawn from the transition tables themselves.

Owns the drawing only, in Mermaid's text form. Invariant: a diagram has exactly the moves of its table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from relay.domain import breaker, delivery

State = TypeVar("State", bound=StrEnum)
Move = TypeVar("Move", bound=StrEnum)


def diagram(start: State, moves: Mapping[tuple[State, Move], State]) -> str:
    """The table as a Mermaid state diagram, one arrow for each pair of states, labelled with all of its moves."""
    arrows: dict[tuple[State, State], list[Move]] = {}
    for (state, move), after in moves.items():
        arrows.setdefault((state, after), []).append(move)
    lines = [f"    {state} --> {after}: {', '.join(labels)}" for (state, after), labels in arrows.items()]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {start}", *lines, ""])


def delivery_diagram() -> str:
    """The life of a delivery."""
    return diagram(delivery.DeliveryStatus.PENDING, delivery.MOVES)


def breaker_diagram() -> str:
    """The life of a lane's circuit breaker."""
    return diagram(breaker.BreakerState.CLOSED, breaker.MOVES)
