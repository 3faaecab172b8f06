"""Every command as Markdown, made from the commands themselves.

Owns the form of `docs/commands.md`'s reference. Invariant: a command, an option or an example that exists stands there.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from relay.cli.main import relay


def commands() -> Iterator[tuple[click.Context, click.Command]]:
    """Every command that does something by itself, in the order of the help, with a context of its full name."""
    yield from _below(click.Context(relay, info_name="relay"), relay)


def _below(ctx: click.Context, group: click.Group) -> Iterator[tuple[click.Context, click.Command]]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is None:
            continue
        inner = click.Context(command, parent=ctx, info_name=name)
        if isinstance(command, click.Group):
            yield from _below(inner, command)
        else:
            yield inner, command


def example_of(command: click.Command) -> list[str]:
    """The lines of the command's example."""
    _, _, lines = (command.epilog or "").partition("Example:\n")
    return [line.strip() for line in lines.splitlines()]


def reference() -> str:
    """All commands: usage, what it does, its options, an example."""
    return "\n".join(line for ctx, command in commands() for line in _section(ctx, command))


def _section(ctx: click.Context, command: click.Command) -> Iterator[str]:
    yield from (f"### relay {' '.join(ctx.command_path.split()[1:])}", "", *_help(command), "")
    yield from ("```sh", *example_of(command), "```", "")
    yield f"Usage: `{' '.join([ctx.command_path, *command.collect_usage_pieces(ctx)])}`"
    options = [row for row in map(_row, command.get_params(ctx)) if row]
    if options:
        yield from ("", "| option | |", "|---|---|", *options)
    yield ""


def _help(command: click.Command) -> list[str]:
    """The help's paragraphs, a line each."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs).splitlines()


def _row(parameter: click.Parameter) -> str | None:
    """An option's line; `--help` is everywhere and goes without saying."""
    if not isinstance(parameter, click.Option) or "--help" in parameter.opts:
        return None
    names = ", ".join(parameter.opts)
    value = "" if parameter.is_flag else f" {_value(parameter)}"
    default = f" Default: {parameter.default}." if parameter.show_default else ""
    return f"| `{names}{value}` | {parameter.help or ''}{default} |"


def _value(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "/".join(option.type.choices)
    return option.type.name.split()[0].upper()
