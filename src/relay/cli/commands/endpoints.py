"""`relay endpoints`: where events go.

Owns the arguments and the tables. An endpoint is named by its id or by its name. Secrets are shown once, when they are
made, and not at all when they were given; they are read from a file or stdin, never from an argument, which every user
of the machine can see.
"""

from __future__ import annotations

from typing import Any

import click

from relay.cli.client import connect
from relay.cli.endpoint_options import (
    changed_headers,
    in_words_of_options,
    read_body,
    read_secret,
    secret_option,
    settings_options,
)
from relay.cli.endpoints import PATH, path_of, show_endpoint, state
from relay.cli.failures import CommandFailed
from relay.cli.options import example, json_option
from relay.cli.overlap import check_overlap
from relay.cli.reading import read_settings
from relay.cli.rendering import facts, show, table
from relay.cli.stdin import agrees, has_somebody
from relay.cli.streams import Streams
from relay.cli.waiting import in_passing, lane_note

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
        streams.line("no endpoints yet: relay endpoints add https://example.com/hooks --event-type 'invoice.*'")
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
        "relay endpoints add https://example.com/hooks --name ledger --event-type 'invoice.*' --rate 50",
        "relay endpoints add telegram://-1001234567890 --secret-file bot-token.txt",
        "relay endpoints add discord://1234567890123456789 --secret-file -",
    ),
)
@click.argument("url")
@settings_options(defaults=True)
@secret_option("A signing secret of yours; by default one is made. For a chat the bot's or the webhook's token.")
@json_option
@click.pass_obj
def add(streams: Streams, /, url: str, **given: Any) -> None:  # noqa: ANN401 - what the options above say
    """Subscribe URL to events. The answer shows the secret that was made for it, this once.

    A URL is https://…, telegram:// with a chat's number or a channel's @name, or discord:// with a webhook's number.
    """
    body = read_body({**given, "url": url}, streams)
    with connect(read_settings()) as relay, in_words_of_options():
        made = relay.call("POST", PATH, body=body)
    streams.done(f"the endpoint {made['id']} is there (its secret can be renewed with `relay endpoints rotate-secret`)")
    show_endpoint(_without(made, body.get("secret"), streams), streams)


@command.command(
    "change",
    epilog=example(
        "relay endpoints change ledger --rate 50 --event-type 'invoice.*' --event-type 'refund.*'",
        "relay endpoints change ledger --retry max_attempts=5 --header-file Authorization=token.txt",
        "relay endpoints change ledger --remove-header X-Team --reset timeout",
    ),
)
@named
@click.option("--url", help="Where events are sent from now on.")
@settings_options(defaults=False)
@click.option("--remove-header", "removed", multiple=True, metavar="NAME", help="A header to drop; may be repeated.")
@click.option(
    "--reset",
    multiple=True,
    type=click.Choice(["retry", "timeout"]),
    help="Back to the installation's retry rule, or timeout; may be repeated.",
)
@json_option
@click.pass_obj
def change(
    streams: Streams,
    /,
    endpoint: str,
    removed: tuple[str, ...],
    reset: tuple[str, ...],
    **given: Any,  # noqa: ANN401 - the same
) -> None:
    """Change an endpoint. What is not named stays as it is; event types and a retry rule are replaced as a whole.

    A secret is changed by `relay endpoints rotate-secret`.
    """
    body = read_body(given, streams)
    for field in ("retry", "timeout_seconds"):
        if field.partition("_")[0] in reset:
            if field in body:
                raise click.UsageError(f"--reset {field.partition('_')[0]} and a new value: leave one of them out.")
            body[field] = None
    if not body and not removed:
        raise click.UsageError("Nothing to change: name what, --rate 50 for example.")
    with connect(read_settings()) as relay, in_words_of_options():
        path = path_of(relay, endpoint)
        if removed or "headers" in body:
            body["headers"] = _headers(relay.call("GET", path), body.get("headers", {}), removed)
        changed = relay.call("PATCH", path, body=body)
    streams.done("the endpoint is changed")
    show_endpoint(changed, streams)


def _headers(known: dict[str, Any], given: dict[str, str], removed: tuple[str, ...]) -> dict[str, str]:
    there = {name.lower() for name in known["headers"]}
    if missing := [name for name in removed if name.lower() not in there]:
        raise CommandFailed(f"the endpoint has no header {missing[0]}: `relay endpoints show` lists them")
    return changed_headers(known["headers"], given, removed)


def _without(answer: dict[str, Any], given: str | None, streams: Streams) -> dict[str, Any]:
    """The answer as it is shown: a secret that was given is nothing new, and terminals and logs remember."""
    if given is None:
        return answer
    streams.note("the secret is the one that was given, so it is shown as stars")
    return {**answer, "secret": "***"}


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
        path = path_of(relay, endpoint)
        accepted = relay.call("POST", f"{path}/test")
        streams.done(f"the sample event is accepted as {accepted['receipt_id']}")
        with in_passing(streams):
            if note := lane_note(relay.call("GET", path)):
                streams.note(note)
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
@secret_option("The new token of a bot or webhook; every other secret is made.")
@json_option
@click.pass_obj
def rotate_secret(streams: Streams, endpoint: str, force: bool, secret_file: str | None) -> None:
    """Make a new signing secret and show it, this once. For a while both sign.

    Two secrets are kept, never three: a second rotation within that while drops the oldest at once, so that receivers
    which still verify with it alone refuse every request. On a terminal it asks first; elsewhere it wants --force.
    The token of a chat is given by --secret-file, and counts at once.
    """
    token = read_secret(secret_file, streams) if secret_file else None
    body = None if token is None else {"secret": token}
    with connect(read_settings()) as relay, in_words_of_options():
        path = path_of(relay, endpoint)
        if not force:
            check_overlap(relay.call("GET", path), "signs")
        rotated = relay.call("POST", f"{path}/rotate-secret", body=body)
    streams.done(
        "the token is the new one"
        if body
        else "the secret is rotated (the old one signs too until"
        f" {rotated['previous_secret_expires_at']}; another new one takes `relay endpoints rotate-secret --force`)"
    )
    rotated = _without(rotated, token, streams)
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
