"""The code blocks of README and docs, with what is said about who runs each.

A comment may stand in front of a block: ``<!-- run: tests/… -->`` names the test that takes the block from the page and
runs it, ``<!-- not run: … -->`` says why nothing can. Shell commands and queries without a comment are run by
``tests/system/test_pages.py``, page by page. Parts that are made from tables in the code bear no comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from tests.docs.tree import ROOT

SHELL, QUERY = "sh", "sql"
PICTURE = "mermaid"
RUN, NOT_RUN = "run", "not run"

_FENCE = re.compile(r" *```(\w*)")
_MARK = re.compile(rf"<!-- ({RUN}|{NOT_RUN}): (.+) -->")
_PART = re.compile(r"<!-- (?:generated: )?(\w+)(?:: made by .*)? -->")
_PART_ENDS = re.compile(r"<!-- (?:\w+: )?end -->")


@dataclass(frozen=True, slots=True)
class Block:
    """One block. `mark` and `said` are what the comment says, `part` is the name of the made part that it is in."""

    page: str
    line: int
    language: str
    text: str
    mark: str
    said: str
    part: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Every page that tells people what to do; decisions tell why."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of one page, in order."""
    before, part, language = "", "", ""
    inside: list[str] | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if inside is not None and fence is None:
            inside.append(line)
        elif fence is not None and inside is None:
            inside, language = [], fence[1]
        elif inside is not None:
            mark = _MARK.fullmatch(before.strip())
            kind, said = mark.groups() if mark else ("", "")
            text = dedent("\n".join(inside))
            yield Block(str(page.relative_to(ROOT)), number - len(inside) - 1, language, text, kind, said, part)
            inside, before = None, ""
        elif line.strip():
            before = line
            part = "" if _PART_ENDS.fullmatch(line) else (begun[1] if (begun := _PART.fullmatch(line)) else part)


def all_blocks() -> list[Block]:
    """The blocks of all pages."""
    return [block for page in pages() for block in blocks(page)]


def block(page: str, beginning: str) -> Block:
    """The one block of a page in which a line begins so. Raises `ValueError` unless there is exactly one."""
    (found,) = (each for each in blocks(ROOT / page) if re.search(rf"^{re.escape(beginning)}", each.text, re.MULTILINE))
    return found
