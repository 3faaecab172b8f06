"""Every call as a line for a shell, made from the description of the API.

Owns the form of these lines, for the page at `/docs` and for the documentation. Invariant: a line makes the call that
the description's examples tell of, and is good for a shell as it stands.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

BASE = "http://127.0.0.1:8080"
"""Where a gateway listens unless it is told otherwise."""

_JSON = "application/json"


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and what is said of it, for each call of a description."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def curl(method: str, path: str, operation: Mapping[str, Any], *, base: str = BASE) -> str:
    """The call with the examples of its description."""
    parameters = operation.get("parameters", ())
    query = {each["name"]: each["example"] for each in parameters if each["in"] == "query" and "example" in each}
    for each in parameters:
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", quote(each["schema"]["examples"][0]))
    url = base + path + (f"?{urlencode(query, safe='*:')}" if query else "")
    words = ["curl", *(["-X", method] if method != "GET" else []), url]
    for each in parameters:
        if each["in"] == "header" and "example" in each:
            words += ["-H", f"{each['name']}: {each['example']}"]
    body = operation.get("requestBody", {}).get("content", {}).get(_JSON, {}).get("example")
    if body is not None:
        words += ["-H", f"Content-Type: {_JSON}", "-d", json.dumps(body)]
    return shlex.join(words)


def reference(document: Mapping[str, Any]) -> str:
    """Every call as Markdown, for the documentation."""
    lines: list[str] = []
    for tag in document["tags"]:
        lines += [f"### {tag['name'].capitalize()}", "", "```sh"]
        for method, path, operation in operations(document):
            if operation["tags"] == [tag["name"]]:
                lines += [f"# {operation['summary']}: {method} {path}", curl(method, path, operation)]
        lines += ["```", ""]
    return "\n".join(lines)
