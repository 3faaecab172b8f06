"""Hands requests to the snippet before it, one a line; answers each status and how often the work was done."""

import base64
import json
import sys


def work(body: bytes) -> None:
    works.append(body)


works: list[bytes] = []
for line in sys.stdin:
    request = json.loads(line)
    names = {name.title(): value for name, value in request["headers"].items()}
    status = receive(names, base64.b64decode(request["body"]))  # type: ignore[name-defined] # noqa: F821 - the snippet's
    print(status, len(works))  # noqa: T201 - its output is the answer
