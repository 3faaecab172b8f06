"""A local PostgreSQL that Relay starts and stops by itself: one server, or three of which two hold every commit.

Owns everything below ``DIR/pg`` of the data folder: making a database, starting its server, recovering after a crash,
stopping it. What is in the database is the store's. Invariant: a server is reached over a unix socket with a password
only, and no permission of any folder that was there before is changed.
"""

from relay.embedded.address import running_dsn
from relay.embedded.faults import (
    DataFolderRefused,
    EmbeddedFault,
    NoUsableAccount,
    ServerInUse,
    StartFailed,
    StopFailed,
)
from relay.embedded.replicas import EmbeddedReplicas
from relay.embedded.server import EmbeddedServer

__all__ = [
    "DataFolderRefused",
    "EmbeddedFault",
    "EmbeddedReplicas",
    "EmbeddedServer",
    "NoUsableAccount",
    "ServerInUse",
    "StartFailed",
    "StopFailed",
    "running_dsn",
]
