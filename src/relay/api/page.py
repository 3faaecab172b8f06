"""The pages at `/docs`: the description of the API, readable without anything from elsewhere.

Owns one page, made on the server from the same description that `/openapi.json` serves. It loads no script and no
style from another host, so it works on a machine without the internet and can be served under a strict policy.
Invariant: whatever stands in the description is text on the page, never markup, but for what it puts between backticks.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request, Response

from relay.api.calls import curl, operations
from relay.web.problems import ERRORS

router = APIRouter(include_in_schema=False)

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 0 auto; padding: 1.5rem }
code, pre { font: .875rem/1.45 ui-monospace, monospace }
pre { overflow-x: auto; padding: .75rem; background: color-mix(in srgb, currentColor 7%, transparent) }
summary { padding: .35rem 0; cursor: pointer }
summary b { display: inline-block; min-width: 4.5rem }
summary span { margin-left: .75rem; opacity: .8 }
details > *:not(summary) { margin-left: 1rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid #8886 }
"""
_STYLE_HASH = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_CODE = re.compile(r"`([^`]+)`")
_TO_SHAPES = "#/components/schemas/"
_BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "default": "by default {}",
}

Schema = Mapping[str, Any]


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The page."""
    document: dict[str, Any] = request.app.openapi()
    headers = {"content-security-policy": _POLICY, "x-content-type-options": "nosniff"}
    return Response("".join(_page(document)), media_type="text/html", headers=headers)


def _page(document: Mapping[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])} API</title>'
    yield f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
    yield f"<h1>{escape(info['title'])} API {escape(info['version'])}</h1><p>{_text(info['description'])}</p>"
    yield '<p>The same for machines: <a href="/openapi.json">/openapi.json</a></p>'
    for tag in document["tags"]:
        yield f"<h2>{escape(tag['name'].capitalize())}</h2><p>{_text(tag['description'])}</p>"
        for method, path, operation in operations(document):
            if operation["tags"] == [tag["name"]]:
                yield from _operation(method, path, operation)
    yield "<h2>Errors</h2><p>Each error is a problem document (RFC 9457) with one of these codes.</p>"
    yield "<table><tr><th>code<th>status<th>meaning</tr>"
    for code, kind in ERRORS.items():
        yield f'<tr id="{code}"><td><code>{code}</code><td>{kind.status}<td>{_text(kind.meaning)}</tr>'
    yield "</table><h2>Shapes</h2>"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f'<details id="shape-{escape(name)}"><summary><b>{escape(name)}</b></summary>'
        yield from _shape(schema)
        yield "</details>"
    yield "</html>"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f'<details id="{escape(operation["operationId"])}"><summary><b>{method}</b> <code>{escape(path)}</code>'
    yield f"<span>{_text(operation['summary'])}</span></summary>"
    if "description" in operation:
        yield f"<p>{_text(operation['description'])}</p>"
    yield f"<pre>{escape(curl(method, path, operation))}</pre>"
    if operation.get("parameters"):
        yield "<h4>Parameters</h4><table><tr><th>name<th>in<th>value<th>meaning</tr>"
        for each in operation["parameters"]:
            yield f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{_kind(each['schema'])}"
            yield f"<td>{_text(each.get('description', ''))}</tr>"
        yield "</table>"
    if "requestBody" in operation:
        yield "<h4>Body</h4>"
        yield from _contents(operation["requestBody"]["content"])
    yield "<h4>Answers</h4>"
    for status, response in operation["responses"].items():
        yield f"<p><b>{status}</b> {_text(response['description'])}</p>"
        if int(status) < 400:
            yield from _contents(response.get("content", {}))
    yield "</details>"


def _contents(content: Mapping[str, Any]) -> Iterator[str]:
    for media_type, said in content.items():
        schema = _kind(said.get("schema", {}))
        yield f"<p><code>{escape(media_type)}</code>{f': {schema}' if schema else ''}</p>"
        example = said.get("example")
        if example is not None:
            text = example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
            yield f"<pre>{escape(text)}</pre>"


def _shape(schema: Schema) -> Iterator[str]:
    yield f"<p>{_text(schema.get('description', ''))}</p>"
    if "properties" not in schema:
        yield f"<p>{_kind(schema)}</p>"
        return
    required = schema.get("required", ())
    yield "<table><tr><th>field<th>value<th>meaning</tr>"
    for name, field in schema["properties"].items():
        kind = _kind(field) + ("" if name in required else ", optional")
        yield f"<tr><td><code>{escape(name)}</code><td>{kind}<td>{_text(field.get('description', ''))}</tr>"
    yield "</table>"


def _kind(schema: Schema) -> str:
    """What a value may be, in words."""
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(_TO_SHAPES))
        return f'<a href="#shape-{name}">{name}</a>'
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " or ".join(_kind(each) for each in schema[choice]) + _bounds(schema)
    if "enum" in schema:
        return _values(schema["enum"]) + _bounds(schema)
    if "const" in schema:
        return _values([schema["const"]])
    kind = schema.get("format") or schema.get("type", "")
    if schema.get("type") == "array":
        kind = f"list of {_kind(schema.get('items', {})) or 'anything'}"
        return kind + _bounds(schema)
    if schema.get("type") == "object" and "properties" in schema:
        kind = "object with " + ", ".join(schema["properties"])
    return escape(str(kind)) + _bounds(schema)


def _values(values: Iterable[object]) -> str:
    return " or ".join(f"<code>{escape(str(value))}</code>" for value in values)


def _bounds(schema: Schema) -> str:
    told = [words.format(escape(json.dumps(schema[key]))) for key, words in _BOUNDS.items() if key in schema]
    return "".join(f", {each}" for each in told)


def _text(text: str) -> str:
    """Prose as markup: what stands between backticks is code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))
