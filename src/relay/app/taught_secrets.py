"""The file in which the receiver of `relay up --dev` keeps the secrets that it was taught.

Owns its form and its place. Endpoints outlive a receiver, and one that has forgotten their secrets answers 401, which
makes a dead letter of every delivery to them. Invariant: it is readable by its owner alone, and whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from relay.app.faults import CannotRun
from relay.domain.secret import Secret
from relay.embedded.files import place, read_or_none
from relay.testkit.keyring import Taught

FILE = "receiver-secrets"
"""Its name in a data folder."""


def read_taught(path: Path) -> Taught:
    """What an earlier receiver was taught; nothing if there is no file. Raises `CannotRun`."""
    advice = f"remove {path}, and teach the receiver its secrets anew"
    try:
        text = read_or_none(path)
        known = {} if text is None else json.loads(text)
    except OSError as fault:
        raise CannotRun(f"{path} cannot be read: {fault.strerror}; run Relay as its owner") from fault
    except ValueError as fault:
        raise CannotRun(f"{path} is damaged: {advice}") from fault
    if not isinstance(known, Mapping) or not all(isinstance(each, list) for each in known.values()):
        raise CannotRun(f"{path} is damaged: {advice}")
    return {name: tuple(Secret(str(text)) for text in texts) for name, texts in known.items()}


def write_taught(path: Path, taught: Taught) -> None:
    """Keep them. Raises `OSError`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    place(path, json.dumps({name: [each.expose() for each in secrets] for name, secrets in taught.items()}))
