"""The statements of `sql/*.sql`, each under its name.

Owns reading the files. A statement starts at its `-- name:` line; `-- parameters:`, `-- index:` and `-- fenced` lines
below it are checked by the tests. Invariant: no SQL is put together at run time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)
_PARAMETERS = re.compile(r"^-- parameters:((?:.|\n-- )*?)\n-- index:", re.MULTILINE)
_INDEX = re.compile(r"^-- index: (.+)$", re.MULTILINE)
_FENCED = re.compile(r"^-- fenced", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Statement:
    """One named statement.

    `parameters` describe $1, $2 and so on. Each of `indexes` is one that it counts on, or several of which any will do.
    `fenced` marks a write after a claim.
    """

    name: str
    text: str
    parameters: tuple[str, ...]
    indexes: tuple[frozenset[str], ...]
    fenced: bool


def parse(source: str) -> list[Statement]:
    """Split the text of a `.sql` file into its statements, in order. Raises `ValueError` for one without its lines."""
    parts = _NAME.split(source)[1:]
    return [_statement(name, body) for name, body in zip(parts[::2], parts[1::2], strict=True)]


def _statement(name: str, body: str) -> Statement:
    parameters = _PARAMETERS.search(body)
    if parameters is None:
        raise ValueError(f"the statement {name} does not say its parameters and indexes")
    index = _INDEX.search(body)
    return Statement(
        name=name,
        text=_COMMENT.sub("", body).strip().rstrip(";"),
        parameters=_listed(parameters[1].replace("\n--", " ")),
        indexes=tuple(frozenset(each.split(" or ")) for each in _listed(index[1])) if index else (),
        fenced=bool(_FENCED.search(body)),
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


@cache
def load() -> Mapping[str, Statement]:
    """All statements by name. Raises `ValueError` if two files use one name."""
    found: dict[str, Statement] = {}
    for file in sorted(files("relay.store").joinpath("sql").iterdir(), key=lambda entry: entry.name):
        for statement in parse(file.read_text(encoding="utf-8")):
            if statement.name in found:
                raise ValueError(f"two statements are named {statement.name}")
            found[statement.name] = statement
    return found


def text(name: str) -> str:
    """The SQL of a statement by its name."""
    return load()[name].text
