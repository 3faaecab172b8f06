"""When to try again: exponential backoff inside a budget of attempts and a window of time.

Owns the retry policy, the delay and the rule that ends a generation. Invariant: a delay is finite, at least 0 and, but
for an endpoint's own `Retry-After`, at most the policy's longest delay plus its jitter, whatever the attempt number.

The installation's policy (`DEFAULT`) tries at 0, 2, 6, 14, 30, 62, 126, 254, 510, 810, 1110 and 1410 s when every
attempt fails at once. Jitter alone moves the twelfth to at most 1692 s, so all twelve fit into the window of 1800 s;
they may not where attempts use up their timeouts, or where the lane was closed in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

_MOST_DOUBLINGS = 1023
"""The largest power of two that a float holds: a product may then become infinite, but nothing raises."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a generation is retried.

    Times are in seconds, `jitter` is a share of the delay (0.2 = up to 20 % either way). `schedule` replaces the
    doubling by fixed delays before the 2nd, 3rd, … attempt (the preset `patient`); its last delay is repeated if there
    are more attempts than delays.
    """

    max_attempts: int
    base_seconds: float
    max_seconds: float
    window_seconds: float
    jitter: float
    schedule: tuple[float, ...] = ()

    def overridden(self, wishes: Mapping[str, object]) -> RetryPolicy:
        """This policy with an endpoint's own wishes, checked before: `{"preset": "patient"}`, or any of
        `max_attempts`, `base_seconds`, `max_seconds` and `window_seconds`. A base delay of its own is also its longest
        delay where that is not named and would be shorter.
        """
        if "preset" in wishes:
            return PRESETS[str(wishes["preset"])]
        wished = replace(self, **wishes)  # type: ignore[arg-type] # the names and types were checked when written
        if "max_seconds" in wishes or wished.base_seconds <= wished.max_seconds:
            return wished
        return replace(wished, max_seconds=wished.base_seconds)


DEFAULT = RetryPolicy(max_attempts=12, base_seconds=2.0, max_seconds=300.0, window_seconds=1800.0, jitter=0.2)

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0

PATIENT = RetryPolicy(
    max_attempts=10,
    base_seconds=5.0,
    max_seconds=_DAY,
    window_seconds=4 * _DAY,
    jitter=0.2,
    schedule=(
        5.0,
        5 * _MINUTE,
        30 * _MINUTE,
        2 * _HOUR,
        5 * _HOUR,
        10 * _HOUR,
        14 * _HOUR,
        20 * _HOUR,
        24 * _HOUR,
    ),
)
"""The example schedule of Standard Webhooks 1.0.0: ten attempts over 75 h 35 min. The window leaves room for the
jitter (90 h 42 min at most), so that it is the schedule that ends a generation."""


FOR_A_DAY: Mapping[str, object] = {"max_attempts": 75, "max_seconds": 1800.0, "window_seconds": _DAY}
"""Wishes for a chat, whose platform may be busy for hours with what it is owed. Over `DEFAULT` it is the window that
ends a generation, after 57 attempts or, with chance on the side of short delays, up to 70."""

PRESETS = {"patient": PATIENT}
"""The policies that an endpoint can ask for by name."""


def delay(policy: RetryPolicy, failed_attempt: int, draw: float) -> float:
    """Seconds to wait after a generation's n-th attempt (from 1) failed; `draw` is random in [0, 1)."""
    return _planned(policy, failed_attempt) * (1 + policy.jitter * (2 * draw - 1))


def next_try(
    policy: RetryPolicy, *, failed_attempt: int, age: float, draw: float, retry_after: float = 0.0, soon: bool = False
) -> float | None:
    """Seconds until the generation's next attempt, or None: the generation is exhausted.

    `age` is the seconds from the start of the generation's first attempt to the end of the one that just failed;
    `retry_after` is what the endpoint asked for (seconds, already capped); `soon` plans the delay of a first retry,
    whichever attempt it was: for one that failed by no fault of the endpoint. The rule:

    1. There is no attempt beyond `max_attempts`.
    2. There is none where the policy's own delay would end past the window: the window bounds what is scheduled.
    3. What is scheduled is made, however long its lane (breaker, rate limit, pause, hold) keeps it waiting: that wait
       does not kill. If it lasts past the window, the attempt is the last, by rule 2.
    4. A `Retry-After` beyond the policy's delay is honoured, even past the window. The wait is the endpoint's wish,
       like a closed lane, and what follows it is then the last attempt, by rule 2.

    For `DEFAULT`: an attempt that fails at age 1600 with a planned delay of 300 s ends the generation, as 1900 > 1800.
    One that fails at age 62 is followed by one at 126; if the breaker keeps the lane closed until 2400, it is made at
    2400, and if it fails, that ends the generation. An endpoint that answers the first attempt with `Retry-After: 3600`
    is tried once more, after an hour. The jitter of `Retry-After` only adds, so no try is ever earlier than the
    endpoint asked.
    """
    planned = delay(policy, 1 if soon else failed_attempt, draw)
    if failed_attempt >= policy.max_attempts or age + planned > policy.window_seconds:
        return None
    return max(planned, retry_after * (1 + policy.jitter * draw))


def doubled(seconds: float, times: int, longest: float) -> float:
    """`seconds` doubled so many times (0 or more), at most `longest`; no number of times is too many."""
    product: float = seconds * 2.0 ** min(times, _MOST_DOUBLINGS)
    return min(product, longest)


def _planned(policy: RetryPolicy, failed_attempt: int) -> float:
    if policy.schedule:
        return policy.schedule[min(failed_attempt, len(policy.schedule)) - 1]
    return doubled(policy.base_seconds, failed_attempt - 1, policy.max_seconds)
