"""What the audit keeps of a change: who, what, of which thing, and which fields.

Owns the actions and what of a field may be told. Invariant: a value that might be a secret, or hold one, is never told;
its field is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from uuid import UUID

from relay.domain.credentials import SourceProof
from relay.domain.endpoint import EndpointConfig

LOCAL_ACTOR = "local"
"""Who makes a key straight in the database: somebody with access to it."""


class AuditAction(StrEnum):
    """What was done, and to what kind of thing."""

    ENDPOINT_CREATE = "endpoint.create"
    ENDPOINT_CHANGE = "endpoint.change"
    ENDPOINT_REMOVE = "endpoint.remove"
    ENDPOINT_PAUSE = "endpoint.pause"
    ENDPOINT_RESUME = "endpoint.resume"
    ENDPOINT_ROTATE = "endpoint.rotate_secret"
    KEY_CREATE = "key.create"
    KEY_REVOKE = "key.revoke"
    SOURCE_CREATE = "source.create"
    SOURCE_CHANGE = "source.change"
    SOURCE_ROTATE = "source.rotate"
    SOURCE_REMOVE = "source.remove"
    TENANT_CREATE = "tenant.create"
    TENANT_CHANGE = "tenant.change"
    TENANT_REMOVE = "tenant.remove"
    SCHEMA_PUT = "schema.put"
    RECEIPT_REDRIVE = "receipt.redrive"
    DELIVERY_REDRIVE = "delivery.redrive"
    DEAD_LETTERS_REDRIVE = "dead_letters.redrive"
    DEAD_LETTERS_DISCARD = "dead_letters.discard"


@dataclass(frozen=True, slots=True)
class Author:
    """Who asks for a change: the credential in words, its own tenant, and the id of the one entry that tells of it."""

    actor: str
    tenant: str
    entry_id: UUID


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that was changed. `old` and `new` are None where it is `hidden`."""

    field: str
    hidden: bool
    old: object = None
    new: object = None


_HIDDEN = frozenset({"url", "headers"})
"""A url's path or query, and any header, may be a credential of the receiver's."""


def config_changes(old: EndpointConfig, new: EndpointConfig) -> tuple[FieldChange, ...]:
    """The fields of an endpoint that differ, in their order."""
    found = []
    for each in fields(EndpointConfig):
        before, after = getattr(old, each.name), getattr(new, each.name)
        if before != after:
            hidden = each.name in _HIDDEN
            found.append(FieldChange(each.name, hidden) if hidden else FieldChange(each.name, hidden, before, after))
    return tuple(found)


def proof_changes(old: SourceProof, new: SourceProof) -> tuple[FieldChange, ...]:
    """The fields that differ of what a source is proved by. A name that stands in a certificate is no secret."""
    found = []
    for each in fields(SourceProof):
        before, after = getattr(old, each.name), getattr(new, each.name)
        if before != after:
            found.append(FieldChange(each.name, hidden=False, old=before, new=after))
    return tuple(found)


def config_details(config: EndpointConfig) -> Mapping[str, object]:
    """What is told of a new endpoint: what it was given, but for what may hold a secret."""
    named = ((each.name, getattr(config, each.name)) for each in fields(EndpointConfig))
    return {name: value for name, value in named if name not in _HIDDEN | {"name"}}
