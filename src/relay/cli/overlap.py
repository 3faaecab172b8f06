"""Whether a secret may be rotated while the one before still counts.

Owns the question. Invariant: no secret ends before its time unless somebody said so.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from relay.cli.failures import CommandFailed
from relay.cli.stdin import agrees, has_somebody


def check_overlap(rotated: Mapping[str, Any], does: str) -> None:
    """Raises `CommandFailed` if an older secret of an endpoint or a source still does what it `does`, and nobody says
    that it may end now."""
    until = rotated["previous_secret_expires_at"]
    if until is None or datetime.fromisoformat(until) <= datetime.now(UTC):
        return
    ends = f"the secret before this one {does} until {until}, and would end now"
    if not has_somebody():
        raise CommandFailed(f"{ends}: wait until then, or add --force")
    if not agrees(f"{ends[0].upper()}{ends[1:]}. Rotate again?"):
        raise CommandFailed("nothing is rotated")
