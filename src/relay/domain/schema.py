"""Schemas by name: an event type's numbered JSON Schemas, `invoice.paid/v3`.

Owns the form of these names. Invariant: a name has one spelling, so that two that look alike are one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from relay.domain.routing import InvalidEventType, check_event_type

LARGEST_NUMBER = 999_999_999

_NUMBER = re.compile(r"v([1-9][0-9]{0,8})")


class InvalidSchemaName(ValueError):
    """The text is no name of a schema; the message says what one looks like."""


@dataclass(frozen=True, slots=True)
class SchemaName:
    """Version `number` of the schema for a type."""

    type: str
    number: int

    def __str__(self) -> str:
        """The name as it is written: `invoice.paid/v3`."""
        return f"{self.type}/{write_number(self.number)}"


def write_number(number: int) -> str:
    """A version as it is written: `v3`."""
    return f"v{number}"


def read_number(text: str) -> int:
    """Read `v3`. Raises `InvalidSchemaName`."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise InvalidSchemaName(f"a version is v and a number from 1 to {LARGEST_NUMBER}, without leading zeros: v3")
    return int(match[1])


def read_name(text: str) -> SchemaName:
    """Read `invoice.paid/v3`; types may have slashes of their own. Raises `InvalidSchemaName`."""
    event_type, slash, number = text.rpartition("/")
    try:
        if slash:
            return SchemaName(check_event_type(event_type), read_number(number))
    except InvalidEventType as fault:
        raise InvalidSchemaName(str(fault)) from None
    raise InvalidSchemaName("a schema is named by its type and version: invoice.paid/v3")
