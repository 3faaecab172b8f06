"""Claims about the files of this project as such: what they may not mention, and what must resolve."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.tree import ROOT, SOURCE, project_files, project_texts

MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:root|work|Users/\w+|home/(?!relay\b)\w+|tmp/\w+_jobs)/")
REGISTRY = re.compile(r"pypi\.org|pythonhosted\.org|registry\.npmjs|https?://\S+/simple\b")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

DOCUMENTS = [path for path in project_files() if path.suffix == ".md"]


def _anchor(heading: str) -> str:
    """Return the anchor that a rendered heading gets: lower case, words joined by dashes."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def _broken_links(document: Path) -> list[str]:
    """Return the links that lead to no file or no heading of this project; urls are not followed."""
    broken = []
    for target in LINK.findall(FENCE.sub("", document.read_text())):
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        file = document.parent / name if name else document
        if not file.exists() or (anchor and anchor not in map(_anchor, HEADING.findall(file.read_text()))):
            broken.append(target)
    return broken


def _mentions(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path, text in project_texts()
        for match in pattern.finditer(text)
    ]


def test_no_file_mentions_a_path_of_the_machine_it_was_written_on() -> None:
    assert _mentions(MACHINE_PATH) == []


def test_no_file_names_a_package_registry() -> None:
    assert _mentions(REGISTRY) == []


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_the_locks_pin_every_package_by_hash_and_hold_no_address(name: str) -> None:
    text = (ROOT / name).read_text()
    requirements = re.split(r"\n(?=[a-z])", "\n".join(re.findall(r"^[^#\n].*$", text, re.MULTILINE)))

    assert [r.split()[0] for r in requirements if not re.search(r"==\S+.*\n\s+--hash=sha256:", r)] == []
    assert re.findall(r"\w+://\S*|^--?\w.*$", text, re.MULTILINE) == []


def test_the_development_lock_installs_the_same_versions_as_the_runtime_lock() -> None:
    runtime, development = (
        set(re.findall(r"^[\w.-]+==\S+", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.lock", "requirements-dev.lock")
    )

    assert runtime - development == set()


def test_make_help_lists_every_target_that_is_meant_for_people() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    described = re.findall(r"^([a-z-]+):.*## \S", makefile, re.MULTILINE)

    assert sorted(" ".join(phony).split()) == sorted(described)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_links_of_a_document_lead_somewhere(document: Path) -> None:
    assert _broken_links(document) == []


def test_every_file_that_the_package_reads_is_installed_with_it() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = setuptools["package-data"]["*"]
    data = [path for path in project_files() if path.is_relative_to(SOURCE) and path.suffix != ".py"]

    assert [path.name for path in data if not any(path.match(pattern) for pattern in patterns)] == []
