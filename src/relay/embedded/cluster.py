"""PostgreSQL's data folder: whether there is one, and making one.

Owns ``initdb`` and the roles and the database in a new folder. Invariant: a data folder appears under its name only
when it is complete, roles, database and access rules included; until then it is a half-made folder that nobody uses.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

from relay.embedded.account import Account, Runner
from relay.embedded.configuration import INCLUDE
from relay.embedded.credentials import OWNER, SUPERUSER, Credentials
from relay.embedded.faults import DataFolderRefused
from relay.embedded.files import append, read_or_none, settle
from relay.embedded.layout import Layout

INITDB_SECONDS = 600.0
"""How long the making of a data folder may take; a second is usual, and it waits for the disk."""

RECOVERY_SECONDS = 6 * 3600.0
"""How long a server may take to come up after a crash; minutes are usual, bounded by the log since its last
checkpoint.
"""


def exists(cluster: Path, major: str) -> bool:
    """Whether a data folder of PostgreSQL `major` is there; False if there is nothing or an empty folder.

    Raises `DataFolderRefused` if something else is there, and `OSError`.
    """
    if not cluster.exists():
        return False
    if not cluster.is_dir():
        raise DataFolderRefused(f"{cluster} is not a folder; move it away or use another data folder")
    version = read_or_none(cluster / "PG_VERSION")
    if version is None:
        if any(cluster.iterdir()):
            raise DataFolderRefused(
                f"{cluster} holds something that is not a PostgreSQL data folder;"
                " move it away or use another data folder"
            )
        return False
    if version.strip() != major:
        raise DataFolderRefused(
            f"{cluster} was made by PostgreSQL {version.strip()[:20]}, and this Relay runs PostgreSQL {major};"
            " move the data with pg_dump or pg_upgrade, or use another data folder"
        )
    if not (cluster / "global" / "pg_control").is_file():
        raise DataFolderRefused(
            f"{cluster} is an incomplete data folder: it has no global/pg_control;"
            " restore it from a backup or move it away"
        )
    return True


def scratch_folder(layout: Layout, account: Account) -> Path:
    """Make an empty folder of the account's own beside the data folder. Raises `OSError`."""
    folder = Path(tempfile.mkdtemp(prefix=layout.scratch_prefix, dir=layout.home))
    if account.gift is not None:
        # Only the folder is given away, while it is empty and nobody can have put anything into it.
        os.chown(folder, *account.gift)
    return folder


def initialise(folder: Path, runner: Runner) -> None:
    """Run ``initdb`` in an empty folder. Raises `StartFailed` and `OSError`.

    The builtin provider sorts by code point and knows the case of all letters, with no locale of the machine
    involved. Nobody can log in until the access rules are replaced.
    """
    runner.run(
        "initdb",
        f"--pgdata={folder}",
        f"--username={SUPERUSER}",
        "--auth=reject",
        "--encoding=UTF8",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--locale=C",
        "--data-checksums",
        "--no-instructions",
        seconds=INITDB_SECONDS,
    )
    append(folder / "postgresql.conf", INCLUDE)


def create_roles(folder: Path, runner: Runner, credentials: Credentials) -> None:
    """Create the owner's role and its database in a new data folder. Raises `StartFailed`."""
    _in_single_user_mode(
        folder,
        runner,
        INITDB_SECONDS,
        f"CREATE ROLE {OWNER} LOGIN NOSUPERUSER",
        f"GRANT pg_monitor TO {OWNER}",
        f"CREATE DATABASE {OWNER} OWNER {OWNER}",
        *_passwords(credentials),
    )


def set_passwords(cluster: Path, runner: Runner, credentials: Credentials) -> None:
    """Give the roles of a data folder, whose server is stopped, new passwords. Raises `StartFailed`."""
    _in_single_user_mode(cluster, runner, RECOVERY_SECONDS, *_passwords(credentials))


def _passwords(credentials: Credentials) -> tuple[str, ...]:
    return (
        f"ALTER ROLE {OWNER} PASSWORD '{credentials.owner.expose()}'",
        f"ALTER ROLE {SUPERUSER} PASSWORD '{credentials.superuser.expose()}'",
    )


def _in_single_user_mode(cluster: Path, runner: Runner, seconds: float, *statements: str) -> None:
    """Run statements, a line each, in a server that has no socket and no other user: it needs no login to get in."""
    runner.run(
        "postgres",
        "--single",
        "-D",
        str(cluster),
        "-c",
        "exit_on_error=on",
        "-c",
        "log_min_error_statement=panic",  # statements hold passwords, and a failed one would be shown
        "-c",
        "synchronous_standby_names=",  # nobody can follow a server without a socket, so nobody is waited for
        SUPERUSER,
        text="".join(f"{statement}\n" for statement in statements),
        seconds=seconds,
    )


def publish(folder: Path, layout: Layout) -> None:
    """Give a complete data folder its name. Raises `DataFolderRefused` if the name was taken meanwhile, and
    `OSError`.
    """
    try:
        folder.rename(layout.cluster)
    except OSError as fault:
        if fault.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY):
            raise
        raise DataFolderRefused(f"{layout.cluster} cannot be put in place: {fault.strerror}") from fault
    settle(layout.home)


def discard(layout: Layout) -> None:
    """Take a data folder away, with its server stopped; it loses its name first. Raises `OSError`."""
    aside = Path(tempfile.mkdtemp(prefix=layout.scratch_prefix, dir=layout.home))
    layout.cluster.rename(aside)
    shutil.rmtree(aside)
