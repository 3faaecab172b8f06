"""The passwords of the embedded server.

Owns the file that holds them. Invariant: the file is readable by its owner alone and is complete whenever it exists.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from relay.domain.secret import Secret
from relay.embedded.faults import DataFolderRefused
from relay.embedded.files import place

OWNER = "relay"
"""The role that owns the database, and the database's name."""

SUPERUSER = "postgres"
"""The role that PostgreSQL makes for itself. Relay's own processes never use it."""

PORT = 5432
"""Part of the socket's name; nothing listens on a port."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """One password for each role that may log in."""

    owner: Secret
    superuser: Secret

    @classmethod
    def new(cls) -> Credentials:
        """Make passwords of 192 random bits, in hexadecimal digits, so that no syntax needs them quoted."""
        return cls(Secret(secrets.token_hex(24)), Secret(secrets.token_hex(24)))

    def url(self, *sockets: Path, superuser: bool = False) -> str:
        """The ``postgresql://`` address of the database for the owner or the superuser. It holds the password.

        `sockets` has the folder of each server's socket; of several, the one that takes writes is meant.
        """
        role, password = (SUPERUSER, self.superuser) if superuser else (OWNER, self.owner)
        folders = ",".join(quote(str(folder)) for folder in sockets)
        which = "&target_session_attrs=read-write" if len(sockets) > 1 else ""
        return f"postgresql://{role}:{password.expose()}@/{OWNER}?host={folders}&port={PORT}{which}"


def read_credentials(path: Path) -> Credentials | None:
    """Read the file; None if there is none. Raises `DataFolderRefused` if it holds something else, or `OSError`."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return Credentials(Secret(fields["owner"]), Secret(fields["superuser"]))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as fault:
        raise DataFolderRefused(
            f"{path} does not hold Relay's passwords for its database; remove it, and the next start makes new ones"
        ) from fault


def write_credentials(path: Path, credentials: Credentials) -> None:
    """Write the file in one step, for its owner alone. Raises `OSError`."""
    fields = {"owner": credentials.owner.expose(), "superuser": credentials.superuser.expose()}
    place(path, json.dumps(fields) + "\n")
