"""One question to a server.

Owns the way in which this room asks a running server something: PostgreSQL's own ``psql``, over the unix socket, with
a password. Invariant: no password is on a command line, and every question has a bound.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from relay.domain.secret import Secret
from relay.embedded.credentials import OWNER, PORT, SUPERUSER, Credentials
from relay.embedded.faults import EmbeddedFault
from relay.embedded.programs import Programs, environment

QUERY_SECONDS = 30.0
"""How long a server may take for an answer, unless told otherwise."""

_OPTIONS = ("--no-psqlrc", "--no-password", "--quiet", "--tuples-only", "--no-align", "--field-separator=\t")
# A question that writes something waits for no standby: it may be about the standbys.
_SESSION = "-c synchronous_commit=local -c client_min_messages=error"


class NoAnswer(EmbeddedFault):
    """A server refused a question or did not answer it in time; the message has its words."""


@dataclass(frozen=True, slots=True)
class Line:
    """The line to one server, as the superuser or, with `role`, as somebody else."""

    programs: Programs
    sockets: Path
    password: Secret
    role: str = SUPERUSER

    def ask(self, statement: str, *, seconds: float = QUERY_SECONDS) -> list[list[str]]:
        """Run one statement and return its rows as text. Raises `NoAnswer`.

        The login is by SCRAM and nothing else, in which the server proves that it knows the password, too: it is ours.
        """
        login = environment(
            PGHOST=str(self.sockets),
            PGPORT=str(PORT),
            PGUSER=self.role,
            PGDATABASE=OWNER,
            PGPASSWORD=self.password.expose(),
            PGREQUIREAUTH="scram-sha-256",
            PGCONNECT_TIMEOUT=f"{seconds:.0f}",
            PGOPTIONS=_SESSION,
        )
        command = [self.programs.path("psql"), *_OPTIONS, f"--command={statement}"]
        try:
            done = subprocess.run(command, env=login, check=True, capture_output=True, text=True, timeout=seconds)
        except subprocess.CalledProcessError as fault:
            raise NoAnswer(fault.stderr.strip()) from fault
        except (OSError, subprocess.TimeoutExpired) as fault:
            raise NoAnswer(f"no answer: {fault}") from fault
        return [line.split("\t") for line in done.stdout.splitlines()]


def owners_line(programs: Programs, sockets: Path, credentials: Credentials) -> Line:
    """The line to a server as the database's owner."""
    return Line(programs, sockets, credentials.owner, OWNER)


def superusers_line(programs: Programs, sockets: Path, credentials: Credentials) -> Line:
    """The line to a server as its superuser."""
    return Line(programs, sockets, credentials.superuser)
