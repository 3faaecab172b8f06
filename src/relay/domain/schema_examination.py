"""What a JSON Schema may be, judged before anything compiles it, and how much work one look at it is.

Owns Relay's own limits: nothing outside of the schema is referred to, no reference runs in a circle without going into
the data, and written out in full, with every reference replaced by what it refers to, a schema stays small. Whether
its keywords are right is its compiler's to say. Invariant: what is let through with a bounded weight visits each part
of the data at most that many times, so weight times bytes of data bounds its work.

Source: JSON Schema 2020-12, core 8.2 (references), 10.2 and 10.3 (which keywords hold schemas, and of what).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

DIALECT = "https://json-schema.org/draft/2020-12/schema"

MOST_DEPTH = 64
"""How deeply the schema's JSON is nested, at most."""

MOST_STEPS = 128
"""How many schemas may be inside each other once every reference is written out."""

MOST_WEIGHT = 100_000
"""How many keywords and values there may be once every reference is written out."""


class InvalidSchema(ValueError):
    """The schema is not taken: where in it (a JSON Pointer), and why."""

    def __init__(self, pointer: str, detail: str) -> None:
        super().__init__(f"{pointer}: {detail}")
        self.pointer = pointer
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Work:
    """How much a schema asks for: `weight` bounds how often each part of the data is visited, if `is_bounded`.

    It is not where the schema is recursive, since then the depth of the data decides, or speaks of what is left
    unevaluated, since that is found out anew for each member.
    """

    weight: int
    is_bounded: bool


class _Child(NamedTuple):
    """A schema within another. `in_place`: it is applied to the same data, not to a part; None: to none by itself."""

    pointer: str
    schema: object
    in_place: bool | None


class _Weighed(NamedTuple):
    weight: int
    steps: int
    is_bounded: bool


_ONE: Mapping[str, bool] = {
    "not": True,
    "if": True,
    "then": True,
    "else": True,
    "items": False,
    "contains": False,
    "additionalProperties": False,
    "propertyNames": False,
    "unevaluatedItems": False,
    "unevaluatedProperties": False,
    "contentSchema": False,
}
_LISTED: Mapping[str, bool] = {"allOf": True, "anyOf": True, "oneOf": True, "prefixItems": False}
_NAMED: Mapping[str, bool | None] = {
    "dependentSchemas": True,
    "properties": False,
    "patternProperties": False,
    "$defs": None,
    "definitions": None,
}
_HOLDING = frozenset({*_ONE, *_LISTED, *_NAMED})
_REFERENCES = ("$ref", "$dynamicRef")
_UNEVALUATED = frozenset({"unevaluatedItems", "unevaluatedProperties"})

_LEAF = _Weighed(1, 0, is_bounded=True)
_AGAIN = _Weighed(1, 0, is_bounded=False)

_REPEATED = re.compile(r"\{([0-9]{1,9})(?:,([0-9]{0,9}))?\}")


def examine(schema: object) -> Work:
    """Judge a schema, as its JSON was read. Raises `InvalidSchema`."""
    if not isinstance(schema, dict):
        if isinstance(schema, bool):
            return Work(1, is_bounded=True)
        raise InvalidSchema("", "a schema is an object, or true or false")
    _check_depth(schema)
    return _Examination(schema).judge()


class _Examination:
    """One schema under examination; its parts are known by their identity, for each stands in it once."""

    def __init__(self, root: dict[str, object]) -> None:
        self._root = root
        self._base = _read_base(root)
        self._pointers: dict[int, str] = {}
        self._anchors: dict[str, object] = {}
        self._weighed: dict[int, _Weighed] = {}
        self._open: set[int] = set()

    def judge(self) -> Work:
        self._survey()
        self._refuse_circles()
        for pointer, schema in self._parts():
            self._weigh(pointer, schema, 0)
        weighed = self._weighed[id(self._root)]
        return Work(weighed.weight, weighed.is_bounded)

    def _survey(self) -> None:
        """Find every schema within, and the anchors."""
        waiting: list[tuple[str, object]] = [("", self._root)]
        while waiting:
            pointer, schema = waiting.pop()
            if not isinstance(schema, dict):
                continue
            self._pointers[id(schema)] = pointer
            _check_dialect(pointer, schema)
            if pointer and "$id" in schema:
                raise InvalidSchema(f"{pointer}/$id", "only the whole schema may have an $id")
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(name := schema.get(keyword), str):
                    self._anchors[name] = schema
            waiting += [(child.pointer, child.schema) for child in _children(pointer, schema)]

    def _parts(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Every schema within, the whole one first."""
        yield "", self._root
        yield from self._below("", self._root)

    def _below(self, pointer: str, schema: dict[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
        for child in _children(pointer, schema):
            if isinstance(child.schema, dict):
                yield child.pointer, child.schema
                yield from self._below(child.pointer, child.schema)

    def _refuse_circles(self) -> None:
        """Raises `InvalidSchema` where applying a schema to some data leads back to it with the same data."""
        done: set[int] = set()
        for start, schema in self._parts():
            if id(schema) in done:
                continue
            under_way = {id(schema)}
            path = [(schema, self._in_place(start, schema))]
            while path:
                current, ahead = path[-1]
                following = next(ahead, None)
                if following is None:
                    path.pop()
                    under_way.discard(id(current))
                    done.add(id(current))
                elif id(following.schema) in under_way:
                    raise InvalidSchema(following.pointer, "refers to itself without going into the data, without end")
                elif isinstance(following.schema, dict) and id(following.schema) not in done:
                    under_way.add(id(following.schema))
                    place = self._pointers[id(following.schema)]
                    path.append((following.schema, self._in_place(place, following.schema)))

    def _in_place(self, pointer: str, schema: dict[str, object]) -> Iterator[_Child]:
        return (each for each in self._applied(pointer, schema) if each.in_place)

    def _applied(self, pointer: str, schema: dict[str, object]) -> Iterator[_Child]:
        """What a schema applies: the schemas within it, and those that it refers to."""
        yield from (child for child in _children(pointer, schema) if child.in_place is not None)
        for keyword in _REFERENCES:
            if keyword in schema:
                place = f"{pointer}/{keyword}"
                yield _Child(place, self._target(place, schema[keyword]), in_place=True)

    def _target(self, pointer: str, reference: object) -> object:
        if not isinstance(reference, str):
            raise InvalidSchema(pointer, "a reference is text")
        base, _, fragment = reference.partition("#")
        if base not in ("", self._base):
            raise InvalidSchema(
                pointer, "refers to something outside of the schema, and Relay fetches nothing: put it under $defs"
            )
        fragment = unquote(fragment)
        target: object
        if fragment and not fragment.startswith("/"):
            target = self._anchors.get(fragment)
        else:
            target = self._root
            for part in fragment.split("/")[1:]:
                target = _step(target, part.replace("~1", "/").replace("~0", "~"))
        if isinstance(target, bool) or id(target) in self._pointers:
            return target
        raise InvalidSchema(pointer, "refers to no schema: it names an anchor, or a place like #/$defs/address")

    def _weigh(self, pointer: str, schema: object, above: int) -> _Weighed:
        """The schema with all that it refers to written out, `above` schemas being around it."""
        if not isinstance(schema, dict):
            return _LEAF
        known = self._weighed.get(id(schema))
        if known is None and id(schema) in self._open:
            return _AGAIN
        if above + (known.steps if known else 0) > MOST_STEPS:
            raise InvalidSchema(pointer, f"more than {MOST_STEPS} schemas are inside each other, with all references")
        if known is not None:
            return known
        self._open.add(id(schema))
        pointer = self._pointers[id(schema)]
        weight, steps, is_bounded = _own_weight(schema), 0, _UNEVALUATED.isdisjoint(schema)
        for child in self._applied(pointer, schema):
            weighed = self._weigh(child.pointer, child.schema, above + 1)
            weight += weighed.weight
            steps = max(steps, weighed.steps + 1)
            is_bounded = is_bounded and weighed.is_bounded
        self._open.discard(id(schema))
        if weight > MOST_WEIGHT:
            raise InvalidSchema(pointer, f"with all references written out it has more than {MOST_WEIGHT:,} keywords")
        made = self._weighed[id(schema)] = _Weighed(weight, steps, is_bounded)
        return made


def _check_depth(schema: dict[str, object]) -> None:
    waiting: list[tuple[object, int]] = [(schema, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MOST_DEPTH:
            raise InvalidSchema("", f"its JSON is nested more than {MOST_DEPTH} levels deep")
        waiting += [(each, depth + 1) for each in _parts_of(value) if isinstance(each, dict | list)]


def _check_dialect(pointer: str, schema: dict[str, object]) -> None:
    named = schema.get("$schema", DIALECT)
    if named not in (DIALECT, DIALECT + "#"):
        raise InvalidSchema(f"{pointer}/$schema", f"only {DIALECT} is known; leave it out, or name that")


def _read_base(schema: dict[str, object]) -> str:
    return str(schema.get("$id", "")).removesuffix("#")


def _parts_of(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _children(pointer: str, schema: dict[str, object]) -> Iterator[_Child]:
    """The schemas that stand in one, none of those further in. What has not the form of its keyword has none."""
    for keyword, value in schema.items():
        place = f"{pointer}/{keyword}"
        if keyword in _ONE:
            yield _Child(place, value, _ONE[keyword])
        elif keyword in _LISTED and isinstance(value, list):
            for number, each in enumerate(value):
                yield _Child(f"{place}/{number}", each, _LISTED[keyword])
        elif keyword in _NAMED and isinstance(value, dict):
            for name, each in value.items():
                yield _Child(f"{place}/{name.replace('~', '~0').replace('/', '~1')}", each, _NAMED[keyword])


def _step(value: object, part: str) -> object:
    if isinstance(value, dict):
        return value.get(part)
    if isinstance(value, list) and re.fullmatch(r"0|[1-9][0-9]{0,5}", part) and int(part) < len(value):
        return value[int(part)]
    return None


def _own_weight(schema: dict[str, object]) -> int:
    """The schema without those within it."""
    weight = 1
    for keyword, value in schema.items():
        if keyword == "patternProperties" and isinstance(value, dict):
            weight += sum(map(_pattern_weight, value))
        elif keyword == "pattern" and isinstance(value, str):
            weight += _pattern_weight(value)
        elif keyword not in _HOLDING:
            weight += _count(value)
    return weight


def _pattern_weight(pattern: str) -> int:
    """No less than the states of its automaton, classes of characters counted as one."""
    weight = 1 + len(pattern)
    for least, most in _REPEATED.findall(pattern):
        weight *= max(int(least), int(most or 0), 1)
    return weight


def _count(value: object) -> int:
    """How many values a JSON value consists of."""
    count, waiting = 0, [value]
    while waiting:
        count += 1
        waiting += _parts_of(waiting.pop())
    return count
