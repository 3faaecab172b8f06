"""Moving a tenant between two databases, by the commands that `docs/scaling.md` shows.

Owns running them. What they leave is for the tests to look at. They run as they stand there, in a shell without
`pipefail`, so what comes of them is known by what they say.
"""

from __future__ import annotations

import os
import subprocess

from relay.embedded.programs import environment, find_programs
from tests.docs.tree import ROOT
from tests.support.pages import block

TENANT = "acct_acme"
"""Who is moved in the documentation."""
COPIED = f"{TENANT} was copied\n"
LIMIT_SECONDS = 60.0

_PAGE = "docs/scaling.md"
_COPY, _LEAVE = 'psql "$FROM" --no-psqlrc -qAt', 'psql "$FROM" --no-psqlrc -q1'


def copy_tenant(source: str, to: str) -> str:
    """Copy the tenant from one database to the other; answers what was said."""
    return _said(block(_PAGE, _COPY).text, FROM=source, TO=to)


def leave_tenant(source: str) -> str:
    """End the tenant in the database that it leaves; answers what was said, nothing if it was ended."""
    return _said(block(_PAGE, _LEAVE).text, FROM=source)


def script_that_copies(source: str) -> str:
    """What the second half of the copy is given to read."""
    return _said(_halves()[0], FROM=source)


def run_script(to: str, script: str, *words: str) -> str:
    """The second half of the copy, with more words, given that; answers what was said."""
    return _said(" ".join((_halves()[1], *words)), script, TO=to)


def _halves() -> tuple[str, str]:
    first, second = block(_PAGE, _COPY).text.split(" | ")
    return first, second


def _said(command: str, given: str = "", **names: str) -> str:
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=ROOT,
        env=environment(PATH=f"{find_programs().folder}{os.pathsep}{os.defpath}", **names),
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    return done.stdout
