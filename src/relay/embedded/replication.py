"""What makes several servers copies of one another.

Owns the names of the replicas, what each is told of the others, and what marks a standby. Leaves the starting of
servers to `starting` and the choice of the primary to `standing`. Invariant: a server names all the others in both
directions (whom it waits for as primary, whom it follows as standby), so a promotion changes no settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relay.embedded.configuration import Setting
from relay.embedded.credentials import PORT, SUPERUSER, Credentials
from relay.embedded.layout import Layout

REPLICAS = ("r1", "r2", "r3")
"""The servers of an installation with replicas."""

STANDBY_FILE = "standby.signal"
"""PostgreSQL's own mark of a standby, in its data folder; a promotion removes it."""

PASSWORD_FILE = "replication.pass"  # noqa: S105  # the name of a file
"""Where a standby finds the password for its primary, in its data folder."""


@dataclass(frozen=True, slots=True)
class Group:
    """Servers that hold one database: `quorum` of them, the primary included, have a commit before it is confirmed."""

    names: tuple[str, ...]
    quorum: int

    def others(self, name: str) -> tuple[str, ...]:
        """All but one."""
        return tuple(other for other in self.names if other != name)


def is_standby(cluster: Path) -> bool:
    """Whether the data folder is a standby's."""
    return (cluster / STANDBY_FILE).is_file()


def replicas_there(data_dir: Path) -> tuple[str, ...]:
    """Which of the replicas have a data folder."""
    return tuple(name for name in REPLICAS if Layout(data_dir, name).cluster.exists())


def replication_settings(group: Group, name: str, sockets: Mapping[str, Path]) -> Sequence[Setting]:
    """What one server of a group is told; `sockets` has the folder of each other server's socket."""
    others = group.others(name)
    return (
        Setting(
            "synchronous_standby_names",
            f"ANY {group.quorum - 1} ({', '.join(others)})" if group.quorum > 1 else "",
            "as primary: how many of the others have a commit before it is confirmed",
        ),
        Setting("hot_standby", "on", "as standby: it answers how far it is"),
        Setting("primary_conninfo", _way_to_primary(name, [sockets[other] for other in others]), "as standby"),
        Setting("primary_slot_name", name, "the primary keeps what this one still needs"),
        Setting("recovery_target_timeline", "latest", "as standby: it follows whoever was promoted"),
        Setting("wal_keep_size", "256MB", "a standby finds what it lacks at one that was promoted a moment ago"),
        Setting("wal_retrieve_retry_interval", "500ms", "a standby that lost its primary looks for the next one"),
        Setting("wal_receiver_timeout", "10s", "all are on one machine: silence is not the network's"),
        Setting("wal_sender_timeout", "10s", "the same from the other side"),
        Setting("wal_receiver_status_interval", "1s", "how far a standby is can be seen when nothing is written, too"),
    )


def _way_to_primary(name: str, sockets: Sequence[Path]) -> str:
    """Whichever of the others takes writes. A relative path is looked for in the data folder, where servers work."""
    hosts = ",".join(map(str, sockets))
    return (
        f"host={_quoted(hosts)} port={PORT} user={SUPERUSER} passfile={PASSWORD_FILE} application_name={name}"
        " target_session_attrs=read-write connect_timeout=5"
    )


def _quoted(value: str) -> str:
    """A value in a connection string of PostgreSQL's clients."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def password_text(credentials: Credentials) -> str:
    """The text of the password file, in the form that PostgreSQL's clients read.

    It holds the superuser's, which gives nothing away: the account that runs a server owns all its files.
    """
    return f"*:*:*:{SUPERUSER}:{credentials.superuser.expose()}\n"
