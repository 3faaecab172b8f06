"""When failed deliveries are tried again, as a table for the documentation, made from the rules themselves.

Owns the table only, in Markdown. Invariant: it shows what `backoff.next_try` plans where every attempt fails at once,
every lane is open and chance takes nothing away.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from relay.domain.backoff import DEFAULT, FOR_A_DAY, PRESETS, RetryPolicy, next_try

_MIDDLE = 0.5
"""The draw that leaves a delay as it is."""

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def reference() -> str:
    """The table: the rule that the settings give by default, then the presets."""
    chats = ("the default of chats", DEFAULT.overridden(FOR_A_DAY))
    rules = [("the default", DEFAULT), chats, *((f"`{name}`", policy) for name, policy in PRESETS.items())]
    rows = [_row(name, policy) for name, policy in rules]
    heads = ("rule", "attempts", "waits between them", "the last one after", "window")
    return "\n".join([_line(heads), _line("---" for _ in heads).replace(" ", ""), *rows, ""])


def waits(policy: RetryPolicy) -> list[float]:
    """The seconds between the attempts of a generation all of which fail at once."""
    planned: list[float] = []
    while (wait := next_try(policy, failed_attempt=len(planned) + 1, age=sum(planned), draw=_MIDDLE)) is not None:
        planned.append(wait)
    return planned


def duration(seconds: float) -> str:
    """Whole seconds in the two largest units that they fill, for example `1 h 5 min`."""
    parts: list[str] = []
    left = round(seconds)
    for unit, size in _UNITS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts) or "0 s"


def _run(wait: float, times: int) -> str:
    """The same wait so many times in a row."""
    return f"{times} times {duration(wait)}" if times > 1 else duration(wait)


def _row(name: str, policy: RetryPolicy) -> str:
    planned = waits(policy)
    steps = ", ".join(_run(wait, len(list(same))) for wait, same in groupby(planned))
    return _line((name, f"{len(planned) + 1}", steps, duration(sum(planned)), duration(policy.window_seconds)))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
