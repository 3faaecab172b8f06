"""The pictures in the architecture page are those of the tables in the code."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import relay
from relay.domain.diagram import breaker_diagram, delivery_diagram

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"


def block(name: str, text: str) -> str:
    match = re.search(rf"<!-- generated: {name} -->\n```mermaid\n(.*?)```\n<!-- end -->", text, re.DOTALL)
    assert match is not None, f"docs/architecture.md has no block {name}"
    return match[1]


@pytest.mark.parametrize("draw", [delivery_diagram, breaker_diagram])
def test_the_diagram_is_the_table(draw: Callable[[], str]) -> None:
    assert block(draw.__name__, PAGE.read_text(encoding="utf-8")).strip() == draw().strip()


def rooms() -> set[str]:
    package = Path(relay.__file__).parent
    return {entry.stem for entry in package.iterdir() if entry.is_dir() and any(entry.glob("*.py"))}


def test_every_room_is_described() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert {room for room in rooms() if f"| `{room}` |" not in text} == set()


def test_a_room_that_there_is_may_not_be_absent_from_its_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = (each["layers"] for each in contracts if each["type"] == "layers")
    places = {place.strip() for layer in layers for place in layer.split("|")}
    assert {place for place in places if not place.startswith("(")} == rooms()
