"""Lists on the command line: how much of one is shown, and from when.

Owns the options that lists share, and following the cursors. Invariant: a list that was cut short says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, TypeVar

import click

from relay.cli.client import Client
from relay.cli.streams import Streams

F = TypeVar("F", bound=Callable[..., Any])

USUAL_LENGTH = 50

_AGO = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def length_options(command: F) -> F:
    """Add `--limit` and `--all`, which become one argument `limit`: None for no limit."""

    def decide(ctx: click.Context, _: click.Parameter, everything: bool) -> None:
        if everything:
            if ctx.get_parameter_source("limit") is click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError("--all has no --limit: leave one of them out.", ctx)
            ctx.params["limit"] = None

    whole = click.option("--all", is_flag=True, expose_value=False, callback=decide, help="List all there are.")
    length = click.option(
        "--limit",
        type=click.IntRange(1),
        default=USUAL_LENGTH,
        show_default=True,
        metavar="N",
        is_eager=True,
        help="List so many at most.",
    )
    return length(whole(command))


def listed(
    relay: Client, path: str, query: Mapping[str, str | None], limit: int | None, streams: Streams
) -> Sequence[dict[str, Any]]:
    """As many items of a list as are wanted; says on stderr if there are more. Raises `CommandFailed`."""
    if limit is None:
        return list(relay.pages(path, query))
    found = list(islice(relay.pages(path, query, size=limit + 1), limit + 1))
    if len(found) > limit:
        streams.note(
            f"there are more, of which {limit} {'is' if limit == 1 else 'are'} listed: --limit and --all list them"
        )
    return found[:limit]


class Instant(click.ParamType[str]):
    """An instant: RFC 3339 with a zone, or how long ago, such as `90s`, `15m`, `2h`, `3d`, `1w`."""

    name = "instant"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The instant in RFC 3339. Raises `click.BadParameter`."""
        try:
            instant = _read(value)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no instant: write 2026-11-30T12:00:00Z, or 15m for so long ago.", param, ctx)
        return instant.isoformat().replace("+00:00", "Z")


def _read(text: str) -> datetime:
    ago = _AGO.fullmatch(text)
    instant = datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])}) if ago else datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("an instant has a zone")
    return instant.astimezone(UTC)


INSTANT = Instant()
WHEN = "2026-11-30T12:00:00Z, or 15m, 2h, 3d for so long ago"
