"""Claims about ``docs/logs.md`` and the glossary that it is made from: they have every word that a line can have."""

import ast
import re
from collections.abc import Iterator

import pytest

from relay.domain import telemetry as t
from relay.domain.attempt import AckFact
from relay.domain.delivery import DeadReason
from relay.domain.outcome import Bury, HandBack, HandBackReason, OutcomeReason, Received, Retry
from relay.metrics import logs
from relay.metrics.glossary import FIELDS, PLAIN, events, fields_of
from relay.metrics.lines import ATTEMPT_EVENTS, log_listener
from relay.settings import LogLevel
from tests.docs.generated import COMMAND, LOGS
from tests.docs.tree import SOURCE, modules
from tests.support.facts import DELIVERY, RECEIPT, attempt

SAYS = {"debug", "info", "warning", "error", "exception", "critical"}


def told_in_place() -> Iterator[tuple[str, ast.Call]]:
    """Yield each call of a logger in the package, with where it stands."""
    for module in modules():
        for node in ast.walk(ast.parse(module.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in SAYS
                and ast.unparse(node.func.value)
                in ("logger", 'logging.getLogger("relay")', "logging.getLogger('relay')")
            ):
                yield f"{module.relative_to(SOURCE)}:{node.lineno}", node


def field_names() -> Iterator[str]:
    """Yield the keys of each literal that becomes a line's fields: `{"fields": {...}}`, or a name for one."""
    for module in modules():
        for function in ast.walk(ast.parse(module.read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            nodes = list(ast.walk(function))
            given = [node.values[0] for node in nodes if isinstance(node, ast.Dict) and _keys(node) == ["fields"]]
            names = {node.id for node in given if isinstance(node, ast.Name)}
            given += [n.value for n in nodes if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) in names]
            for literal in given:
                yield from _keys(literal)


def _keys(node: ast.expr) -> list[str]:
    return [str(k.value) for k in node.keys if isinstance(k, ast.Constant)] if isinstance(node, ast.Dict) else []


def test_the_reference_of_logs_is_what_the_glossary_gives() -> None:
    assert LOGS.written() == LOGS.make(), f"docs/logs.md is out of date: run `{COMMAND}`"


def test_what_is_told_in_its_place_has_a_name_of_the_glossary() -> None:
    named = {where: call.args[0] for where, call in told_in_place()}
    assert len(named) > 20
    unknown = {
        where: ast.unparse(name)
        for where, name in named.items()
        if not (isinstance(name, ast.Constant) and name.value in PLAIN)
    }
    assert unknown == {}


def test_what_the_glossary_says_is_told_in_its_place_is_told_somewhere() -> None:
    source = "".join(module.read_text() for module in modules() if module.name != "glossary.py")
    assert [name for name in PLAIN if f'"{name}"' not in source] == []


def test_every_field_of_the_code_is_documented() -> None:
    assert set(field_names()) - set(FIELDS) == set()


@pytest.mark.parametrize("kind", t.KINDS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_happening_is_documented(kind: type[t.Happening]) -> None:
    in_parts = {t.AttemptsRecorded, t.DeliveriesAcked}
    assert kind in in_parts or fields_of(kind) <= set(FIELDS)


def test_the_lines_of_attempts_have_documented_names_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    verdicts = [
        None,
        Received(),
        Retry(1.0, OutcomeReason.TIMED_OUT),
        Bury(DeadReason.EXHAUSTED, OutcomeReason.TIMED_OUT),
        HandBack(HandBackReason.LOCAL),
    ]
    told: list[logs.Told] = []
    with caplog.at_level(LogLevel.DEBUG.upper(), logger="relay"):
        listener = log_listener(tell=told.extend)
        listener(t.attempts_recorded([attempt(verdict=verdict) for verdict in verdicts], 0.0))
        listener(t.DeliveriesAcked((AckFact(DELIVERY, RECEIPT, "billing", 1.0),)))
    assert {line.name for line in told} == set(ATTEMPT_EVENTS)
    assert {name for line in told for name in line.fields} <= set(FIELDS)


def test_a_word_that_the_page_speaks_of_exists() -> None:
    page = LOGS.page.read_text()
    spoken_of = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", page))
    assert spoken_of - set(events()) - set(FIELDS) - {"relay_log_lines_dropped_total"} == set()
