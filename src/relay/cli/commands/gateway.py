"""`relay gateway`: run one in the foreground.

Owns the arguments.
"""

from __future__ import annotations

import click

from relay.app.roles import Role
from relay.cli.options import example, json_option, workers_option
from relay.cli.running import serve
from relay.cli.streams import Streams


@click.command("gateway", epilog=example("relay gateway --workers 2"))
@workers_option
@json_option
@click.pass_obj
def command(streams: Streams, workers: int | None) -> None:
    """Accept events and serve the HTTP API at RELAY_BIND.

    The database must be migrated: see `relay migrate`. Without credentials it listens on loopback only. SIGTERM lets it
    finish the requests under way, then it ends with 0.
    """
    serve(Role.GATEWAY, streams, workers)
