"""The API's description of itself: OpenAPI 3.1, with the ingest routes, the problem documents and examples in it.

Owns what the framework cannot know: the routes that it does not serve, that every error is a problem document, and the
words and examples of a call. For the rest the description is made from the routes themselves. Invariant: each error
code that a route names is a row of the one table.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from relay.api import ingest_documentation
from relay.api.callers import needed
from relay.api.examples import ANSWERS, BODIES, QUERIES
from relay.api.problem_documentation import PROBLEM_SCHEMA
from relay.domain.credentials import Scope

TAGS = [
    {"name": "events", "description": "Events come in."},
    {"name": "endpoints", "description": "Where events go."},
    {"name": "receipts", "description": "What became of events, and sending them again."},
    {"name": "schemas", "description": "What events of a type must look like."},
    {"name": "credentials", "description": "Who may send and call."},
    {"name": "health", "description": "Whether this process works, and its numbers."},
]

SCHEMES: dict[str, dict[str, str]] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "The secret of a key, or of a source whose `auth` has `bearer`.",
    },
    "hmac": {
        "type": "apiKey",
        "in": "header",
        "name": "Relay-Signature",
        "description": "`v1=` and the HMAC-SHA256 of `<timestamp>.<raw body>` in hexadecimal digits, by the secret of "
        "a source whose `auth` has `hmac`. The same request again counts once; with another `Idempotency-Key`, type or "
        "path it is refused.",
    },
    "hmacSource": {"type": "apiKey", "in": "header", "name": "Relay-Source", "description": "The source's name."},
    "hmacTimestamp": {
        "type": "apiKey",
        "in": "header",
        "name": "Relay-Timestamp",
        "description": "When the request was signed, in Unix seconds; at most 300 s away from the gateway's clock.",
    },
    "mtls": {
        "type": "mutualTLS",
        "description": "A certificate with the name of a source with `mtls`, shown to Relay or to its proxy.",
    },
}
"""How a caller can be proved."""

_FRAMEWORKS_OWN = ("HTTPValidationError", "ValidationError")


_FRAMEWORKS_WORDS = "Successful Response"


def operation_id(route: APIRoute) -> str:
    """What a description calls a route: its function's name. Every router is told to use it."""
    return route.name


def describe(app: FastAPI) -> dict[str, Any]:
    """The description of everything under `/v1` and beside it."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=TAGS,
        openapi_version="3.1.0",
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in _FRAMEWORKS_OWN:
        schemas.pop(name, None)
    schemas["Problem"] = PROBLEM_SCHEMA
    schemas.update(ingest_documentation.SCHEMAS)
    for path in document["paths"].values():
        for operation in path.values():
            _put_into_words(operation, schemas)
            _drop_frameworks_errors(operation["responses"])
    document["paths"] = {**ingest_documentation.paths(), **document["paths"]}
    document["components"]["securitySchemes"] = SCHEMES
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _add_examples(operation)
            _say_who_may(operation, needed(method.upper(), path))
    return document


def _say_who_may(operation: dict[str, Any], right: Scope | None) -> None:
    """Which credentials a call takes, with the scope that it needs.

    A source by itself may only send. What is asked for together stands together; what a source asks for is its own.
    """
    if right is None:
        operation["security"] = []
        return
    operation["security"] = [{"bearer": [str(right)]}]
    if right is Scope.INGEST:
        operation["security"] += [{"hmacSource": [], "hmacTimestamp": [], "hmac": [str(right)]}, {"mtls": [str(right)]}]
    needs = f"Needs the scope `{right}`."
    operation["description"] = f"{operation['description']} {needs}" if "description" in operation else needs


def _put_into_words(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """The first sentence of a route's docstring is what it does in short, the rest is what there is to say of it.

    An answer that its route says nothing about is what its shape is.
    """
    first, _, rest = operation["description"].partition(".")
    operation["summary"] = first
    operation["description"] = " ".join(rest.split())
    if not operation["description"]:
        del operation["description"]
    for response in operation["responses"].values():
        if response["description"] == _FRAMEWORKS_WORDS:
            shape = response.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
            about = schemas.get(shape.rpartition("/")[2], {}).get("description", "Done.")
            response["description"] = " ".join(about.split())


def _drop_frameworks_errors(responses: dict[str, Any]) -> None:
    """A fault of a query is a 400 here, one of a body has its problem document: the framework's own 422 is neither."""
    schema = responses.get("422", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if schema.get("$ref", "").endswith(_FRAMEWORKS_OWN[0]):
        del responses["422"]["content"]["application/json"]
        if not responses["422"]["content"]:
            del responses["422"]


def _drop_null(schema: dict[str, Any]) -> None:
    """None is how a parameter says that it was left out, not a value that it takes."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) == 1:
        del schema["anyOf"]
        schema.update(choices[0])


def _add_examples(operation: dict[str, Any]) -> None:
    name = operation["operationId"]
    for parameter in operation.get("parameters", ()):
        _drop_null(parameter["schema"])
        if parameter["name"] in QUERIES.get(name, {}):
            parameter["example"] = QUERIES[name][parameter["name"]]
    for media_type, example in BODIES.get(name, {}).items():
        operation["requestBody"]["content"][media_type]["example"] = example
    for status, by_media_type in ANSWERS.get(name, {}).items():
        for media_type, example in by_media_type.items():
            operation["responses"][status]["content"][media_type]["example"] = example
