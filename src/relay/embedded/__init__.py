"""A local PostgreSQL server that Relay starts and stops by itself.

Owns everything below ``DIR/pg`` of the data folder: making a database, starting its server, recovering after a crash,
stopping it. What is in the database is the store's. Invariant: a server is reached over a unix socket with a password
only, and no permission of any folder that was there before is changed.
"""

from relay.embedded.faults import (
    DataFolderRefused,
    EmbeddedFault,
    NoUsableAccount,
    ServerInUse,
    StartFailed,
    StopFailed,
)
from relay.embedded.server import EmbeddedServer, running_dsn

__all__ = [
    "DataFolderRefused",
    "EmbeddedFault",
    "EmbeddedServer",
    "NoUsableAccount",
    "ServerInUse",
    "StartFailed",
    "StopFailed",
    "running_dsn",
]
