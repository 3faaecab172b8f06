"""The parts of the documentation that are made from tables in the code, and the way to make them anew.

A part stands between ``<!-- NAME: made by ... -->`` and ``<!-- NAME: end -->``. Its test compares it with
what the table gives now; ``python -m tests.docs.generated`` writes all of them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relay import __version__, metrics, settings
from relay.api import calls
from relay.api.app import description
from relay.cli import reference as commands
from relay.domain import answers_table, refusals_table, schedule_table, verification
from relay.loadtest import sweep, sweep_report
from relay.metrics import glossary
from relay.web import problems
from tests.docs.tree import ROOT

COMMAND = "python -m tests.docs.generated"


@dataclass(frozen=True, slots=True)
class Part:
    """A named stretch of a page, and what makes it."""

    page: Path
    name: str
    make: Callable[[], str]

    def pattern(self) -> re.Pattern[str]:
        """Match the opening mark, the part, and the closing mark."""
        return re.compile(rf"(<!-- {self.name}: made by [^>]*-->\n\n)(.*?)(\n<!-- {self.name}: end -->)", re.DOTALL)

    def written(self) -> str:
        """Return the part as the page has it. Raises LookupError where the page has no such part."""
        found = self.pattern().search(self.page.read_text())
        if found is None:
            raise LookupError(f"{self.page.relative_to(ROOT)} has no part named {self.name}")
        return found[2]

    def write(self) -> None:
        """Put what the table gives now into the page."""
        self.written()
        page = self.pattern().sub(lambda found: found[1] + self.make() + found[3], self.page.read_text())
        self.page.write_text(page)


SETTINGS = Part(ROOT / "docs" / "settings.md", "settings", settings.reference)
METRICS = Part(ROOT / "docs" / "metrics.md", "metrics", metrics.reference)
LOGS = Part(ROOT / "docs" / "logs.md", "logs", glossary.reference)
COMMANDS = Part(ROOT / "docs" / "commands.md", "commands", commands.reference)
ERROR_CODES = Part(ROOT / "docs" / "errors.md", "errors", problems.reference)
CALLS = Part(ROOT / "docs" / "http-api.md", "calls", lambda: calls.reference(description(__version__)))
ANSWERS = Part(ROOT / "docs" / "receivers.md", "answers", answers_table.reference)
SCHEDULES = Part(ROOT / "docs" / "receivers.md", "schedules", schedule_table.reference)
REFUSALS = Part(ROOT / "docs" / "sending.md", "refusals", refusals_table.reference)
FAULTS = Part(ROOT / "docs" / "verify.md", "faults", verification.reference)
SWEEP_PAGE = ROOT / "docs" / "load-test.md"
SWEEP_RESULT = SWEEP_PAGE.with_suffix("") / "sweep.json"
SWEEP = Part(SWEEP_PAGE, "sweep", lambda: sweep_report.part(sweep.read(SWEEP_RESULT.read_bytes()), "load-test"))
PARTS = (SETTINGS, METRICS, LOGS, COMMANDS, ERROR_CODES, CALLS, ANSWERS, SCHEDULES, REFUSALS, FAULTS, SWEEP)

if __name__ == "__main__":
    for part in PARTS:
        part.write()
    for name, drawn in sweep_report.plots(sweep.read(SWEEP_RESULT.read_bytes())).items():
        (SWEEP_RESULT.parent / name).write_text(drawn)
