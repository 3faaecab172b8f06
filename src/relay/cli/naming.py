"""Requests that carry a name of their own, so that repeating one is safe.

Owns the names and when a request is repeated. Invariant: a request that was carried out once is not carried out again
because its answer got lost.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from relay.cli.client import Client, NotReached, Refused, Unanswered
from relay.cli.failures import CommandFailed

PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0)
"""Before each repetition."""

_COMES_BACK = frozenset({502, 503, 504})


def call_once(relay: Client, path: str, body: object) -> Any:  # noqa: ANN401 - JSON is what it is
    """POST under a new name, again under the same one while no answer comes. Raises `CommandFailed`.

    A Relay that is not there to begin with is told at once.
    """
    key = f"relay-cli-{uuid4().hex}"
    for number, pause in enumerate(PAUSES_SECONDS):
        try:
            return relay.call("POST", path, body=body, key=key)
        except CommandFailed as fault:
            if not _may_pass(fault) or (number == 0 and isinstance(fault, NotReached)):
                raise
        time.sleep(pause)
    return relay.call("POST", path, body=body, key=key)


def _may_pass(fault: CommandFailed) -> bool:
    return isinstance(fault, Unanswered) or (isinstance(fault, Refused) and fault.status in _COMES_BACK)
