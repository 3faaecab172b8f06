"""What the broker's url can say, and what its user must be allowed, is in the page about deployment."""

from __future__ import annotations

import re

from relay.broker import address, faults
from tests.docs.tree import ROOT

PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")


def test_every_option_of_the_url_is_documented() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"\w+", row)}
    assert set(address._OPTIONS) <= documented


def test_the_rights_of_the_page_are_those_that_a_refusal_names() -> None:
    (line,) = re.findall(r"ACL SETUSER relay on >password ([^`]*)`", PAGE)
    named = re.findall(r"[~+]\S+?(?=[\s,]|$)", faults._SAID["NOPERM"].format(stream=address.STREAM))
    assert set(line.split()) == set(named)
