"""Options and help that several commands share.

Owns `--json`, `--text` and the shape of an example in a command's help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from relay.cli.streams import Streams

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    """Add `--json`: output for a program although stdout is a terminal."""

    def choose(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            ctx.find_object(Streams).json_asked = True  # type: ignore[union-attr]  # main puts it there

    option = click.option(
        "--json", is_flag=True, expose_value=False, is_eager=True, callback=choose, help="Print JSON on a terminal too."
    )
    return option(command)


def text_option(command: F) -> F:
    """Add `--text`: output for a person although stdout is no terminal."""

    def choose(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            ctx.find_object(Streams).text_asked = True  # type: ignore[union-attr]  # main puts it there

    option = click.option(
        "--text",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=choose,
        help="Draw on a pipe too, in plain lines of 80 columns, or as many as COLUMNS says.",
    )
    return option(command)


def example(*lines: str) -> str:
    """The end of a command's help. Lines stay as they are, ready to be pasted."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def pairs(texts: Iterable[str], separator: str, what: str) -> dict[str, str]:
    """Read `NAME<separator>VALUE` texts. Raises `click.BadParameter` for one without the separator."""
    read = {}
    for text in texts:
        name, found, value = text.partition(separator)
        if not found or not name.strip():
            raise click.BadParameter(f"{text!r} is not of the form {what}.")
        read[name.strip()] = value.strip()
    return read


def workers_option(command: F) -> F:
    """Add `--workers`: how many processes of a kind."""
    option = click.option(
        "--workers", type=click.IntRange(1, 64), metavar="N", help="Worker processes of each kind [RELAY_WORKERS]."
    )
    return option(command)
