"""`relay tenants`: whose sources, endpoints and events there are.

Owns the arguments and the tables. A tenant is named by its id.
"""

from __future__ import annotations

from typing import Any

import click

from relay.cli.client import Client, connect
from relay.cli.failures import WRONG_USAGE, CommandFailed
from relay.cli.options import example, json_option
from relay.cli.pointers import OF_SENDERS, in_words_of
from relay.cli.reading import read_settings
from relay.cli.rendering import facts, show, table
from relay.cli.stdin import agrees, has_somebody
from relay.cli.streams import Streams
from relay.domain.naming import InvalidName, check_tenant_id

PATH = "/v1/tenants"

_TYPES = "types without a schema"

named = click.argument("tenant", metavar="ID")


@click.group("tenants", epilog=example("relay tenants list"))
def command() -> None:
    """List, create, change and remove tenants: whose endpoints and events there are."""


@command.command("list", epilog=example("relay tenants list --json"))
@json_option
@click.pass_obj
def list_all(streams: Streams) -> None:
    """List all tenants, by their ids. Whoever is no operator sees its own alone."""
    with connect(read_settings()) as relay:
        tenants = list(relay.pages(PATH))
    if streams.json:
        streams.document(tenants)
    else:
        rows = [(each["id"], each["name"], _mode(each), each["created_at"]) for each in tenants]
        show(streams, table(("id", "name", _TYPES, "created at"), rows))


@command.command(
    "create",
    epilog=example("relay tenants create Acme --id acct_acme", "relay tenants create Bolt --strict-schemas"),
)
@click.argument("name")
@click.option("--id", "tenant", metavar="ID", help="acct_ and what you like; made if left out.")
@click.option("--strict-schemas", is_flag=True, help="Take no event of a type without a schema.")
@json_option
@click.pass_obj
def create(streams: Streams, name: str, tenant: str | None, strict_schemas: bool) -> None:
    """Create a tenant. It takes a key with the scope operator: `relay keys create ops --local --scope operator`.

    Keys are then made for it: relay keys create NAME --tenant ID.
    """
    body = {"name": name} if tenant is None else {"name": name, "id": tenant}
    with connect(read_settings()) as relay, in_words_of(OF_SENDERS):
        made = relay.call("POST", PATH, body=body)
        streams.done(f"the tenant {made['id']} is there")
        if strict_schemas:
            made = _made_strict(relay, made["id"])
    _tell(streams, made)


@command.command(
    "change",
    epilog=example(
        "relay tenants change acct_acme --strict-schemas", "relay tenants change acct_acme --no-strict-schemas"
    ),
)
@named
@click.option(
    "--strict-schemas/--no-strict-schemas",
    default=None,
    help="Whether it takes no event of a type without a schema.",
)
@json_option
@click.pass_obj
def change(streams: Streams, tenant: str, strict_schemas: bool | None) -> None:
    """Change a tenant. It takes a key with the scope operator: `relay keys create ops --local --scope operator`."""
    if strict_schemas is None:
        raise click.UsageError("Say what to change: add --strict-schemas or --no-strict-schemas.")
    path = _path(tenant)
    with connect(read_settings()) as relay:
        changed = relay.call("PATCH", path, body={"strict_schemas": strict_schemas})
    streams.done("the tenant is changed")
    _tell(streams, changed)


@command.command("remove", epilog=example("relay tenants remove acct_acme --yes"))
@named
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def remove(streams: Streams, tenant: str, yes: bool) -> None:
    """Remove a tenant that has no endpoints, sources and keys any more. Its events stay as long as any."""
    if not (yes or has_somebody()):
        raise click.UsageError("There is nobody to ask: add --yes.")
    path = _path(tenant)
    if not (yes or agrees(f"Remove {tenant}? Its id can never be used again.")):
        raise CommandFailed("nothing is removed")
    with connect(read_settings()) as relay:
        relay.call("DELETE", path)
    streams.done("the tenant is removed")
    if streams.json:
        streams.document({"id": tenant, "removed": True})
    else:
        streams.line("removed")


def _path(tenant: str) -> str:
    try:
        return f"{PATH}/{check_tenant_id(tenant)}"
    except InvalidName as fault:
        raise CommandFailed(str(fault), WRONG_USAGE) from fault


def _made_strict(relay: Client, tenant: str) -> dict[str, Any]:
    """The tenant that was just made, strict. Raises `CommandFailed`, which says that it is there all the same."""
    try:
        changed: dict[str, Any] = relay.call("PATCH", f"{PATH}/{tenant}", body={"strict_schemas": True})
    except CommandFailed as fault:
        again = f"`relay tenants change {tenant} --strict-schemas`"
        raise CommandFailed(f"the tenant {tenant} is there, and not strict yet ({fault}): try {again}") from fault
    return changed


def _mode(tenant: dict[str, Any]) -> str:
    return "refused" if tenant["strict_schemas"] else "taken"


def _tell(streams: Streams, tenant: dict[str, Any]) -> None:
    if streams.json:
        streams.document(tenant)
    else:
        shown = {_TYPES if name == "strict_schemas" else name: value for name, value in tenant.items()}
        show(streams, facts({**shown, _TYPES: _mode(tenant)}.items()))
