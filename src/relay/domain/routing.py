"""Routing: which endpoints an event goes to.

Owns the form of event types and patterns, and the rule set as one value with one version. Invariant: the answer depends
on nothing but tenant, type and rule set; it names each endpoint once, in the order of the rules.

A pattern is an exact type, `invoice.*` for one or more further segments, or `*` for every type. So a type of n segments
is matched by n + 1 patterns at most, and a rule set is a look-up table by pattern: however many rules there are,
routing asks for those few.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from uuid import UUID

ALL = "*"
LONGEST_TYPE = 128

_TYPE = re.compile(r"[A-Za-z0-9_/-]+(?:\.[A-Za-z0-9_/-]+)*")
_BELOW = ".*"


class InvalidEventType(ValueError):
    """The text is no event type; the message says what one looks like."""


class InvalidPattern(ValueError):
    """The text is no pattern of event types; the message says what one looks like."""


def check_event_type(text: str) -> str:
    """Return the type as it is. Raises `InvalidEventType`; types are compared as written, case included."""
    if len(text) > LONGEST_TYPE or not _TYPE.fullmatch(text):
        raise InvalidEventType(
            f"an event type is 1 to {LONGEST_TYPE} of A-Z a-z 0-9 _ - / in segments joined by single dots"
        )
    return text


def check_pattern(text: str) -> str:
    """Return the pattern as it is. Raises `InvalidPattern`."""
    stem = text.removesuffix(_BELOW)
    if text != ALL and (len(stem) > LONGEST_TYPE or not _TYPE.fullmatch(stem)):
        raise InvalidPattern("a pattern is an event type, the beginning of one followed by .*, or * for all types")
    return text


@dataclass(frozen=True, slots=True)
class Rule:
    """An endpoint's subscription: it wants the events of its tenant whose type matches one of the patterns."""

    endpoint_id: UUID
    consumer: str
    tenant: str
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules in force at a version.

    Each rule of an endpoint counts as if it were one rule with all of its patterns, in the place of the first.
    """

    version: int
    rules: tuple[Rule, ...]
    _places: dict[str, dict[str, tuple[int, ...]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", _index(self.rules))

    def route(self, tenant: str, event_type: str) -> tuple[Rule, ...]:
        """The rules, one for each endpoint, that want this event; empty where there is no route."""
        by_pattern = self._places.get(tenant, {})
        found = [by_pattern[pattern] for pattern in matching_patterns(event_type) if pattern in by_pattern]
        # A single list is already in order and without repetitions.
        places = found[0] if len(found) == 1 else sorted(set(chain.from_iterable(found)))
        return tuple([self.rules[place] for place in places])

    def patterns(self, tenant: str) -> Iterable[str]:
        """Every pattern that some rule of the tenant has, once each."""
        return self._places.get(tenant, {}).keys()


def matching_patterns(event_type: str) -> Iterator[str]:
    """Every pattern that matches this type, the most specific first."""
    yield event_type
    end = event_type.rfind(".")
    while end > 0:
        yield event_type[:end] + _BELOW
        end = event_type.rfind(".", 0, end)
    yield ALL


def _index(rules: Iterable[Rule]) -> dict[str, dict[str, tuple[int, ...]]]:
    """By tenant and pattern the places of the rules that have it, each endpoint by its first place."""
    first_place: dict[tuple[str, UUID], int] = {}
    wanted: dict[str, dict[str, set[int]]] = {}
    for place, rule in enumerate(rules):
        first = first_place.setdefault((rule.tenant, rule.endpoint_id), place)
        for pattern in rule.patterns:
            wanted.setdefault(rule.tenant, {}).setdefault(pattern, set()).add(first)
    return {
        tenant: {pattern: tuple(sorted(places)) for pattern, places in patterns.items()}
        for tenant, patterns in wanted.items()
    }
