"""Claims about which JSON Schemas are taken, and how much work each is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.domain.schema_examination import DIALECT, MOST_STEPS, InvalidSchema, Work, examine

TREE = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}


def refusal(schema: object) -> InvalidSchema:
    with pytest.raises(InvalidSchema) as caught:
        examine(schema)
    return caught.value


def doubling(levels: int, keyword: str = "allOf") -> dict[str, Any]:
    """A schema that doubles with each level once its references are written out."""
    twice = [{"$ref": "#/$defs/{}"}, {"$ref": "#/$defs/{}"}]
    defs: dict[str, Any] = {}
    for level in range(levels):
        refs = [{"$ref": each["$ref"].format(level + 1)} for each in twice]
        defs[str(level)] = {keyword: refs if keyword == "allOf" else dict(zip("ab", refs, strict=True))}
    return {"$ref": "#/$defs/0", "$defs": {**defs, str(levels): {"type": "string"}}}


@pytest.mark.parametrize("schema", [True, False])
def test_true_and_false_are_schemas(schema: bool) -> None:
    assert examine(schema) == Work(1, is_bounded=True)


@pytest.mark.parametrize("schema", [None, 1, "x", []])
def test_what_is_no_object_is_refused(schema: object) -> None:
    assert refusal(schema).detail == "a schema is an object, or true or false"


def test_the_weight_is_that_of_the_keywords_and_of_the_values_in_them() -> None:
    assert examine({}).weight == 1
    assert examine({"type": "object"}).weight == 2
    assert examine({"enum": [1, {"a": 2}]}).weight == 1 + 4
    assert examine({"properties": {"a": {"type": "string"}, "b": True}}).weight == 1 + 2 + 1


def test_what_is_only_defined_weighs_nothing_until_it_is_referred_to() -> None:
    assert examine({"$defs": {"a": {"type": "string"}}}).weight == 1
    assert examine({"$defs": {"a": {"type": "string"}}, "items": {"$ref": "#/$defs/a"}}).weight == 1 + 2 + 2


def test_a_pattern_weighs_what_its_repetitions_make_of_it() -> None:
    assert examine({"pattern": "^a$"}).weight == 1 + 4
    assert examine({"pattern": "(a{10}){20,}"}).weight == 1 + 13 * 200
    assert examine({"pattern": "a{1,30}"}).weight == 1 + 8 * 30
    assert examine({"patternProperties": {"^a{9}": True}}).weight == 1 + 6 * 9 + 1


@pytest.mark.parametrize("schema", [{"$schema": DIALECT}, {"$schema": DIALECT + "#"}])
def test_the_one_dialect_may_be_named(schema: object) -> None:
    examine(schema)


@pytest.mark.parametrize("named", ["http://evil.example.test/meta", "http://json-schema.org/draft-07/schema#", 1])
def test_no_other_dialect_is_taken(named: object) -> None:
    assert refusal({"$schema": named}).pointer == "/$schema"


@pytest.mark.parametrize(
    ("around", "place"),
    [
        (lambda inner: {"$defs": {"a": inner}}, "/$defs/a"),
        (lambda inner: {"properties": {"p/q": {"items": inner}}}, "/properties/p~1q/items"),
        (lambda inner: {"allOf": [True, inner]}, "/allOf/1"),
    ],
)
def test_no_part_of_a_schema_is_of_another_dialect(
    around: Callable[[dict[str, object]], dict[str, object]], place: str
) -> None:
    """But it may name the one, and data that looks like a schema is data."""
    named = {"$schema": "http://json-schema.org/draft-07/schema#"}
    assert refusal(around({**named})).pointer == f"{place}/$schema"
    examine(around({"$schema": DIALECT}))
    examine(around({"const": named, "enum": [named], "properties": {"$schema": {"type": "string"}}}))


@pytest.mark.parametrize(
    "reference",
    [
        "http://169.254.169.254/latest",
        "http://127.0.0.1:6379/x",
        "file:///etc/passwd",
        "other.json#/a",
        DIALECT,
    ],
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_what_refers_outside_is_refused_where_it_stands(keyword: str, reference: str) -> None:
    fault = refusal({"properties": {"a": {keyword: reference}}})
    assert fault.pointer == f"/properties/a/{keyword}"
    assert "outside" in fault.detail


@pytest.mark.parametrize("reference", ["#/$defs/x", "#x", "#/properties/a/enum/0", "#/items/1", "#/allOf/7", "#/x/y"])
def test_what_refers_to_no_schema_is_refused(reference: str) -> None:
    schema = {"properties": {"a": {"enum": [{}]}}, "allOf": [True], "items": {"not": {"$ref": reference}}}
    assert refusal(schema).pointer == "/items/not/$ref"


def test_a_reference_is_text() -> None:
    assert refusal({"$ref": 1}).detail == "a reference is text"


@pytest.mark.parametrize(
    "reference",
    [
        "#/$defs/a~1b~0%20c",
        "#here",
        "https://example.com/s#/$defs/a~1b~0%20c",
        "https://example.com/s#here",
        "#/allOf/0",
    ],
)
def test_what_refers_to_a_schema_within_is_taken(reference: str) -> None:
    schema = {
        "$id": "https://example.com/s",
        "$defs": {"a/b~ c": {"$anchor": "here"}},
        "allOf": [{"type": "object"}, True],
        "items": {"$ref": reference},
    }
    assert examine(schema).is_bounded


def test_a_reference_may_name_true_and_false() -> None:
    assert examine({"$defs": {"all": True}, "items": {"$ref": "#/$defs/all"}}).is_bounded


def test_an_id_within_is_refused() -> None:
    assert refusal({"$defs": {"a": {"$id": "https://example.com/a"}}}).pointer == "/$defs/a/$id"
    assert examine({"properties": {"$id": {"type": "string"}}}).is_bounded


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$id": "file:///etc/passwd", "$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$dynamicAnchor": "n", "allOf": [{"$dynamicRef": "#n"}]},
        {"items": {"anyOf": [{"if": {"$ref": "#/items"}}]}},
        # the way into the circle goes into the data, the circle itself does not
        {"$defs": {"a": {"items": {"$ref": "#/$defs/b"}, "not": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}},
        {"dependentSchemas": {"a": {"$ref": "#"}}},
    ],
)
def test_a_circle_that_does_not_go_into_the_data_is_refused(schema: object) -> None:
    assert "without end" in refusal(schema).detail


@pytest.mark.parametrize(
    "schema",
    [
        TREE,
        {"$dynamicAnchor": "node", "properties": {"next": {"$dynamicRef": "#node"}}},
        {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "not": {"$ref": "#/$defs/a"}, "if": {"$ref": "#/$defs/a"}},
    ],
)
def test_a_recursive_schema_is_taken_and_its_work_is_not_bounded(schema: object) -> None:
    assert not examine(schema).is_bounded


@pytest.mark.parametrize("keyword", ["unevaluatedProperties", "unevaluatedItems"])
def test_what_is_left_unevaluated_is_no_bounded_work(keyword: str) -> None:
    assert not examine({"allOf": [{keyword: False}]}).is_bounded


@pytest.mark.parametrize("keyword", ["allOf", "properties"])
def test_references_that_double_are_weighed_without_being_written_out(keyword: str) -> None:
    assert examine(doubling(10, keyword)).weight > 2**10
    schema = doubling(60, keyword)
    assert len(json.dumps(schema)) < 6000
    fault = refusal(schema)
    assert "with all references" in fault.detail
    assert re.fullmatch(r"/\$defs/[0-9]+(/\w+/\w+)?", fault.pointer)


def test_a_chain_of_references_is_bounded_from_whichever_end_it_is_seen() -> None:
    def chain(length: int) -> dict[str, Any]:
        return {f"{n:04}": {"items": {"$ref": f"#/$defs/{n + 1:04}"}} for n in range(length)} | {f"{length:04}": {}}

    assert examine({"$ref": "#/$defs/0000", "$defs": chain(MOST_STEPS // 2 - 2)}).is_bounded
    for defs in (chain(1000), dict(reversed(chain(1000).items()))):
        assert "inside each other" in refusal({"$defs": defs}).detail
        assert "inside each other" in refusal({"$defs": defs, "$ref": "#/$defs/0000"}).detail


def test_deep_json_is_refused_wherever_it_is() -> None:
    deep: object = 1
    for _ in range(100):
        deep = [deep]
    assert refusal({"const": deep}).detail == "its JSON is nested more than 64 levels deep"


@pytest.mark.parametrize("schema", [{"properties": []}, {"allOf": {}}, {"items": 1}, {"$defs": 1}, {"pattern": 1}])
def test_what_has_not_its_keywords_form_is_left_to_the_compiler(schema: object) -> None:
    assert examine(schema).is_bounded


KEYWORDS = st.sampled_from(["allOf", "items", "properties", "not", "$ref", "$defs", "pattern", "enum", "$id", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["#", "#/$defs/x", "#/items", "a{2}", "http://x/"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_whatever_json_it_is_examined_or_refused(schema: object) -> None:
    with suppress(InvalidSchema):
        assert examine(schema).weight >= 1
