"""Claims about ``docs/http-api.md``: every reason of a dead letter is explained, with what to do about it."""

import re

from relay.domain.delivery import DeadReason
from tests.docs.tree import ROOT

PAGE = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")


def test_every_reason_of_a_dead_letter_is_explained_once_with_what_to_do() -> None:
    table = PAGE.partition("| reason | why it is dead | what to do |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", table, re.MULTILINE)
    assert [reason for reason, _, _ in rows] == [str(reason) for reason in DeadReason]
