"""Claims about the table of retries in the documentation."""

import pytest

from relay.domain.backoff import DEFAULT, PATIENT
from relay.domain.schedule_table import duration, reference, waits


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (2, "2 s"),
        (60, "1 min"),
        (254, "4 min 14 s"),
        (3900, "1 h 5 min"),
        (345_600, "4 d"),
        (90_061, "1 d 1 h"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_waits_are_those_of_the_rule_until_its_last_attempt() -> None:
    assert waits(DEFAULT) == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert waits(PATIENT) == list(PATIENT.schedule)


def test_every_rule_has_a_row() -> None:
    default, chats, patient = reference().splitlines()[2:]
    assert default.startswith(
        "| the default | 12 | 2 s, 4 s, 8 s, 16 s, 32 s, 1 min 4 s, 2 min 8 s, 4 min 16 s, 3 times 5 min | "
    )
    assert default.endswith(" | 23 min 30 s | 30 min |")
    assert chats.endswith(", 17 min 4 s, 46 times 30 min | 23 h 34 min | 1 d |")
    assert patient == ("| `patient` | 10 | 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 1 d | 3 d 3 h | 4 d |")
