"""`relay endpoints`: where events go.

Owns the arguments and the tables. An endpoint is named by its id or by its name. Secrets are shown once, when they are
made, and are read from a file or stdin, never from an argument, which every user of the machine can see.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from relay.cli.client import connect
from relay.cli.endpoints import PATH, path_of, show_endpoint, state
from relay.cli.failures import CommandFailed
from relay.cli.options import example, json_option, pairs
from relay.cli.reading import read_settings
from relay.cli.rendering import facts, show, table
from relay.cli.stdin import agrees, has_somebody, read_stdin
from relay.cli.streams import Streams

SIGNATURES = (
    "By whose rules requests are signed: Relay's own, those of Standard Webhooks (standardwebhooks, svix), Stripe's or"
    " GitHub's; or not at all. Default: relay."
)

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
                    (each["id"], each["name"], each["url"], ", ".join(each["event_types"]), state(each))
                    for each in endpoints
                ],
            ),
        )


@command.command(
    "add",
    epilog=example(
        "relay endpoints add https://example.com/hooks --name ledger --type 'invoice.*' --type order.created --rate 50",
        "relay endpoints add telegram://-1001234567890 --secret-file bot-token.txt",
        "relay endpoints add discord://1234567890123456789 --secret-file -",
    ),
)
@click.argument("url")
@click.option("--name", help="Name, unique; it is the consumer in metrics. Default: made from the host.")
@click.option("--type", "types", multiple=True, metavar="PATTERN", help="Event types it gets; may be repeated.")
@click.option("--rate", type=float, help="Requests per second, at most, over all dispatchers.")
@click.option("--burst", type=int, help="Requests at once after a pause.")
@click.option("--max-in-flight", type=int, help="Requests under way, per dispatcher process.")
@click.option("--timeout", type=float, help="Seconds for one attempt.")
@click.option(
    "--ack",
    type=click.Choice(["response", "explicit"]),
    help="What proves that an event was processed: its 2xx, or a call of its own (explicit).",
)
@click.option("--signature", type=click.Choice(["relay", "standard", "stripe", "github", "none"]), help=SIGNATURES)
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="A header of yours; may be repeated.")
@click.option("--preset", type=click.Choice(["patient"]), help="Retry over three days instead of half an hour.")
@click.option(
    "--secret-file",
    type=click.Path(allow_dash=True),
    metavar="FILE|-",
    help="A signing secret of yours; by default one is made. For a chat the bot's or the webhook's token.",
)
@json_option
@click.pass_obj
def add(streams: Streams, /, url: str, **given: Any) -> None:  # noqa: ANN401 - what the options above say
    """Subscribe URL to events. The answer shows its secret, this once.

    A URL is https://…, telegram:// with a chat's number or a channel's @name, or discord:// with a webhook's number.
    """
    with connect(read_settings()) as relay:
        made = relay.call("POST", PATH, body=_body(url, given, streams))
    streams.done(f"the endpoint {made['id']} is there (its secret can be renewed with `relay endpoints rotate-secret`)")
    show_endpoint(made, streams)


def _body(url: str, given: dict[str, Any], streams: Streams) -> dict[str, Any]:
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
        "secret": _secret(secret_file, streams) if secret_file else None,
    }
    return {name: value for name, value in body.items() if value is not None}


@command.command("show", epilog=example("relay endpoints show ledger"))
@named
@json_option
@click.pass_obj
def show_one(streams: Streams, endpoint: str) -> None:
    """Show one endpoint."""
    with connect(read_settings()) as relay:
        show_endpoint(relay.call("GET", path_of(relay, endpoint)), streams)


@command.command("pause", epilog=example("relay endpoints pause ledger"))
@named
@json_option
@click.pass_obj
def pause(streams: Streams, endpoint: str) -> None:
    """Hold an endpoint's deliveries. Nothing is dropped, and new events still match."""
    with connect(read_settings()) as relay:
        changed = relay.call("POST", f"{path_of(relay, endpoint)}/pause")
    streams.done("the endpoint is paused")
    show_endpoint(changed, streams)


@command.command("resume", epilog=example("relay endpoints resume ledger"))
@named
@json_option
@click.pass_obj
def resume(streams: Streams, endpoint: str) -> None:
    """Let an endpoint's deliveries go on, whether a person or its own answer had stopped them."""
    with connect(read_settings()) as relay:
        changed = relay.call("POST", f"{path_of(relay, endpoint)}/resume")
    streams.done("the endpoint is active")
    show_endpoint(changed, streams)


@command.command("test", epilog=example("relay endpoints test ledger"))
@named
@json_option
@click.pass_obj
def test(streams: Streams, endpoint: str) -> None:
    """Send an endpoint, and no other, a sample event of type relay.test, whatever types it subscribed to."""
    with connect(read_settings()) as relay:
        accepted = relay.call("POST", f"{path_of(relay, endpoint)}/test")
    streams.done(f"the sample event is accepted as {accepted['receipt_id']}")
    if streams.json:
        streams.document(accepted)
    else:
        streams.line("accepted; this tells whether it arrives:")
        streams.line(f"relay receipt {accepted['receipt_id']} --watch")


@command.command(
    "rotate-secret",
    epilog=example(
        "relay endpoints rotate-secret ledger", "relay endpoints rotate-secret ops-chat --secret-file bot-token.txt"
    ),
)
@named
@click.option("--force", is_flag=True, help="Even if that ends an older secret before its time.")
@click.option(
    "--secret-file",
    type=click.Path(allow_dash=True),
    metavar="FILE|-",
    help="The new token of a bot or webhook; every other secret is made.",
)
@json_option
@click.pass_obj
def rotate_secret(streams: Streams, endpoint: str, force: bool, secret_file: str | None) -> None:
    """Make a new signing secret and show it, this once. For a while both sign.

    Two secrets are kept, never three: a second rotation within that while drops the oldest at once, so that receivers
    which still verify with it alone refuse every request. On a terminal it asks first; elsewhere it wants --force.
    The token of a chat is given by --secret-file, and counts at once.
    """
    body = {"secret": _secret(secret_file, streams)} if secret_file else None
    with connect(read_settings()) as relay:
        path = path_of(relay, endpoint)
        if not force:
            _check_overlap(relay.call("GET", path))
        rotated = relay.call("POST", f"{path}/rotate-secret", body=body)
    streams.done(
        "the token is the new one"
        if body
        else "the secret is rotated (the old one signs too until"
        f" {rotated['previous_secret_expires_at']}; another new one takes `relay endpoints rotate-secret --force`)"
    )
    if streams.json:
        streams.document(rotated)
    else:
        show(streams, facts(rotated.items()))


def _check_overlap(endpoint: dict[str, Any]) -> None:
    """Raises `CommandFailed` if an older secret still signs, and nobody says that it may end now."""
    until = endpoint["previous_secret_expires_at"]
    if until is None or datetime.fromisoformat(until) <= datetime.now(UTC):
        return
    ends = f"the secret before this one signs until {until}, and would end now"
    if not has_somebody():
        raise CommandFailed(f"{ends}: wait until then, or add --force")
    if not agrees(f"{ends[0].upper()}{ends[1:]}. Rotate again?"):
        raise CommandFailed("nothing is rotated")


@command.command("remove", epilog=example("relay endpoints remove ledger --yes"))
@named
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def remove(streams: Streams, endpoint: str, yes: bool) -> None:
    """Remove an endpoint. What it is still owed becomes dead letters."""
    if not (yes or has_somebody()):
        raise click.UsageError("There is nobody to ask: add --yes.")
    with connect(read_settings()) as relay:
        path = path_of(relay, endpoint)
        if not (yes or agrees(f"Remove {endpoint}? What it is still owed becomes dead letters.")):
            raise CommandFailed("nothing is removed")
        relay.call("DELETE", path)
    streams.done("the endpoint is removed")
    if streams.json:
        streams.document({"id": path.rsplit("/", 1)[-1], "removed": True})
    else:
        streams.line("removed")


def _secret(file: str, streams: Streams) -> str:
    """The secret in a file, without the line's end."""
    try:
        text = (read_stdin(streams) if file == "-" else Path(file).read_bytes()).decode()
    except OSError as fault:
        raise click.UsageError(f"{file} cannot be read: {fault.strerror}.") from fault
    except UnicodeDecodeError as fault:
        raise click.UsageError(f"{file} holds no text.") from fault
    return text.rstrip("\r\n")
