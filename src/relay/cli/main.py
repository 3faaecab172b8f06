"""The entry of the `relay` command: which commands there are, and how each of them ends.

Owns the list of commands and the exit code. Invariant: no expected fault shows a traceback, and nothing but the module
of the command that is called is loaded.
"""

# The methods of a click group take a context that these do not need.
# ruff: noqa: ARG002

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem

from relay.cli.failures import DONE, FAILED, INTERRUPTED, WRONG_USAGE, CommandFailed
from relay.cli.streams import Streams, prepared_streams


class _Entry(NamedTuple):
    """Where a command is, and what the list says of it."""

    module: str
    summary: str


COMMANDS = {
    "up": _Entry("up", "Run everything on this machine: database, gateway, dispatcher."),
    "gateway": _Entry("gateway", "Run the gateway: the HTTP API, accepting events."),
    "dispatcher": _Entry("dispatcher", "Run the dispatcher: delivering events."),
    "migrate": _Entry("migrate", "Bring the database to this version's shape."),
    "testkit": _Entry("testkit", "Run a receiver that behaves well, badly or oddly on demand."),
    "send": _Entry("send", "Post an event."),
    "receipt": _Entry("receipt", "Show what became of an event."),
    "top": _Entry("top", "Watch what comes in, goes out, is late or stands still."),
    "endpoints": _Entry("endpoints", "List, add, show and change endpoints."),
    "keys": _Entry("keys", "List, create and revoke keys: who may call; re-encrypt secrets."),
    "sources": _Entry("sources", "List, create, change, rotate and remove sources: who may send."),
    "tenants": _Entry("tenants", "List, create, change and remove tenants: whose events there are."),
    "deliveries": _Entry("deliveries", "List what an endpoint is owed, or show one delivery."),
    "redrive": _Entry("redrive", "Send again what of an event is not acknowledged."),
    "dlq": _Entry("dlq", "List, re-drive and discard dead letters."),
    "schemas": _Entry("schemas", "List, put and show what events of a type must look like."),
    "audit": _Entry("audit", "List who changed what, and who sent again or gave up what."),
    "verify": _Entry("verify", "Prove that nothing is missing, or name what is."),
    "doctor": _Entry("doctor", "Look for the usual faults, and say what to do."),
    "config": _Entry("config", "Show every setting, its value and where that comes from."),
    "secret-key": _Entry("secret_key", "Print a new key for RELAY_SECRET_KEYS."),
    "loadtest": _Entry("loadtest", "Measure how fast this machine is."),
}


class _Commands(click.Group):
    """A group whose commands are loaded when they are called; their list needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which a newcomer meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = import_module(f"relay.cli.commands.{entry.module}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"relay.cli.commands.{entry.module}.command is no command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant; one that there is not brings up what may have been meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as fault:
            if fault.command_name == "version":
                raise click.UsageError("No such command 'version': it is `relay --version`.", ctx) from None
            raise click.NoSuchCommand(fault.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """What a shell may offer here: the commands, without loading them, and the options."""
        commands = [
            CompletionItem(name, help=entry.summary) for name, entry in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: relay up --dev",
)
@click.version_option(package_name="relay", message="%(prog)s %(version)s")
def relay() -> None:
    """Outbound webhook delivery with a receipt for every event.

    Output is for a person on a terminal and JSON when piped, or with --json. Settings come from the environment: see
    `relay config`.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; answers its exit code."""
    with prepared_streams() as streams:
        code = _run(sys.argv[1:] if arguments is None else list(arguments), streams)
        return streams.finish(code)


def _run(arguments: list[str], streams: Streams) -> int:
    if (odd := next(filter(_is_unreadable, arguments), None)) is not None:
        streams.fault(f"the argument {odd!a} is no text here: write it in UTF-8, in a locale such as C.UTF-8.")
        return WRONG_USAGE
    try:
        outcome: object = relay.main(arguments, prog_name="relay", standalone_mode=False, obj=streams)
    except (click.exceptions.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as wanting:
        wanting.show()
        return WRONG_USAGE
    except click.UsageError as fault:
        streams.fault(_usage(fault))
        return WRONG_USAGE
    except click.ClickException as fault:
        streams.fault(fault.format_message())
        return FAILED
    except CommandFailed as fault:
        streams.fault(str(fault))
        return fault.exit_code
    except ImportError as missing:
        # loaded here, as the help needs no room
        streams.fault(import_module("relay.app.faults").cannot_import(missing))
        return FAILED
    except SystemExit:  # what click makes of a reader of the help who has seen enough
        return DONE
    return outcome if isinstance(outcome, int) else DONE


def _is_unreadable(argument: str) -> bool:
    """Whether an argument holds bytes that the locale does not know; a file may be called so, but nothing else."""
    return any("\ud800" <= each <= "\udfff" for each in argument) and not Path(argument).exists()


def _usage(fault: click.UsageError) -> str:
    """A wrong usage in one line, with where the right one is found."""
    command = fault.ctx.command_path if fault.ctx else "relay"
    message = " ".join(fault.format_message().split())
    if not message.endswith((".", "?", "!")):
        message += "."
    return f"{message} See `{command} --help`."
