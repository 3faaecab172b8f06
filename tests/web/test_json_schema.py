"""Payloads read for a look: exactly, or not at all."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest

from relay.web.json_schema import NoJson, compile_schema, faults_of, read_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a":1,"a":2}', {"a": 2}),
        (b"0.1000000000000000055511151231257827", Decimal("0.1000000000000000055511151231257827")),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        (b'"\\ud83d"', "\uffff"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'["\\ud83d",%b]' % (b"9" * 5000), ["\uffff", Decimal("9" * 5000)]),
        (b"1e-9999999999999999999", Decimal(0)),
    ],
)
def test_json_is_read_exactly(text: bytes, value: object) -> None:
    assert read_json(text) == value


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"NaN", b"[-Infinity]", b"\xff", b"\xef\xbb\xbf1", b"[" * 100_000, b"[NaN,%b]" % (b"9" * 5000)],
)
def test_what_is_no_json_is_told_apart(text: bytes) -> None:
    with pytest.raises(NoJson):
        read_json(text)


def test_a_fault_repeats_no_value_and_has_an_end() -> None:
    compiled = compile_schema({"enum": ["x" * 1000], "maxLength": 1})
    faults = faults_of(compiled, "secret")
    assert len(faults) == 2
    assert all("secret" not in fault.detail and len(fault.detail) < 400 for fault in faults)


@pytest.mark.parametrize("schema", [{"format": kind} for kind in ("email", "uri", "date")] + [{"pattern": "^(a+)+$"}])
def test_a_megabyte_of_text_takes_no_time(schema: dict[str, str]) -> None:
    """Case C66: formats are not checked, and patterns run in linear time."""
    compiled, text = compile_schema({"properties": {"s": schema}}), "a" * 1_048_000 + "!"
    began = time.process_time()
    faults = faults_of(compiled, {"s": text})
    assert time.process_time() - began < 0.1
    assert bool(faults) == ("pattern" in schema)
