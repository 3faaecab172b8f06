"""Claims about ``docs/http-api.md`` and ``docs/receivers.md``: every call and every answer stands there as it is."""

from tests.api.description import operations
from tests.docs.generated import ANSWERS, CALLS, COMMAND


def test_the_lines_of_the_calls_are_what_the_description_gives() -> None:
    assert CALLS.written() == CALLS.make(), f"docs/http-api.md is out of date: run `{COMMAND}`"


def test_every_call_has_a_line() -> None:
    lines = CALLS.written().splitlines()
    told = [f"# {each['summary']}: {each['method']} {each['path']}" for each in operations().values()]
    assert sorted(told) == sorted(line for line in lines if line.startswith("# "))


def test_the_table_of_answers_is_what_the_rulings_give() -> None:
    assert ANSWERS.written() == ANSWERS.make(), f"docs/receivers.md is out of date: run `{COMMAND}`"
