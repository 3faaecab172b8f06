"""JSON Schemas compiled, and payloads looked at with them: one call each, in the process that calls.

Owns the library that does it, and how it is held: draft 2020-12, nothing is ever fetched, regular expressions run on an
engine that is linear in the text, `format` says what is meant and is not checked. Whether a schema may be compiled here
at all, and how much work a look is, is the domain's to say. Invariant: numbers are compared exactly, and no payload is
ever written anew: what is read here is thrown away.

Source: JSON Schema 2020-12, validation 7.2.1 (`format` is an annotation unless asked for).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import NoReturn, Protocol

import msgspec
from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

from relay.web.json_bodies import check_utf8, lenient, without_halves
from relay.web.problems import MOST_FAULTS, FieldFault, Refused, pointer

MOST_PATTERN_BYTES = 1024 * 1024
"""What one regular expression may take once it is compiled."""

_LONGEST_DETAIL = 300

_FAR = Decimal("1E+999999999999999999")
"""Stands for numbers beyond what a decimal holds, which no schema can tell from it."""

_LONGEST_INTEGER = 1_000
"""Digits of the longest number that becomes an integer: Python takes a time for it that grows with the square."""

_NO_PATTERN = "is no regular expression that runs in linear time: leave out look-around and back-references"


class NoJson(ValueError):
    """The bytes are no JSON, or are nested too deeply."""


class Unusable(Exception):
    """A schema that is none; `fault` says where and why."""

    def __init__(self, fault: FieldFault) -> None:
        super().__init__(f"{fault.pointer}: {fault.detail}")
        self.fault = fault


class Compiled(Protocol):
    """A schema, ready to look at values."""

    def is_valid(self, instance: object) -> bool:
        """Whether the value fits."""
        ...

    def iter_errors(self, instance: object) -> Iterable[ValidationError]:
        """What is wrong with it."""
        ...


def read_json(text: bytes) -> object:
    """What the text says: the last one of repeated names, numbers exactly, U+FFFF for half a surrogate pair.

    Raises `NoJson`.
    """
    try:
        check_utf8(text)
        try:
            return _decode(text)
        except msgspec.ValidationError:
            return _read_large(text)
    except (Refused, ValueError, RecursionError) as fault:
        raise NoJson from fault


def compile_schema(schema: object) -> Compiled:
    """A schema that the domain has let through. Raises `Unusable`."""
    try:
        return _validator(schema, mask="the value")
    except ValidationError:
        pass
    try:
        # what is wrong in a schema may be shown; what is wrong in a payload may not
        return _validator(schema, mask=None)
    except ValidationError as error:
        place = pointer(*error.instance_path)
        is_pattern = error.message.endswith('is not a "regex"')
        raise Unusable(FieldFault(place, _NO_PATTERN if is_pattern else _shortened(error.message))) from None


def faults_of(compiled: Compiled, value: object) -> list[FieldFault]:
    """What is wrong with a value, empty if it fits: in words that repeat names of members, but no values."""
    errors = islice(compiled.iter_errors(value), MOST_FAULTS)
    return [FieldFault(pointer(*error.instance_path), _shortened(error.message)) for error in errors]


def _validator(schema: object, *, mask: str | None) -> Draft202012Validator:
    return Draft202012Validator(
        schema,  # type: ignore[arg-type] # what is no schema is what it finds out
        retriever=_refuse_to_fetch,
        pattern_options=RegexOptions(size_limit=MOST_PATTERN_BYTES, dfa_size_limit=MOST_PATTERN_BYTES),
        validate_formats=False,
        mask=mask,
    )


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError(f"{uri[:80]} is not fetched")


def _read_number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        if "e-" in text.lower():
            return Decimal(0)
        return _FAR.copy_sign(Decimal(-1 if text.startswith("-") else 1))


def _read_integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= _LONGEST_INTEGER else Decimal(text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_decode = lenient(msgspec.json.Decoder(float_hook=_read_number).decode)


def _read_large(text: bytes) -> object:
    """The slower way, for integers that are too long for the usual one."""
    return json.loads(
        without_halves(text),
        parse_int=_read_integer,
        parse_float=_read_number,
        parse_constant=_refuse_constant,
        strict=True,
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_DETAIL else f"{text[:_LONGEST_DETAIL]}…"
