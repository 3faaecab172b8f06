"""`relay audit`: who changed what, and who sent again or gave up what.

Owns the arguments and the table. Invariant: what is shown is what was entered; nothing here adds to it or hides any.
"""

from __future__ import annotations

from typing import Any

import click

from relay.cli.client import connect
from relay.cli.listing import INSTANT, WHEN, length_options, listed
from relay.cli.options import example, json_option
from relay.cli.reading import read_settings
from relay.cli.rendering import show, table
from relay.cli.streams import Streams
from relay.domain.audit import AuditAction

PATH = "/v1/audit"


@click.command(
    "audit", epilog=example("relay audit --since 2h", "relay audit --actor key:ops --action endpoint.change")
)
@click.option("--actor", metavar="WHO", help="What this credential asked for: key:ops, source:billing, anonymous.")
@click.option("--action", type=click.Choice([action.value for action in AuditAction]), help="What was done.")
@click.option("--subject", metavar="ID", help="What was done to the thing of this id.")
@click.option("--since", type=INSTANT, metavar="WHEN", help=f"Done at {WHEN}, or later.")
@click.option("--until", type=INSTANT, metavar="WHEN", help="Done before then.")
@click.option("--tenant", metavar="ID", help="With an operator's key: of this tenant, or of all tenants ('*').")
@length_options
@json_option
@click.pass_obj
def command(streams: Streams, /, limit: int | None, **filters: str | None) -> None:
    """List who changed an endpoint, a key, a source, a tenant or a schema, and who sent again or gave up what.

    The newest comes first. It takes a key with the scope admin.
    """
    with connect(read_settings()) as relay:
        entries = listed(relay, PATH, filters, limit, streams)
    if streams.json:
        streams.document(entries)
        return
    if not entries:
        streams.line("no such entries" if any(filters.values()) else "nothing was changed yet")
        return
    columns = ("at", "tenant", "actor", "action", "subject", "name", "what")
    rows = [(*(entry[name] for name in columns[:6]), _what(entry)) for entry in entries]
    optional = () if filters["tenant"] else ("tenant",)
    if not filters["tenant"]:
        rows = [(row[0], None, *row[2:]) for row in rows]
    show(streams, table(columns, rows, prose=("what",), optional=(*optional, "subject", "name", "what")))


def _what(entry: dict[str, Any]) -> str:
    """What was changed, and from what to what, as far as that was kept."""
    changed = [
        each["field"] if each["hidden"] else f"{each['field']}: {_said(each['old'])} -> {_said(each['new'])}"
        for each in entry["changes"]
    ]
    told = [f"{name}: {_said(value)}" for name, value in entry["details"].items() if value is not None]
    return "; ".join([*changed, *told])


def _said(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_said, value))
    return "-" if value is None else str(value)
