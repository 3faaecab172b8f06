"""How long things are kept, by the settings: dispatchers see to it, and the doctor looks whether they do.

Owns the way from settings to windows.
"""

from __future__ import annotations

from relay.settings import Settings
from relay.store.retention import Windows


def windows_of(settings: Settings) -> Windows:
    """How long things are kept, by these settings."""
    return Windows(
        delivered_days=settings.retain_delivered_days,
        dead_days=settings.retain_dead_days,
        attempts_days=settings.retain_attempts_days,
    )
