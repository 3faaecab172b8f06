"""Claims about ``docs/commands.md`` and about the commands' own help."""

import re
import shlex
import sys
from importlib import import_module
from types import ModuleType

import click
import pytest

from relay.cli.main import COMMANDS, relay
from relay.cli.reference import commands, example_of
from relay.cli.streams import Streams
from tests.docs import generated

ALL = [(ctx.command_path, ctx, command) for ctx, command in commands()]

each_command = pytest.mark.parametrize(("path", "ctx", "command"), ALL, ids=[path for path, _, _ in ALL])


def test_the_reference_of_commands_is_what_the_commands_say() -> None:
    part = generated.COMMANDS
    assert part.written() == part.make(), f"docs/commands.md is out of date: run `{generated.COMMAND}`"


def test_every_command_is_documented_once() -> None:
    headings = re.findall(r"^### (relay .+)$", generated.COMMANDS.written(), re.MULTILINE)
    assert headings == [path for path, _, _ in ALL]


@each_command
def test_a_commands_example_is_shown_and_is_a_right_usage(
    path: str, ctx: click.Context, command: click.Command
) -> None:
    lines = example_of(command)
    assert any(path in line for line in lines), "the example shows the command itself"
    for line in lines:
        for usage in re.findall(rf"{path}\b[^|)>\"]*", line):
            arguments = shlex.split(usage)[len(path.split()) :]
            command.make_context(ctx.info_name, arguments, parent=ctx.parent, obj=Streams(sys.stdout, sys.stderr))


@each_command
def test_every_option_is_explained_in_a_sentence(path: str, ctx: click.Context, command: click.Command) -> None:
    options = [each for each in command.get_params(ctx) if isinstance(each, click.Option)]
    assert [each.opts[0] for each in options if not re.search(r"\w.{4,}[.\]]$", each.help or "")] == []


def test_every_command_of_the_list_is_there_under_its_name() -> None:
    ctx = click.Context(relay)
    for name, entry in COMMANDS.items():
        command = relay.get_command(ctx, name)
        assert command is not None
        assert command.name == name
        assert entry.summary.endswith(".")


def test_the_page_names_every_command_that_calls_the_api() -> None:
    callers = {name for name, entry in COMMANDS.items() if hasattr(_module(entry.module), "connect")}
    page = " ".join(generated.COMMANDS.page.read_text().split())
    (clients,) = re.findall(r"- \*\*Clients\.\*\* (.+?) call ", page)
    assert set(re.findall(r"`([a-z-]+)`", clients)) == callers


def _module(name: str) -> ModuleType:
    return import_module(f"relay.cli.commands.{name}")
