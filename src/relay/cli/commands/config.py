"""`relay config`: every setting as it is in force.

Owns the listing. Invariant: no byte of a secret is shown.
"""

from __future__ import annotations

import click
from rich.text import Text

from relay.app.brokerage import broker_address
from relay.cli.failures import WRONG_USAGE, CommandFailed
from relay.cli.options import example, json_option
from relay.cli.reading import read_settings
from relay.cli.rendering import facts, show, table, words
from relay.cli.streams import Streams
from relay.settings import Effective, Origin, SettingsError, cautions, effective


@click.command("config", epilog=example("RELAY_WORKERS=2 relay config"))
@json_option
@click.pass_obj
def command(streams: Streams) -> None:
    """Show every setting, its value in force, and where that comes from.

    Secrets are stars. If something is wrong with the environment, all that is wrong is told instead.
    """
    settings = read_settings()
    try:
        broker_address(settings)  # whoever asks whether the settings are right hears what a dispatcher would say
    except SettingsError as fault:
        raise CommandFailed(str(fault), WRONG_USAGE) from fault
    for caution in cautions(settings):
        streams.note(caution)
    rows = effective(settings)
    if streams.json:
        streams.document([{"name": row.name, "value": row.value or None, "origin": row.origin} for row in rows])
        return
    lines = facts((row.name, Text.assemble(words(row.value), "  ", _origin(row))) for row in rows)
    cells = [(row.name, row.value, _origin(row)) for row in rows]
    show(streams, table(("setting", "value", "from"), cells, prose=("from",), otherwise=lines))


def _origin(row: Effective) -> Text:
    quiet = (Origin.DEFAULT, Origin.FOLLOWS)
    return words(row.origin, "dim" if row.origin in quiet else "bold")
