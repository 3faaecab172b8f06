"""`relay schemas`: what events of a type must look like.

Owns the arguments and the tables. What a schema may be is the gateway's to say. Invariant: a schema is put and shown
byte for byte.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import click

from relay.cli.client import Client, connect
from relay.cli.listing import length_options, listed
from relay.cli.options import example, json_option
from relay.cli.reading import read_settings
from relay.cli.rendering import show, table
from relay.cli.stdin import read_stdin
from relay.cli.streams import Streams
from relay.cli.text import printable
from relay.cli.waiting import in_passing

PATH = "/v1/schemas"


@click.group("schemas", epilog=example("relay schemas list"))
def command() -> None:
    """List, put and show the schemas of event types."""


@command.command("list", epilog=example("relay schemas list --type invoice.paid"))
@click.option("--type", "event_type", metavar="TYPE", help="The versions of this type alone.")
@length_options
@json_option
@click.pass_obj
def list_all(streams: Streams, limit: int | None, event_type: str | None) -> None:
    """List schemas, by type and version. The last version of a type counts unless a sender names another."""
    with connect(read_settings()) as relay:
        schemas = listed(relay, PATH, {"type": event_type}, limit, streams)
    if streams.json:
        streams.document(schemas)
        return
    if not schemas:
        streams.line("no such schemas" if event_type else "no schemas; put one with `relay schemas put TYPE/vN FILE`")
        return
    names = ("name", "size_bytes", "sha256", "created_at")
    rows = [[schema[name] for name in names] for schema in schemas]
    show(streams, table(("schema", "bytes", "sha256", "put at"), rows))


@command.command("put", epilog=example("relay schemas put invoice.paid/v3 invoice.schema.json"))
@click.argument("name", metavar="TYPE/vN")
@click.argument("file", metavar="FILE|-", type=click.Path(allow_dash=True))
@json_option
@click.pass_obj
def put(streams: Streams, name: str, file: str) -> None:
    """Put a JSON Schema (2020-12) into the catalogue, as version N of the schema for TYPE.

    A version is written once: the same bytes again change nothing, and others are refused. Events of the type are
    checked against the highest version from now on.
    """
    path = _path(name)
    try:
        text = read_stdin(streams) if file == "-" else Path(file).read_bytes()
    except OSError as fault:
        raise click.UsageError(f"{'stdin' if file == '-' else file} cannot be read: {fault.strerror}.") from fault
    headers = {"content-type": "application/json"}
    with connect(read_settings()) as relay:
        response = relay.send("PUT", path, content=text, headers=headers)
        schema = response.json()
        is_new = response.status_code == 201
        streams.done(f"the schema is in the catalogue as {schema['name']}")
        if streams.json:
            streams.document(schema)
            return
        name = schema["name"]
        said = f"{name} is {'in the catalogue' if is_new else 'there already, with the same bytes'}"
        with in_passing(streams):
            said += _counts(name, relay)
        streams.line(said)


def _counts(name: str, relay: Client) -> str:
    """Which version of its type counts where a sender names none."""
    event_type, _, version = name.rpartition("/")
    newest = max((each["name"].rpartition("/")[2] for each in relay.pages(PATH, {"type": event_type})), key=_number)
    return " and in force" if newest == version else f"; {newest} counts unless a sender names {version}"


def _number(version: str) -> int:
    return int(version.removeprefix("v"))


@command.command("show", epilog=example("relay schemas show invoice.paid/v3"))
@click.argument("name", metavar="TYPE/vN")
@click.pass_obj
def show_one(streams: Streams, name: str) -> None:
    """Show a schema, as it was put."""
    with connect(read_settings()) as relay:
        text = relay.send("GET", _path(name), content=b"", headers={}).content
    shown = text.decode(errors="replace").removesuffix("\n")
    streams.line(shown if streams.json else "\n".join(map(printable, shown.split("\n"))))


def _path(name: str) -> str:
    event_type, slash, version = name.rpartition("/")
    if not (event_type and slash and version):
        raise click.UsageError("Name a schema by its type and version: invoice.paid/v3.")
    return f"{PATH}/{quote(event_type)}/{quote(version, safe='')}"
