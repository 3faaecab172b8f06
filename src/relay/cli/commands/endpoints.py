"""`relay endpoints`: where events go.

Owns the arguments and the tables. An endpoint is named by its id or by its name. Secrets are shown once, when they are
made, and are read from a file or stdin, never from an argument, which every user of the machine can see.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from relay.cli.client import Client, connect
from relay.cli.commands.send import read_stdin
from relay.cli.failures import CommandFailed
from relay.cli.options import example, json_option, pairs
from relay.cli.reading import read_settings
from relay.cli.rendering import facts, show, table, words
from relay.cli.streams import Streams

PATH = "/v1/endpoints"
_STATES = {"active": "green", "paused": "yellow", "disabled": "red"}

named = click.argument("endpoint", metavar="ID|NAME")


@click.group("endpoints", epilog=example("relay endpoints list"))
def command() -> None:
    """List, add, show and change endpoints."""


@command.command("list", epilog=example("relay endpoints list --json"))
@json_option
@click.pass_obj
def list_all(streams: Streams) -> None:
    """List all endpoints, the newest first."""
    with connect(read_settings()) as relay:
        endpoints = list(relay.pages(PATH))
    if streams.json:
        streams.document(endpoints)
    elif not endpoints:
        streams.line("no endpoints yet: relay endpoints add https://example.com/hooks --type 'invoice.*'")
    else:
        columns = ("id", "name", "url", "events", "state")
        show(
            streams,
            table(
                columns,
                [
                    (each["id"], each["name"], each["url"], ", ".join(each["event_types"]), _state(each))
                    for each in endpoints
                ],
            ),
        )


@command.command(
    "add",
    epilog=example(
        "relay endpoints add https://example.com/hooks --name ledger --type 'invoice.*' --type order.created --rate 50"
    ),
)
@click.argument("url")
@click.option("--name", help="Name, unique; it is the consumer in metrics. Default: made from the host.")
@click.option("--type", "types", multiple=True, metavar="PATTERN", help="Event types it gets; may be repeated.")
@click.option("--rate", type=float, help="Requests per second, at most.")
@click.option("--burst", type=int, help="Requests at once after a pause.")
@click.option("--max-in-flight", type=int, help="Requests under way, per dispatcher process.")
@click.option("--timeout", type=float, help="Seconds for one attempt.")
@click.option("--ack", type=click.Choice(["response", "explicit"]), help="What proves that an event was processed.")
@click.option("--signature", type=click.Choice(["relay", "standard", "stripe", "github", "none"]), help="Profile.")
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="A header of yours; may be repeated.")
@click.option("--preset", type=click.Choice(["patient"]), help="Retry over three days instead of half an hour.")
@click.option("--secret-file", metavar="FILE|-", help="A signing secret of yours; by default one is made.")
@json_option
@click.pass_obj
def add(streams: Streams, /, url: str, **given: Any) -> None:  # noqa: ANN401 - what the options above say
    """Subscribe URL to events. The answer shows its signing secret, this once."""
    with connect(read_settings()) as relay:
        made = relay.call("POST", PATH, body=_body(url, given))
    streams.done(f"the endpoint {made['id']} is there (its secret can be renewed with `relay endpoints rotate-secret`)")
    _show(made, streams)


def _body(url: str, given: dict[str, Any]) -> dict[str, Any]:
    """The request body: only what was given, so that the API's defaults count for the rest."""
    preset, secret_file = given["preset"], given["secret_file"]
    body = {
        "url": url,
        "name": given["name"],
        "event_types": list(given["types"]) or None,
        "rate_per_second": given["rate"],
        "burst": given["burst"],
        "max_in_flight": given["max_in_flight"],
        "timeout_seconds": given["timeout"],
        "ack": given["ack"],
        "signature": given["signature"],
        "headers": pairs(given["headers"], ":", "NAME:VALUE") or None,
        "retry": {"preset": preset} if preset else None,
        "secret": _secret(secret_file) if secret_file else None,
    }
    return {name: value for name, value in body.items() if value is not None}


@command.command("show", epilog=example("relay endpoints show ledger"))
@named
@json_option
@click.pass_obj
def show_one(streams: Streams, endpoint: str) -> None:
    """Show one endpoint."""
    with connect(read_settings()) as relay:
        _show(relay.call("GET", _path(relay, endpoint)), streams)


@command.command("pause", epilog=example("relay endpoints pause ledger"))
@named
@json_option
@click.pass_obj
def pause(streams: Streams, endpoint: str) -> None:
    """Hold an endpoint's deliveries. Nothing is dropped, and new events still match."""
    with connect(read_settings()) as relay:
        changed = relay.call("POST", f"{_path(relay, endpoint)}/pause")
    streams.done("the endpoint is paused")
    _show(changed, streams)


@command.command("resume", epilog=example("relay endpoints resume ledger"))
@named
@json_option
@click.pass_obj
def resume(streams: Streams, endpoint: str) -> None:
    """Let an endpoint's deliveries go on, whether a person or a 410 had stopped them."""
    with connect(read_settings()) as relay:
        changed = relay.call("POST", f"{_path(relay, endpoint)}/resume")
    streams.done("the endpoint is active")
    _show(changed, streams)


@command.command("rotate-secret", epilog=example("relay endpoints rotate-secret ledger"))
@named
@json_option
@click.pass_obj
def rotate_secret(streams: Streams, endpoint: str) -> None:
    """Make a new signing secret and show it, this once. For a while both sign."""
    with connect(read_settings()) as relay:
        rotated = relay.call("POST", f"{_path(relay, endpoint)}/rotate-secret")
    streams.done("the secret is rotated (rotate again if the new one was lost)")
    if streams.json:
        streams.document(rotated)
    else:
        show(streams, facts(rotated.items()))


@command.command("remove", epilog=example("relay endpoints remove ledger --yes"))
@named
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def remove(streams: Streams, endpoint: str, yes: bool) -> None:
    """Remove an endpoint. What it is still owed becomes dead letters."""
    with connect(read_settings()) as relay:
        path = _path(relay, endpoint)
        if not (yes or _agrees(endpoint)):
            raise CommandFailed("nothing is removed")
        relay.call("DELETE", path)
    streams.done("the endpoint is removed")
    if streams.json:
        streams.document({"id": path.rsplit("/", 1)[-1], "removed": True})
    else:
        streams.line("removed")


def _agrees(endpoint: str) -> bool:
    if not sys.stdin or not sys.stdin.isatty():
        raise click.UsageError("There is nobody to ask: add --yes.")
    return click.confirm(f"Remove {endpoint}? What it is still owed becomes dead letters.", err=True)


def _path(relay: Client, endpoint: str) -> str:
    """The path of the endpoint with that id or name. Raises `CommandFailed`."""
    if endpoint.startswith("ep_"):
        return f"{PATH}/{quote(endpoint, safe='')}"
    for each in relay.pages(PATH):
        if each["name"] == endpoint:
            return f"{PATH}/{each['id']}"
    raise CommandFailed(f"no endpoint is called {endpoint!r}: `relay endpoints list` shows them")


def _show(endpoint: dict[str, Any], streams: Streams) -> None:
    if streams.json:
        streams.document(endpoint)
        return
    shown = {**endpoint, "state": _state(endpoint), "event_types": ", ".join(endpoint["event_types"])}
    show(streams, facts(shown.items()))


def _state(endpoint: dict[str, Any]) -> Any:  # noqa: ANN401 - rich's text
    return words(endpoint["state"], _STATES.get(endpoint["state"], ""))


def _secret(file: str) -> str:
    """The secret in a file, without the line's end."""
    try:
        text = (read_stdin() if file == "-" else Path(file).read_bytes()).decode()
    except OSError as fault:
        raise click.UsageError(f"{file} cannot be read: {fault.strerror}.") from fault
    except UnicodeDecodeError as fault:
        raise click.UsageError(f"{file} holds no text.") from fault
    return text.rstrip("\r\n")
