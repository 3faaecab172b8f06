"""`relay migrate`: bring the database to this version's shape.

Owns the output. Any number may run at once: they wait for each other.
"""

from __future__ import annotations

import asyncio

import click

from relay.app.faults import CannotRun
from relay.app.installation import find
from relay.app.migration import migrate_database
from relay.cli.failures import WRONG_USAGE, CommandFailed
from relay.cli.options import example, json_option
from relay.cli.reading import read_settings
from relay.cli.streams import Streams
from relay.settings import SettingsError


@click.command(
    "migrate",
    epilog=example(
        "(umask 077; relay secret-key > relay.key)",
        "export RELAY_SECRET_KEYS_FILE=relay.key",
        "DATABASE_URL=postgresql://relay@db/relay relay migrate",
    ),
)
@json_option
@click.pass_obj
def command(streams: Streams) -> None:
    """Bring the database to this version's shape.

    The database is that of DATABASE_URL, or the embedded one that runs in RELAY_DATA_DIR. Run it before the first start
    and after each upgrade; `relay up` does it by itself. Keep the file with the key: without it no stored secret opens
    again.
    """
    settings = read_settings()
    try:
        applied = asyncio.run(migrate_database(find(settings), streams.note))
    except SettingsError as fault:
        raise CommandFailed(str(fault), WRONG_USAGE) from fault
    except CannotRun as fault:
        raise CommandFailed(str(fault)) from fault
    streams.done("the database is migrated")
    if streams.json:
        streams.document({"applied": applied})
    else:
        streams.line(f"applied {len(applied)} migration(s)" if applied else "nothing to do: the database is up to date")
