"""The API's description as the tests read it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from relay.api.app import description

DOCUMENT = description("1.2.3")


def operations(document: Any = DOCUMENT) -> dict[str, Any]:
    """Each operation by its id, with its `method` and its `path` in it."""
    return {
        operation["operationId"]: {**operation, "method": method.upper(), "path": path}
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def contents() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Whatever is sent or answered: the operation, a word for which of it, and what is said of the media type."""
    for name, operation in operations().items():
        bodies = operation.get("requestBody", {}).get("content", {})
        answers = {
            f"{status} {media_type}": said
            for status, response in operation["responses"].items()
            for media_type, said in response.get("content", {}).items()
        }
        for which, said in {**bodies, **answers}.items():
            yield name, which, said
