"""Claims about the events that a load posts."""

from __future__ import annotations

import json
from collections import Counter

from relay.loadtest.open_loop import READY_BYTES, Bodies


def kinds(bodies: Bodies, number: int) -> list[tuple[str, int]]:
    return [(json.loads(bodies[place])["type"], len(bodies[place])) for place in range(number)]


def test_sizes_come_in_turn() -> None:
    assert [size for _, size in kinds(Bodies((100, 200)), 4)] == [100, 200, 100, 200]


def test_every_type_comes_in_every_size() -> None:
    bodies = Bodies((100, 200), types=4)
    assert Counter(kinds(bodies, len(bodies))) == Counter(
        {(f"bench.event.{place}", size): 1 for place in range(4) for size in (100, 200)}
    )


def test_types_come_in_turn() -> None:
    assert [kind for kind, _ in kinds(Bodies((100, 200), types=2), 3)] == [
        "bench.event.0",
        "bench.event.1",
        "bench.event.0",
    ]


def test_bodies_that_would_take_much_memory_are_not_kept() -> None:
    assert Bodies((500,), types=1_000).fit
    assert not Bodies((READY_BYTES // 100,), types=101).fit
