"""`relay sources`: who may send.

Owns the arguments and the tables. A source is named by its id or by its name. Its secret is shown when it is made and
when it is rotated.
"""

from __future__ import annotations

import click

from relay.cli.client import connect
from relay.cli.failures import CommandFailed
from relay.cli.finding import find, find_whole
from relay.cli.options import example, json_option
from relay.cli.overlap import check_overlap
from relay.cli.pointers import OF_SENDERS, in_words_of
from relay.cli.reading import read_settings
from relay.cli.rendering import facts, show, table
from relay.cli.stdin import agrees, has_somebody
from relay.cli.streams import Streams
from relay.domain.credentials import Proof

PATH = "/v1/sources"

_USES = {
    Proof.BEARER: "puts it into the header Authorization, behind Bearer (`relay send`: export RELAY_API_KEY=…)",
    Proof.HMAC: "signs with it",
}
"""What its sender does with a source's secret."""

named = click.argument("source", metavar="ID|NAME")


@click.group("sources", epilog=example("relay sources list"))
def command() -> None:
    """List, create, change, rotate and remove sources: who may send."""


@command.command("list", epilog=example("relay sources list --json"))
@json_option
@click.pass_obj
def list_all(streams: Streams) -> None:
    """List all sources of the tenant, the newest first."""
    with connect(read_settings()) as relay:
        sources = list(relay.pages(PATH))
    if streams.json:
        streams.document(sources)
    elif not sources:
        streams.line("no sources yet: relay sources create billing --auth hmac")
    else:
        rows = [
            (each["id"], each["name"], " and ".join(each["auth"]), each["certificate_subject"] or "")
            for each in sources
        ]
        show(streams, table(("id", "name", "proved by", "certificate"), rows))


@command.command(
    "create",
    epilog=example(
        "relay sources create billing --auth hmac",
        "relay sources create warehouse --auth mtls --auth hmac --subject warehouse.example.com",
    ),
)
@click.argument("name")
@click.option(
    "--auth",
    multiple=True,
    required=True,
    type=click.Choice([proof.value for proof in Proof]),
    help="What each of its requests has to be proved by; repeated, by all of them together.",
)
@click.option(
    "--subject", metavar="NAME", help="With mtls: a name of its client certificate, or sha256: and its fingerprint."
)
@click.option("--tenant", metavar="ID", help="Whose it is. By default that of the key in RELAY_API_KEY.")
@json_option
@click.pass_obj
def create(streams: Streams, name: str, auth: tuple[str, ...], subject: str | None, tenant: str | None) -> None:
    """Create a source and show its secret, this once."""
    body = {"name": name, "auth": list(auth), "certificate_subject": subject, "tenant": tenant}
    with connect(read_settings()) as relay, in_words_of(OF_SENDERS):
        made = relay.call("POST", PATH, body={field: value for field, value in body.items() if value is not None})
    streams.done(f"the source {made['id']} is there (a new secret takes `relay sources rotate {name}`)")
    if streams.json:
        streams.document(made)
    else:
        show(streams, facts({**made, "auth": " and ".join(made["auth"])}.items()))
        _tell_use(streams, made["auth"])


def _tell_use(streams: Streams, auth: list[str]) -> None:
    """Say what the secret that was shown is for, if there is one."""
    uses = [_USES[Proof(each)] for each in auth if Proof(each) in _USES]
    if uses:
        streams.line(f"\nIts secret is shown this once: whoever sends {' and '.join(uses)}.")


@command.command(
    "change",
    epilog=example(
        "relay sources change warehouse --subject warehouse-2.example.com",
        "relay sources change warehouse --auth hmac --no-certificate",
    ),
)
@named
@click.option(
    "--auth",
    multiple=True,
    type=click.Choice([proof.value for proof in Proof]),
    help="What each of its requests has to be proved by from now on; repeated, by all of them together.",
)
@click.option(
    "--subject", metavar="NAME", help="Another name of its client certificate, or sha256: and its fingerprint."
)
@click.option("--no-certificate", is_flag=True, help="Take its certificate off it; --auth then says what is left.")
@json_option
@click.pass_obj
def change(streams: Streams, source: str, auth: tuple[str, ...], subject: str | None, no_certificate: bool) -> None:
    """Change what a source is proved by. Its next request is judged by that, also on an open connection.

    A bearer or a signature that was not asked for before takes a new secret, which is shown this once.
    """
    if subject is not None and no_certificate:
        raise click.UsageError("It has a certificate or none: leave out --subject or --no-certificate.")
    body: dict[str, object] = {"auth": list(auth)} if auth else {}
    if subject is not None or no_certificate:
        body["certificate_subject"] = subject
    if not body:
        raise click.UsageError("Say what to change: add --auth, --subject or --no-certificate.")
    if no_certificate and not auth:
        raise click.UsageError("Without its certificate something else proves it: add --auth with what is left.")
    with connect(read_settings()) as relay, in_words_of(OF_SENDERS):
        found = find(relay, PATH, "source", source)
        changed = relay.call("PATCH", f"{PATH}/{found}", body=body)
    streams.done("the source is changed")
    if streams.json:
        streams.document(changed)
    else:
        shown = {name: value for name, value in changed.items() if name != "secret" or value is not None}
        show(streams, facts({**shown, "auth": " and ".join(changed["auth"])}.items()))


@command.command("rotate", epilog=example("relay sources rotate billing"))
@named
@click.option("--force", is_flag=True, help="Even if that ends an older secret before its time.")
@json_option
@click.pass_obj
def rotate(streams: Streams, source: str, force: bool) -> None:
    """Make a new secret and show it, this once. For a while the old one counts as well.

    Two are kept, never three: a second rotation within that while ends the oldest at once, so that whoever still sends
    with it alone is refused. On a terminal it asks first; elsewhere it wants --force.
    """
    with connect(read_settings()) as relay:
        found = find_whole(relay, PATH, "source", source)
        if not force:
            check_overlap(found, "counts")
        rotated = relay.call("POST", f"{PATH}/{found['id']}/rotate")
    streams.done(f"the secret is rotated (the old one counts until {rotated['previous_secret_expires_at']})")
    if streams.json:
        streams.document(rotated)
    else:
        show(streams, facts(rotated.items()))


@command.command("remove", epilog=example("relay sources remove billing --yes"))
@named
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def remove(streams: Streams, source: str, yes: bool) -> None:
    """Remove a source, with the keys that prove it. Its next request is refused."""
    if not (yes or has_somebody()):
        raise click.UsageError("There is nobody to ask: add --yes.")
    with connect(read_settings()) as relay:
        found = find(relay, PATH, "source", source)
        if not (yes or agrees(f"Remove {source}? Its next request is refused.")):
            raise CommandFailed("nothing is removed")
        relay.call("DELETE", f"{PATH}/{found}")
    streams.done("the source is removed")
    if streams.json:
        streams.document({"id": found, "removed": True})
    else:
        streams.line("removed")
