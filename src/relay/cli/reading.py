"""Settings for a command.

Owns turning their faults into the command's. Invariant: all faults are told, and the exit code says wrong usage.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from relay.cli.failures import WRONG_USAGE, CommandFailed
from relay.settings import Settings, SettingsError, read

NOTHING: Mapping[str, str] = MappingProxyType({})


def read_settings(
    *, command_line: Mapping[str, str] = NOTHING, command_defaults: Mapping[str, str] = NOTHING
) -> Settings:
    """The settings of this process. Raises `CommandFailed`."""
    try:
        return read(os.environ, command_line=command_line, command_defaults=command_defaults)
    except SettingsError as fault:
        raise CommandFailed(str(fault), WRONG_USAGE) from fault
