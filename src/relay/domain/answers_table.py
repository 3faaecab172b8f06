"""What an endpoint's answer leads to, as a table for the documentation, made from the rulings themselves.

Owns the table only, in Markdown. Invariant: every status and every error stands in exactly one row, that of its ruling.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from relay.domain.outcome import OutcomeReason, Ruling, rule
from relay.domain.sending import ErrorClass, SendFacts

STATUSES = range(100, 1000)
"""Every status that three digits can write."""

TO = "\N{EN DASH}"
"""What stands between the first and the last of a range."""

_THEN = {
    OutcomeReason.ACCEPTED: "acked, whatever becomes of the body",
    OutcomeReason.NOT_READY: "tried again",
    OutcomeReason.THROTTLED: "tried again, and everything for this endpoint waits for `Retry-After`",
    OutcomeReason.SERVER_ERROR: "tried again",
    OutcomeReason.GONE: "dead letter `permanent_failure`, and the endpoint is disabled until it is resumed",
    OutcomeReason.REDIRECTED: "dead letter `permanent_failure`; redirects are never followed",
    OutcomeReason.REJECTED: "dead letter `permanent_failure`",
    OutcomeReason.ODD_STATUS: "tried again",
    OutcomeReason.UNREACHABLE: "tried again",
    OutcomeReason.TLS: "tried again",
    OutcomeReason.BROKEN_OFF: "tried again",
    OutcomeReason.TIMED_OUT: "tried again",
    OutcomeReason.CUT_SHORT: "tried again soon: Relay itself ended the attempt, or lost the process that made it",
    OutcomeReason.REFUSED: "dead letter `refused`: the egress policy does not allow the address",
    OutcomeReason.LOCAL: "handed back; no attempt is spent, since nothing left this machine",
}


def reference() -> str:
    """The table, a row for each reason in the order of `OutcomeReason`."""
    came: dict[Ruling, list[str]] = {}
    for ruling, statuses in _ranges():
        came.setdefault(ruling, []).append(
            f"{statuses[0]}" if len(statuses) == 1 else f"{statuses[0]}{TO}{statuses[-1]}"
        )
    for error in ErrorClass:
        came.setdefault(rule(SendFacts(error_class=error)), []).append(f"`{error}`")
    rows = [
        f"| {', '.join(came[ruling])} | {ruling.outcome_class} | `{ruling.reason}` | {_THEN[ruling.reason]} |"
        for ruling in sorted(came, key=lambda ruling: list(OutcomeReason).index(ruling.reason))
    ]
    return "\n".join(["| what came | class | reason | and then |", "|---|---|---|---|", *rows, ""])


def _ranges(statuses: Iterable[int] = STATUSES) -> Iterator[tuple[Ruling, list[int]]]:
    """Neighbouring statuses of one ruling together."""
    run: list[int] = []
    for status in statuses:
        if run and rule(SendFacts(run[0])) is not rule(SendFacts(status)):
            yield rule(SendFacts(run[0])), run
            run = []
        run.append(status)
    yield rule(SendFacts(run[0])), run
