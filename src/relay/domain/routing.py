"""Routing: which endpoints an event goes to.

Owns the form of event types and patterns, and the rule set as one value with one version. Invariant: the answer depends
on nothing but tenant, type and rule set; it names each endpoint once, in the order of the rules.

A pattern is an exact type, `invoice.*` for one or more further segments, or `*` for every type. So a type of n segments
is matched by n + 1 patterns at most, and a rule set is a look-up table by pattern: however many rules there are,
routing asks for those few.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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


class RuleSet:
    """All rules in force at a version; it never changes, and one that differs little is made from it (`changed`).

    Each rule of an endpoint counts as if it were one rule with all of its patterns, in the place of the first. What a
    tenant's look-up table costs is paid when the tenant's first event is routed, and for that tenant alone.
    """

    __slots__ = ("_tenants", "version")

    def __init__(self, version: int, rules: Iterable[Rule]) -> None:
        self.version = version
        by_tenant: dict[str, list[Rule]] = {}
        for rule in rules:
            by_tenant.setdefault(rule.tenant, []).append(rule)
        self._tenants = {tenant: _OfTenant(tuple(theirs)) for tenant, theirs in by_tenant.items()}

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All of them, tenant by tenant."""
        return tuple(chain.from_iterable(theirs.rules for theirs in self._tenants.values()))

    def of(self, tenant: str) -> tuple[Rule, ...]:
        """The tenant's rules."""
        return self._tenants.get(tenant, _NOBODYS).rules

    def route(self, tenant: str, event_type: str) -> tuple[Rule, ...]:
        """The rules, one for each endpoint, that want this event; empty where there is no route."""
        theirs = self._tenants.get(tenant, _NOBODYS)
        by_pattern = theirs.places
        found = [by_pattern[pattern] for pattern in matching_patterns(event_type) if pattern in by_pattern]
        # A single list is already in order and without repetitions.
        places = found[0] if len(found) == 1 else sorted(set(chain.from_iterable(found)))
        return tuple([theirs.rules[place] for place in places])

    def patterns(self, tenant: str) -> Iterable[str]:
        """Every pattern that some rule of the tenant has, once each."""
        return self._tenants.get(tenant, _NOBODYS).places.keys()

    def changed(self, version: int, rules: Iterable[Rule], gone: Iterable[tuple[str, UUID]] = ()) -> RuleSet:
        """The same with these rules, one for each endpoint, in the places of those that it had, or last, and without
        the endpoints that are gone, each named with its tenant. It costs what the tenants concerned have, and of all
        others a place each in a table that is copied (2 ms among 100,000)."""
        wanted: dict[str, dict[UUID, Rule | None]] = {}
        for tenant, endpoint in gone:
            wanted.setdefault(tenant, {})[endpoint] = None
        for rule in rules:
            wanted.setdefault(rule.tenant, {})[rule.endpoint_id] = rule
        made = RuleSet(version, ())
        made._tenants = dict(self._tenants)  # of its own class, before anybody has it
        for tenant, theirs in wanted.items():
            made._tenants.pop(tenant, None)
            if left := tuple(_changed(self.of(tenant), theirs)):
                made._tenants[tenant] = _OfTenant(left)
        return made


class _OfTenant:
    """One tenant's rules, with their places by pattern once they are asked for: each endpoint by its first place."""

    __slots__ = ("_places", "rules")

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self._places: dict[str, tuple[int, ...]] | None = None

    @property
    def places(self) -> dict[str, tuple[int, ...]]:
        if self._places is None:
            self._places = _index(self.rules)
        return self._places


def matching_patterns(event_type: str) -> Iterator[str]:
    """Every pattern that matches this type, the most specific first."""
    yield event_type
    end = event_type.rfind(".")
    while end > 0:
        yield event_type[:end] + _BELOW
        end = event_type.rfind(".", 0, end)
    yield ALL


def _changed(rules: Iterable[Rule], wanted: Mapping[UUID, Rule | None]) -> Iterator[Rule]:
    left = dict(wanted)
    for rule in rules:
        now = left.pop(rule.endpoint_id, None) if rule.endpoint_id in wanted else rule
        if now is not None:
            yield now
    yield from (rule for rule in left.values() if rule is not None)


def _index(rules: Iterable[Rule]) -> dict[str, tuple[int, ...]]:
    first_place: dict[UUID, int] = {}
    wanted: dict[str, set[int]] = {}
    for place, rule in enumerate(rules):
        first = first_place.setdefault(rule.endpoint_id, place)
        for pattern in rule.patterns:
            wanted.setdefault(pattern, set()).add(first)
    return {pattern: tuple(sorted(places)) for pattern, places in wanted.items()}


_NOBODYS = _OfTenant(())
