"""The folder of the server's unix socket.

Owns the choice of that folder. Invariant: only the server's account and the user (or, for root, the group) of the
Relay process that starts it can enter the folder, so nobody else gets as far as being asked for a password.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from relay.embedded.account import Account
from relay.embedded.credentials import PORT
from relay.embedded.faults import DataFolderRefused
from relay.embedded.layout import Layout

SOCKET_NAME = f".s.PGSQL.{PORT}"
LONGEST_PATH = 107
"""Bytes in the address of a unix socket on Linux, without the zero at its end."""


def usable(folder: Path) -> bool:
    """Whether a socket in the folder has an address that is short enough and needs no quoting by any client.

    Clients take a comma for the end of a host, and addresses travel as UTF-8.
    """
    try:
        length = len(str(folder / SOCKET_NAME).encode())
    except UnicodeEncodeError:
        return False
    return length <= LONGEST_PATH and str(folder).isprintable() and not set(str(folder)) & set(",\"'\\")


def choose_sockets(layout: Layout, account: Account) -> Path:
    """The folder for the socket of a server under that account, whether it exists or not.

    It lies beside the data folder, or where that path is too long below the system's temporary folder, under a name
    that is the same at each start, so that clients find a restarted server again. Raises `DataFolderRefused`.
    """
    for folder in (layout.sockets, _temporary(layout, account)):
        if usable(folder):
            return folder
    raise DataFolderRefused(
        f"no path for a unix socket is short enough, neither in {layout.home} nor in {tempfile.gettempdir()};"
        " use a data folder with a shorter path, or set TMPDIR"
    )


def prepare_sockets(layout: Layout, account: Account) -> Path:
    """Make the folder for the socket, or make it empty, and return it. Raises `OSError` and `DataFolderRefused`."""
    folder = choose_sockets(layout, account)
    _make(folder, account)
    return folder


def _temporary(layout: Layout, account: Account) -> Path:
    identity = f"{account.uid}\0{layout.cluster.resolve()}".encode(errors="surrogateescape")
    return Path(tempfile.gettempdir()) / f"relay-{hashlib.sha256(identity).hexdigest()[:16]}"


def _make(folder: Path, account: Account) -> None:
    """Create the folder, or check that it is the one which an earlier start created."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    # By descriptor from here on: in a shared temporary folder, a path may be turned into a link at any moment.
    descriptor = _open_folder(folder)
    try:
        if os.fstat(descriptor).st_uid not in (account.uid, os.geteuid()):
            raise DataFolderRefused(f"{folder} is in the way: it belongs neither to us nor to {account.name}")
        os.fchown(descriptor, account.uid, os.getegid())
        os.fchmod(descriptor, 0o700 if account.is_us else 0o710)
    finally:
        os.close(descriptor)


def _open_folder(folder: Path) -> int:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (NotADirectoryError, PermissionError) as fault:
        raise DataFolderRefused(f"{folder} is in the way: it is not a folder of ours ({fault.strerror})") from fault


def remove_stale_sockets(folder: Path) -> None:
    """Remove what a killed server left in its folder. Only for a folder whose server is known to be gone.

    PostgreSQL would refuse to start if the process number in the socket's lock file meanwhile belongs to another
    process.
    """
    for name in (SOCKET_NAME, f"{SOCKET_NAME}.lock"):
        (folder / name).unlink(missing_ok=True)


def discard_sockets(folder: Path) -> None:
    """Remove the folder of a stopped server, if it is still there. Raises `OSError` if there is anything else in it."""
    remove_stale_sockets(folder)
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()
