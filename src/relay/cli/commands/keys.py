"""`relay keys`: who may call.

Owns the arguments and the tables. A key is named by its id or by its name. Its secret is shown once, when it is made.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import click

from relay.app.faults import CannotRun
from relay.app.local_key import create_local_key
from relay.cli.client import connect
from relay.cli.commands.reencrypt import reencrypt_secrets
from relay.cli.failures import WRONG_USAGE, CommandFailed
from relay.cli.finding import find
from relay.cli.options import example, json_option
from relay.cli.pointers import OF_SENDERS, in_words_of
from relay.cli.reading import read_settings
from relay.cli.rendering import facts, show, table
from relay.cli.stdin import agrees, has_somebody
from relay.cli.streams import Streams
from relay.domain import ids
from relay.domain.credentials import Scope
from relay.domain.naming import InvalidName, check_name, check_tenant_id
from relay.settings import SettingsError
from relay.web import instants

PATH = "/v1/keys"
DEFAULT_TENANT = "acct_default"

_DRAWN_CHARACTERS = 8


@click.group("keys", epilog=example("relay keys create --local"))
def command() -> None:
    """List, create and revoke keys: who may call; re-encrypt secrets."""


@command.command("list", epilog=example("relay keys list --json"))
@json_option
@click.pass_obj
def list_all(streams: Streams) -> None:
    """List all keys of the tenant, the newest first."""
    with connect(read_settings()) as relay:
        keys = list(relay.pages(PATH))
    if streams.json:
        streams.document(keys)
    elif not keys:
        streams.line("no keys yet: relay keys create ops --scope admin")
    else:
        rows = [(each["id"], each["name"], ", ".join(each["scopes"]), each["source"] or "") for each in keys]
        show(streams, table(("id", "name", "scopes", "source"), rows))


@command.command(
    "create",
    epilog=example(
        "relay keys create --local",
        "relay keys create shop --scope ingest",
        "relay sources create till --auth bearer",
        "relay keys create till-2026 --scope ingest --source till",
    ),
)
@click.argument("name", required=False)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([scope.value for scope in Scope]),
    help="What it may do; may be repeated. admin includes read and ingest, operator is that in every tenant.",
)
@click.option("--source", metavar="NAME", help="The source that it proves. By default it is a sender of its own.")
@click.option("--tenant", metavar="ID", help="Whose it is. By default that of the key in RELAY_API_KEY.")
@click.option("--local", is_flag=True, help="Write it straight into the database; an admin key by default.")
@json_option
@click.pass_obj
def create(
    streams: Streams, name: str | None, scopes: tuple[str, ...], source: str | None, tenant: str | None, local: bool
) -> None:
    """Create a key and show its secret, this once.

    The first key must have the scope admin or operator, and ends anonymous access at once. --local needs no gateway:
    it is the way to the first key of a gateway that is to listen on an open address, which does not start without one.
    The database is that of DATABASE_URL, or the embedded one in RELAY_DATA_DIR, which is started for it if need be.
    """
    if local and source is not None:
        raise click.UsageError("--local makes keys for people: leave --source out, or leave --local out.")
    if not scopes and not local:
        raise click.UsageError("Say what the key may do: add --scope ingest, read, admin or operator.")
    wanted = [Scope(scope) for scope in scopes] or [Scope.ADMIN]
    name = name or f"{wanted[-1]}-{uuid4().hex[:_DRAWN_CHARACTERS]}"
    if local:
        made = _create_locally(streams, name, wanted, tenant or DEFAULT_TENANT)
    else:
        body = {"name": name, "scopes": wanted, "source": source, "tenant": tenant}
        with connect(read_settings()) as relay, in_words_of(OF_SENDERS):
            made = relay.call("POST", PATH, body={name: value for name, value in body.items() if value is not None})
    streams.done(f"the key {made['id']} is there (its secret is shown this once; RELAY_API_KEY is where commands look)")
    if streams.json:
        streams.document(made)
    else:
        show(streams, facts({**made, "scopes": ", ".join(made["scopes"])}.items()))
        streams.line("\nIts secret is shown this once. Commands take it from the environment:")
        streams.line(f"export RELAY_API_KEY={made['secret']}")


def _create_locally(streams: Streams, name: str, scopes: list[Scope], tenant: str) -> dict[str, Any]:
    try:
        check_name(name)
        check_tenant_id(tenant)
    except InvalidName as fault:
        raise CommandFailed(str(fault), WRONG_USAGE) from fault
    settings = read_settings()
    try:
        key, secret = asyncio.run(create_local_key(settings, name=name, scopes=scopes, tenant=tenant, say=streams.note))
    except SettingsError as fault:
        raise CommandFailed(str(fault), WRONG_USAGE) from fault
    except CannotRun as fault:
        raise CommandFailed(str(fault)) from fault
    return {
        "id": ids.write(ids.KEY, key.id),
        "tenant": key.tenant,
        "name": key.name,
        "scopes": [scope.value for scope in key.scopes],
        "source": key.source,
        "created_at": instants.write(key.created_at),
        "secret": secret.expose(),
    }


@command.command("revoke", epilog=example("relay keys revoke shop --yes"))
@click.argument("key", metavar="ID|NAME")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def revoke(streams: Streams, key: str, yes: bool) -> None:
    """Revoke a key. Its next request is refused."""
    if not (yes or has_somebody()):
        raise click.UsageError("There is nobody to ask: add --yes.")
    with connect(read_settings()) as relay:
        found = find(relay, PATH, "key", key)
        if not (yes or agrees(f"Revoke {key}? Its next request is refused.")):
            raise CommandFailed("nothing is revoked")
        relay.call("DELETE", f"{PATH}/{found}")
    streams.done("the key is revoked")
    if streams.json:
        streams.document({"id": found, "revoked": True})
    else:
        streams.line("revoked")


command.add_command(reencrypt_secrets)
