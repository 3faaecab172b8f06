"""What a PromQL expression speaks of: which series, by which name.

No parser: strings, label matchers and the lists of labels of `by` and its like are taken out, and what is left of the
words, but for functions, operators and durations, are names of series. Prometheus itself judges the rest.
"""

from __future__ import annotations

import re

from relay.metrics.names import TABLE, Kind

OF_PROMETHEUS = frozenset({"up", "ALERTS"})
"""Series that Prometheus makes itself."""

_MATCHERS = r"\{[^{}]*\}"
_STRING = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_LABELS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)")
_WINDOW = re.compile(r"\[[^\]]*\]|\boffset\s+\S+")
_OPERATORS = frozenset({"and", "or", "unless", "bool", "inf", "nan"})
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*(?:\{(\d+)\})?(\s*\()?")


def series_in(expression: str) -> set[str]:
    """The names of the series that it selects."""
    return {name for name, _ in selectors_in(expression)}


def selectors_in(expression: str) -> set[tuple[str, str]]:
    """Each selector: a name with its label matchers as they stand there, braces and all, or an empty text."""
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(found.group())
        return f"{{{len(kept) - 1}}}"

    text = re.sub(_MATCHERS, keep, expression)
    text = _WINDOW.sub(" ", _LABELS.sub(" ", _STRING.sub(" ", text)))
    selectors = set()
    for found in _SELECTOR.finditer(text):
        name, matchers, is_call = found.groups()
        if not is_call and name not in _OPERATORS:
            selectors.add((name, "" if matchers is None else kept[int(matchers)]))
    return selectors


def known_series() -> set[str]:
    """Every name that Relay or Prometheus exports."""
    known = set(OF_PROMETHEUS)
    for metric in TABLE:
        if metric.kind is Kind.HISTOGRAM:
            known.update(f"{metric.name}_{part}" for part in ("bucket", "sum", "count"))
        else:
            known.add(metric.name)
    return known
