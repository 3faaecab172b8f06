"""`relay loadtest`: how fast this machine is.

Owns the arguments and the output; the measuring is the loadtest room's.
"""

from __future__ import annotations

import sys

import click

from relay.cli.failures import CommandFailed
from relay.cli.options import example, json_option
from relay.cli.streams import Streams
from relay.embedded import EmbeddedFault
from relay.loadtest import bench
from relay.loadtest.backlog import Shape


@click.group("loadtest", epilog=example("relay loadtest bench"))
def command() -> None:
    """Measure how fast this machine is."""


@command.command("bench", epilog=example("relay loadtest bench --events 50000 --workers 2"))
@click.option("--events", type=click.IntRange(1000), default=60_000, show_default=True, help="Events in the backlog.")
@click.option("--endpoints", type=click.IntRange(1), default=1, show_default=True, help="Endpoints they go to.")
@click.option("--payload-bytes", type=click.IntRange(40), default=500, show_default=True, help="Size of each event.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Dispatcher processes.")
@json_option
@click.pass_obj
def bench_command(streams: Streams, events: int, endpoints: int, payload_bytes: int, workers: int) -> None:
    """Drain a backlog into a local receiver, beside two floors: the bare client, and the queue without HTTP.

    It brings its own database and receiver, and touches no other. Run it on an idle machine, and compare only numbers
    of one machine.
    """

    def tell(line: str) -> None:
        if sys.stderr.isatty():
            streams.note(line)

    try:
        report = bench.run(bench.Plan(Shape(events, endpoints, payload_bytes), workers), tell)
    except (RuntimeError, EmbeddedFault) as fault:
        raise CommandFailed(f"the measurement failed: {fault}") from fault
    streams.done("measured")
    streams.line(bench.as_json(report) if streams.json else bench.text(report))
