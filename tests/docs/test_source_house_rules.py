"""Claims about every module of the package that the linters do not make."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.tree import ROOT, SOURCE, modules, project_files

FUNCTION_LINES = 60
MODULE_LINES = 500
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
# A directive, then the rest of its line: the reason has to stand there or in a comment on the line before.
DIRECTIVE = re.compile(
    r"#\s*(?:noqa(?::\s*[A-Z]+\d+(?:\s*,\s*[A-Z]+\d+)*)?"
    r"|type:\s*ignore(?:\[[\w, -]+\])?"
    r"|pragma:\s*no (?:cover|branch))"
    r"(?P<reason>.*)$"
)

each_module = pytest.mark.parametrize("module", modules(), ids=lambda path: str(path.relative_to(SOURCE)))


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _function_lengths(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each function with its number of lines, its docstring not counted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = _lines(node.body[0]) if ast.get_docstring(node) else 0
            yield node.name, _lines(node) - docstring


def _unexplained(path: Path) -> Iterator[int]:
    """Yield the numbers of the lines on which a checker is silenced and no reason is given."""
    before = ""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        found = DIRECTIVE.search(line)
        if found and not re.search(r"\w{3}", found["reason"]) and not before.lstrip().startswith("#"):
            yield number
        before = line


@each_module
def test_a_module_says_what_it_owns(module: Path) -> None:
    assert (ast.get_docstring(ast.parse(module.read_text())) or "").strip()


@each_module
def test_no_function_passes_sixty_lines(module: Path) -> None:
    lengths = _function_lengths(ast.parse(module.read_text()))
    assert [(name, lines) for name, lines in lengths if lines > FUNCTION_LINES] == []


@each_module
def test_no_module_passes_five_hundred_lines(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= MODULE_LINES


@each_module
def test_a_module_has_a_name_that_says_something(module: Path) -> None:
    assert not NAMES_THAT_SAY_NOTHING & set(module.relative_to(SOURCE).with_suffix("").parts)


def test_every_silenced_check_has_a_reason_beside_it() -> None:
    silenced = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in project_files()
        if path.suffix == ".py"
        for number in _unexplained(path)
    ]
    assert silenced == []
