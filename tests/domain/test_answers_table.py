"""Claims about the table of answers in the documentation: it has a row for each ruling, and everything is in one."""

import re

from relay.domain.answers_table import STATUSES, reference
from relay.domain.outcome import OutcomeReason, rule
from relay.domain.sending import ErrorClass, SendFacts

ROWS = {row.split(" | ")[2].strip("`"): row.split(" | ")[0] for row in reference().splitlines()[2:]}


def statuses_of(came: str) -> set[int]:
    found = re.findall(r"(?<!`)\b(\d{3})(?:\u2013(\d{3}))?", came)
    return {status for first, last in found for status in range(int(first), int(last or first) + 1)}


def test_every_reason_has_a_row() -> None:
    assert list(ROWS) == [str(reason) for reason in OutcomeReason]


def test_every_status_stands_in_the_row_of_its_ruling() -> None:
    told = {status: reason for reason, came in ROWS.items() for status in statuses_of(came)}
    assert told == {status: str(rule(SendFacts(status)).reason) for status in STATUSES}


def test_every_error_stands_in_the_row_of_its_ruling() -> None:
    told = {error: reason for reason, came in ROWS.items() for error in re.findall(r"`(\w+)`", came)}
    assert told == {str(error): str(rule(SendFacts(error_class=error)).reason) for error in ErrorClass}
