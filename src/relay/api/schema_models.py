"""Schemas and event types as JSON: what clients get to see.

Owns the fields. Invariant: a schema itself is handed out as the bytes that were given, never inside of other JSON.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from relay.api.fields import Instant
from relay.domain.schema import write_number
from relay.store.schemas import EventType, ListedSchema
from relay.web import instants

VersionText = Annotated[str, Field(json_schema_extra={"pattern": "^v[1-9][0-9]{0,8}$", "examples": ["v3"]})]


class SchemaShown(BaseModel):
    """A schema of the catalogue, without its text."""

    name: str = Field(
        description="What `Relay-Schema` names it as.", json_schema_extra={"examples": ["invoice.refunded/v3"]}
    )
    type: str
    version: VersionText
    size_bytes: int
    sha256: str = Field(description="Of its text, in hexadecimal.")
    created_at: Instant

    @classmethod
    def of(cls, schema: ListedSchema) -> SchemaShown:
        """The schema as it is shown."""
        return cls(
            name=str(schema.name),
            type=schema.name.type,
            version=write_number(schema.name.number),
            size_bytes=schema.size,
            sha256=schema.sha256.hex(),
            created_at=instants.write(schema.created_at),
        )


class SchemaPage(BaseModel):
    """A page of schemas."""

    data: list[SchemaShown]
    next_cursor: str | None


class EventTypeShown(BaseModel):
    """A type that has schemas."""

    type: str
    newest: VersionText = Field(description="The version that counts unless a sender names another.")
    versions: list[VersionText]

    @classmethod
    def of(cls, event_type: EventType) -> EventTypeShown:
        """The type as it is shown."""
        versions = [write_number(number) for number in event_type.numbers]
        return cls(type=event_type.type, newest=versions[-1], versions=versions)


class EventTypePage(BaseModel):
    """A page of event types."""

    data: list[EventTypeShown]
    next_cursor: str | None
