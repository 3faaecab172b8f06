"""Which server is the primary.

Owns the answer, which the folders give: the one without PostgreSQL's mark of a standby. Invariant: where the folders
leave a doubt, nothing is started, and a sentence says what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relay.embedded.control import story_of
from relay.embedded.faults import DataFolderRefused
from relay.embedded.files import place, read_or_none
from relay.embedded.layout import Layout
from relay.embedded.programs import Programs
from relay.embedded.replication import REPLICAS, is_standby

ALONE_FILE = "r1.alone"
"""Stands beside the folders from the moment when r1 takes writes without its standbys until they have caught up."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What each server is, by its folder."""

    primary: str | None
    standbys: tuple[str, ...]
    gone: tuple[str, ...]


def is_gone(cluster: Path) -> bool:
    """Whether a data folder is no data folder any more."""
    return not (cluster / "global" / "pg_control").is_file()


def look_at(data_dir: Path, names: tuple[str, ...], programs: Programs) -> Standing:
    """Raises `DataFolderRefused` if more than one says that it is the primary."""
    clusters = {name: Layout(data_dir, name).cluster for name in names}
    gone = tuple(name for name, cluster in clusters.items() if is_gone(cluster))
    standbys = tuple(name for name, cluster in clusters.items() if name not in gone and is_standby(cluster))
    primaries = [name for name in names if name not in gone and name not in standbys]
    if len(primaries) > 1:
        stories = "; ".join(f"{name}: {story_of(programs, clusters[name])}" for name in primaries)
        raise DataFolderRefused(
            f"{' and '.join(primaries)} in {Layout(data_dir).home} both say that they are the primary ({stories});"
            " move away the one whose data is not wanted: the other is then copied to it"
        )
    return Standing(primaries[0] if primaries else None, standbys, gone)


def check_alone(data_dir: Path) -> None:
    """Whether r1 may run without the others, if there are any. Raises `DataFolderRefused`."""
    layout = Layout(data_dir)
    others = [name for name in REPLICAS[1:] if Layout(data_dir, name).cluster.exists()]
    if not others:
        return
    with_all = "start with --replicas 3"
    if is_gone(layout.cluster):
        raise DataFolderRefused(
            f"{layout.home} holds {' and '.join(others)}, copies of a database whose {layout.replica} is gone:"
            f" {with_all}, which makes one of them the primary"
        )
    if is_standby(layout.cluster):
        raise DataFolderRefused(f"{layout.cluster} is a standby, and not the primary of its database: {with_all}")
    clusters = {name: Layout(data_dir, name).cluster for name in others}
    rivals = [name for name, cluster in clusters.items() if not is_gone(cluster) and not is_standby(cluster)]
    if rivals:
        raise DataFolderRefused(
            f"{' and '.join(rivals)} in {layout.home} took over from {layout.replica}, which may lack what was accepted"
            f" since: {with_all}, which tells them apart; or move away the one whose data is not wanted"
        )
    place(layout.home / ALONE_FILE, "The standbys here lack what r1 has taken alone.\n")


def check_promotable(data_dir: Path, names: tuple[str, ...], standing: Standing) -> None:
    """Whether one of the standbys may become the primary. Raises `DataFolderRefused`.

    What was confirmed is on one of them at least, and which one shows only when all are compared.
    """
    home = Layout(data_dir).home
    if read_or_none(home / ALONE_FILE) is not None:
        raise DataFolderRefused(
            f"r1 in {home} took writes without its standbys and is gone: put it back from a backup, or, to go on with"
            f" what the standbys have, remove {home / ALONE_FILE}"
        )
    if len(standing.standbys) < len(names) - 1:
        (left,) = standing.standbys
        lost = " and ".join(standing.gone)
        raise DataFolderRefused(
            f"{lost} in {home} are gone, and {left} alone may lack what they confirmed: put one of them back from a"
            f" backup, or, to go on with what {left} has, stop Relay, remove {home / left / 'standby.signal'} and start"
            " it again"
        )


def caught_up(data_dir: Path) -> None:
    """The standbys have all that r1 took alone."""
    (Layout(data_dir).home / ALONE_FILE).unlink(missing_ok=True)
