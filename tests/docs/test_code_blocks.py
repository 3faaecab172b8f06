"""Claims about every code block of README and docs: somebody runs it, or it says why nobody can."""

from __future__ import annotations

import json
import re

import pytest

from tests.docs.tree import ROOT
from tests.support.pages import NOT_RUN, PICTURE, QUERY, RUN, SHELL, Block, all_blocks

ALL = all_blocks()
LEAST_REASON = 15

each_block = pytest.mark.parametrize("block", ALL, ids=str)


def _is_claimed(block: Block) -> bool:
    """Commands are run with their page, documents are read below, pictures are no code."""
    return bool(block.mark or block.part) or block.language in (SHELL, QUERY, "json", PICTURE)


@each_block
def test_a_block_is_run_or_says_why_not(block: Block) -> None:
    assert _is_claimed(block), f"{block}: put `<!-- run: tests/… -->` or `<!-- not run: why -->` in front of it"


@each_block
def test_a_reason_for_not_running_is_one(block: Block) -> None:
    if block.mark == NOT_RUN:
        assert len(block.said) >= LEAST_REASON
    for path in re.findall(r"\btests/[\w/]+\.py", block.said):
        assert (ROOT / path).is_file(), f"{block} names {path}"


@each_block
def test_who_is_said_to_run_a_block_takes_it_from_its_page(block: Block) -> None:
    if block.mark == RUN:
        assert block.page in (ROOT / block.said).read_text(), f"{block}: {block.said} does not read the page"


@pytest.mark.parametrize("block", [each for each in ALL if each.language == "json"], ids=str)
def test_a_document_is_one(block: Block) -> None:
    json.loads(block.text)


def test_pages_are_read_to_the_end() -> None:
    fences = sum(len(re.findall(r"^ *```", (ROOT / page).read_text(), re.MULTILINE)) for page in {b.page for b in ALL})
    assert len(ALL) * 2 == fences
