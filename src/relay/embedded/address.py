"""Where the running database is.

Owns the address that Relay's own processes connect to. Invariant: with replicas there is one address for all of them,
which stays right when another one becomes the primary.
"""

from __future__ import annotations

from pathlib import Path

from relay.embedded.account import account_for
from relay.embedded.credentials import read_credentials
from relay.embedded.faults import DataFolderRefused
from relay.embedded.layout import Layout, told_in_words
from relay.embedded.postmaster import Postmaster, answers
from relay.embedded.replication import REPLICAS, replicas_there
from relay.embedded.sockets import choose_sockets


def running_dsn(data_dir: Path) -> str | None:
    """The owner's address of the database that runs in that folder, started by whichever process; None if none runs.

    With replicas it names all of them, and means the one that takes writes, whichever that is when it is used. The
    server may still be recovering, and then tells each client so. Raises `EmbeddedFault` if the folder is closed to us.
    """
    layout = Layout(data_dir)
    with told_in_words(layout):
        there = replicas_there(data_dir)
        if not any(_answers(Layout(data_dir, name)) for name in there):
            return None
        credentials = read_credentials(layout.credentials)
        if credentials is None:
            raise DataFolderRefused(f"{layout.credentials} is missing; restart Relay, which sets new passwords")
        # one that is being built, or built anew, may be the primary later
        names = REPLICAS if there != REPLICAS[:1] else there
        return credentials.url(*(_sockets(Layout(data_dir, name), there) for name in names))


def _answers(layout: Layout) -> bool:
    running = Postmaster.running(layout.cluster)
    said = running.said() if running is not None else None
    return said is not None and answers(said.sockets)


def _sockets(layout: Layout, there: tuple[str, ...]) -> Path:
    """The folder of a server's socket: what the server says, or where it will be."""
    running = Postmaster.running(layout.cluster)
    said = running.said() if running is not None else None
    if said is not None and said.sockets:
        return Path(said.sockets)
    owner = layout.replica if layout.replica in there else there[0]
    return choose_sockets(layout, account_for(Layout(layout.data_dir, owner).cluster))
