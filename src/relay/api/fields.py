"""The kinds of values that the shapes of the API are made of, with what their descriptions say of them.

Owns the forms of ids and instants in a description. They are told, not enforced: what goes out has its form from where
it is made, and an id of the wrong form that comes in is answered like one that nobody has. Invariant: each example has
the form that its kind describes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

A_RECEIPT = "rcp_019ad4f17c2a7b3c9d1e2f3a4b5c6d7e"
AN_EVENT = "evt_019ad4f17c2a7e0f8a9b0c1d2e3f4a5b"
AN_ENDPOINT = "ep_019ad4e0aa107c5d8e9f0a1b2c3d4e5f"
A_DELIVERY = "019ad4f1-7c2a-7b3c-9d1e-2f3a8c9d0e1f"
A_KEY = "key_019ad4e0aa107c5d8e9f0a1b2c3d4e60"
A_SOURCE = "src_019ad4e0aa107c5d8e9f0a1b2c3d4e61"
AN_ENTRY = "aud_019ad4e0aa107c5d8e9f0a1b2c3d4e62"
A_TENANT = "acct_acme"
AN_IDEMPOTENCY_KEY = "redrive-of-monday"
AN_INSTANT = "2026-11-30T09:05:00.120Z"
LATER = "2026-11-30T09:05:00.164Z"


def id_form(example: str) -> dict[str, object]:
    """What a description says of ids like this one."""
    prefix, _, digits = example.rpartition("_")
    return {"pattern": f"^{prefix}_[0-9a-f]{{{len(digits)}}}$" if prefix else _UUID, "examples": [example]}


_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"

ReceiptText = Annotated[str, Field(json_schema_extra=id_form(A_RECEIPT))]
EndpointText = Annotated[str, Field(json_schema_extra=id_form(AN_ENDPOINT))]
KeyText = Annotated[str, Field(json_schema_extra=id_form(A_KEY))]
SourceText = Annotated[str, Field(json_schema_extra=id_form(A_SOURCE))]
EntryText = Annotated[str, Field(json_schema_extra=id_form(AN_ENTRY))]
DeliveryText = Annotated[str, Field(json_schema_extra=id_form(A_DELIVERY))]
Instant = Annotated[str, Field(json_schema_extra={"format": "date-time", "examples": [AN_INSTANT]})]
"""RFC 3339 in UTC with milliseconds."""


def refuse_null(value: object) -> object:
    """The value, unless it is null, where that means nothing. Raises `ValueError`."""
    if value is None:
        raise ValueError("cannot be null; leave it out instead")
    return value


def document_without_null(*nullable: str) -> Callable[[dict[str, Any]], None]:
    """A finish to a model's schema: None is how a field says that it was left out, not a value that it takes."""

    def finish(schema: dict[str, Any]) -> None:
        for name, field in schema["properties"].items():
            if name not in nullable and "anyOf" in field:
                (only,) = [each for each in field.pop("anyOf") if each != {"type": "null"}]
                field.update(only)
                del field["default"]

    return finish
