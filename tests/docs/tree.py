"""The files that belong to the project, found without a version control program."""

from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "relay"
NOT_OURS = (".git", *(ROOT / ".gitignore").read_text().split())  # its patterns are plain names on purpose


def _ignored(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in NOT_OURS)


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if _ignored(path.name) or path.is_symlink():
            continue
        if path.is_dir():
            yield from _walk(path)
        elif path.is_file():
            yield path


@cache
def project_files() -> tuple[Path, ...]:
    """Return every file of the project, in order, without what ``.gitignore`` leaves out."""
    return tuple(_walk(ROOT))


def project_texts() -> Iterator[tuple[Path, str]]:
    """Yield every file that is UTF-8 text, with its text."""
    for path in project_files():
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def modules() -> list[Path]:
    """Return every Python module of the package, in order."""
    return [path for path in project_files() if path.is_relative_to(SOURCE) and path.suffix == ".py"]
