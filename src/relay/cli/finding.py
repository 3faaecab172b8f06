"""What a command is given the id or the name of.

Owns finding it in a list of the API. Invariant: an id leads to what has that id, whatever else is called so; and a name
that several have leads to none of them.
"""

from __future__ import annotations

from typing import Any

from relay.cli.client import Client
from relay.cli.failures import CommandFailed


def find(relay: Client, path: str, kind: str, wanted: str) -> str:
    """The id of what has that id, or else that name, in a list. Raises `CommandFailed`."""
    found: str = find_whole(relay, path, kind, wanted)["id"]
    return found


def find_whole(relay: Client, path: str, kind: str, wanted: str) -> dict[str, Any]:
    """What has that id, or else that name, as the list has it. Raises `CommandFailed`."""
    called = []
    for each in relay.pages(path):
        if each["id"] == wanted:
            return each
        if each["name"] == wanted:
            called.append(each)
    if len(called) > 1:
        named = ", ".join(each["id"] for each in called)
        raise CommandFailed(f"{len(called)} {kind}s are called {wanted!r}: name one by its id: {named}")
    if not called:
        raise CommandFailed(f"no {kind} is called {wanted!r}: `relay {kind}s list` shows them")
    return called[0]
