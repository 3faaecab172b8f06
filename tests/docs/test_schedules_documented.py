"""Claims about the table of retries in ``docs/receivers.md``."""

from tests.docs.generated import COMMAND, SCHEDULES


def test_the_table_of_retries_is_what_the_rules_give() -> None:
    assert SCHEDULES.written() == SCHEDULES.make(), f"docs/receivers.md is out of date: run `{COMMAND}`"
