"""`relay dispatcher`: run one in the foreground.

Owns the arguments.
"""

from __future__ import annotations

import click

from relay.app.roles import Role
from relay.cli.options import example, json_option, workers_option
from relay.cli.running import serve
from relay.cli.streams import Streams


@click.command("dispatcher", epilog=example("relay dispatcher --workers 2"))
@workers_option
@json_option
@click.pass_obj
def command(streams: Streams, workers: int | None) -> None:
    """Deliver events to their endpoints; its metrics and health are at RELAY_METRICS_BIND.

    The database must be migrated: see `relay migrate`. Any number may run. SIGTERM lets it finish the requests under
    way and hand back the rest, then it ends with 0.
    """
    serve(Role.DISPATCHER, streams, workers)
