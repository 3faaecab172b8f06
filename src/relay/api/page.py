"""The pages at `/docs`: the description of the API, readable without anything from elsewhere.

Owns one page, made on the server from the same description that `/openapi.json` serves. It loads no script and no
style from another host, so it works on a machine without the internet and can be served under a strict policy.
Invariant: whatever stands in the description is text on the page, never markup.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, Request, Response

from relay.web.problems import ERRORS

router = APIRouter(include_in_schema=False)

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 0 auto; padding: 1.5rem }
code, pre { font: .875rem/1.45 ui-monospace, monospace }
pre { overflow-x: auto; padding: .75rem; background: color-mix(in srgb, currentColor 7%, transparent) }
summary { padding: .35rem 0; cursor: pointer }
summary b { display: inline-block; min-width: 4.5rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid #8886 }
"""
_STYLE_HASH = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The page."""
    document: dict[str, Any] = request.app.openapi()
    headers = {"content-security-policy": _POLICY, "x-content-type-options": "nosniff"}
    return Response("".join(_page(document)), media_type="text/html", headers=headers)


def _page(document: dict[str, Any]) -> Iterator[str]:
    title = escape(document["info"]["title"])
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title} API</title>'
    yield f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
    yield f"<h1>{title} API {escape(document['info']['version'])}</h1><p>{escape(document['info']['description'])}</p>"
    yield '<p>The same for machines: <a href="/openapi.json">/openapi.json</a></p><h2>Calls</h2>'
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield from _operation(method.upper(), path, operation)
    yield "<h2>Errors</h2><p>Each error is a problem document (RFC 9457) with one of these codes.</p>"
    yield "<table><tr><th>code<th>status<th>meaning</tr>"
    for code, kind in ERRORS.items():
        yield f'<tr id="{code}"><td><code>{code}</code><td>{kind.status}<td>{escape(kind.meaning)}</tr>'
    yield "</table><h2>Shapes</h2>"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"<details><summary><code>{escape(name)}</code></summary>{_json(schema)}</details>"
    yield "</html>"


def _operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    summary = escape(operation.get("summary", ""))
    yield f"<details><summary><b>{method}</b> <code>{escape(path)}</code> {summary}</summary>"
    yield f"<p>{escape(operation.get('description', ''))}</p>"
    for part in ("parameters", "requestBody", "responses"):
        if operation.get(part):
            yield f"<h4>{part}</h4>{_json(operation[part])}"
    yield "</details>"


def _json(value: object) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"
