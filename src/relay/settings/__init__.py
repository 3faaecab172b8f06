"""Settings: the environment, read once, as one frozen record.

Owns every setting's name, form, default and meaning (`table`), reading them with all faults reported
together (`reading`), and describing them (`describing`). It leaves to others what the values are used for
and every look at the world: no name is resolved, and no file is opened but one that holds a secret in a variable's
place. Invariant: a `Settings` that exists is whole and consistent.
"""

from relay.settings.describing import Effective, effective, reference
from relay.settings.kinds import Bind, LogFormat, LogLevel
from relay.settings.reading import Fault, SettingsError, cautions, check_database, read
from relay.settings.table import Origin, Row, Settings, rows

__all__ = [
    "Bind",
    "Effective",
    "Fault",
    "LogFormat",
    "LogLevel",
    "Origin",
    "Row",
    "Settings",
    "SettingsError",
    "cautions",
    "check_database",
    "effective",
    "read",
    "reference",
    "rows",
]
