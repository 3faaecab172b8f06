"""Endpoints as the commands name and show them.

Owns finding an endpoint by its id or its name, and how one looks. Works on the JSON of the API.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from rich.text import Text

from relay.cli.client import Client
from relay.cli.finding import find
from relay.cli.rendering import facts, show, words
from relay.cli.streams import Streams

PATH = "/v1/endpoints"

Endpoint = Mapping[str, Any]

_ID = re.compile(r"ep_[0-9a-f]{32}")
_STATES = {"active": "green", "paused": "yellow", "disabled": "red"}


def path_of(relay: Client, endpoint: str) -> str:
    """The path of the endpoint with that id or name. Raises `CommandFailed`."""
    if _ID.fullmatch(endpoint):
        return f"{PATH}/{quote(endpoint, safe='')}"
    return f"{PATH}/{find(relay, PATH, 'endpoint', endpoint)}"


def state(endpoint: Endpoint) -> Text:
    """Whether it is active, in its colour."""
    return words(endpoint["state"], _STATES.get(endpoint["state"], ""))


def show_endpoint(endpoint: Endpoint, streams: Streams) -> None:
    """Write one endpoint."""
    if streams.json:
        streams.document(endpoint)
        return
    shown = {name: _value(value) for name, value in endpoint.items()}
    show(streams, facts({**shown, "state": state(endpoint), "event_types": ", ".join(endpoint["event_types"])}.items()))


def _value(value: object) -> object:
    """What is no text or number is shown as the JSON that it is: it can be pasted into a request."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | bool) else value
