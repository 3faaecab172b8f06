"""`relay loadtest`: how fast this machine is.

Owns the arguments and the output; the measuring is the loadtest room's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from relay.cli.failures import CommandFailed
from relay.cli.options import example, json_option
from relay.cli.streams import Streams
from relay.domain.credentials import Proof
from relay.embedded import EmbeddedFault
from relay.loadtest import bench, bench_report, fairness, fanout, quorum, steady
from relay.loadtest.backlog import Shape


@click.group("loadtest", epilog=example("relay loadtest bench"))
def command() -> None:
    """Measure how fast this machine is."""


@command.command("bench", epilog=example("relay loadtest bench --events 50000 --workers 2"))
@click.option("--events", type=click.IntRange(1000), default=60_000, show_default=True, help="Events in the backlog.")
@click.option("--endpoints", type=click.IntRange(1), default=1, show_default=True, help="Endpoints they go to.")
@click.option("--payload-bytes", type=click.IntRange(40), default=500, show_default=True, help="Size of each event.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Dispatcher processes.")
@click.option("--gateways", type=click.IntRange(1), default=1, show_default=True, help="Gateway processes.")
@click.option("--rate", type=click.FloatRange(1), default=4_000.0, show_default=True, help="Posts per second.")
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    default=15.0,
    show_default=True,
    help="For how long they are posted; 0: not at all.",
)
@json_option
@click.pass_obj
def bench_command(
    streams: Streams,
    events: int,
    endpoints: int,
    payload_bytes: int,
    workers: int,
    gateways: int,
    rate: float,
    seconds: float,
) -> None:
    """Drain a backlog and keep up with posts, beside two floors: the bare client, and the queue without HTTP.

    It brings its own database and receiver, and touches no other. Shows rates, times, what each party spent of the
    processor, and how that stands to what is wanted, which counts on an idle machine with two cores only. Compare only
    numbers of one machine.
    """
    load = steady.Load(rate, seconds, endpoints, payload_bytes, gateways, workers, in_turn=True) if seconds else None
    with measuring():
        report = bench.run(bench.Plan(Shape(events, endpoints, payload_bytes), workers, load), told(streams))
    streams.done("measured")
    streams.line(bench_report.as_json(report) if streams.json else bench_report.text(report))


@command.command("steady", epilog=example("relay loadtest steady --rate 500 --seconds 10"))
@click.option("--rate", type=click.FloatRange(1), default=500.0, show_default=True, help="Posts per second.")
@click.option("--seconds", type=click.FloatRange(1), default=10.0, show_default=True, help="For how long.")
@click.option(
    "--endpoints", type=click.IntRange(1), default=1, show_default=True, help="Endpoints that get each event."
)
@click.option("--payload-bytes", type=click.IntRange(40), default=500, show_default=True, help="Size of each event.")
@click.option("--gateways", type=click.IntRange(1), default=1, show_default=True, help="Gateway processes.")
@click.option("--dispatchers", type=click.IntRange(1), default=1, show_default=True, help="Dispatcher processes.")
@click.option(
    "--auth", type=click.Choice([Proof.BEARER.value, Proof.HMAC.value]), help="How each post proves whose it is."
)
@json_option
@click.pass_obj
def steady_command(
    streams: Streams,
    rate: float,
    seconds: float,
    endpoints: int,
    payload_bytes: int,
    gateways: int,
    dispatchers: int,
    auth: str | None,
) -> None:
    """Post events at a constant rate, and show how long each took to be accepted and to arrive.

    Posts leave at times fixed in advance, so a stall shows instead of slowing the load down. It brings its own database
    and receiver, and touches no other.
    """
    with measuring():
        load = steady.Load(
            rate, seconds, endpoints, payload_bytes, gateways, dispatchers, auth=None if auth is None else Proof(auth)
        )
        report = steady.run(load, told(streams))
    streams.done("measured")
    streams.line(steady.as_json(report) if streams.json else steady.text(report))


@command.command("quorum", epilog=example("relay loadtest quorum --rate 200 --seconds 10"))
@click.option("--rate", type=click.FloatRange(1), default=500.0, show_default=True, help="Posts per second.")
@click.option("--seconds", type=click.FloatRange(1), default=30.0, show_default=True, help="For how long, each time.")
@click.option("--payload-bytes", type=click.IntRange(40), default=500, show_default=True, help="Size of each event.")
@json_option
@click.pass_obj
def quorum_command(streams: Streams, rate: float, seconds: float, payload_bytes: int) -> None:
    """Post events at a constant rate, each confirmed by two of three servers, and show what that wait costs.

    Beside it, in the same run: the same load confirmed by one server, and how long a commit takes to be on two servers
    without Relay. It brings its own servers, all on this machine, and touches no other. Says whether the 202 was as
    quick as wanted, which counts on an idle machine only.
    """
    with measuring():
        report = quorum.run(quorum.Plan(rate, seconds, payload_bytes), told(streams))
    streams.done("measured")
    streams.line(quorum.as_json(report) if streams.json else quorum.text(report))


@command.command("fairness", epilog=example("relay loadtest fairness --rate 100 --rounds 1"))
@click.option("--rate", type=click.FloatRange(1), default=200.0, show_default=True, help="Posts per second.")
@click.option("--seconds", type=click.FloatRange(1), default=10.0, show_default=True, help="For how long, each time.")
@click.option("--healthy", type=click.IntRange(1), default=100, show_default=True, help="Endpoints that answer.")
@click.option("--owed", type=click.IntRange(1), default=10_000, show_default=True, help="Events owed to the others.")
@click.option("--dead", type=click.IntRange(1), default=100, show_default=True, help="Dead endpoints.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="How often all is measured.")
@click.option("--payload-bytes", type=click.IntRange(40), default=500, show_default=True, help="Size of each event.")
@json_option
@click.pass_obj
def fairness_command(
    streams: Streams, rate: float, seconds: float, healthy: int, owed: int, dead: int, rounds: int, payload_bytes: int
) -> None:
    """Post events to healthy endpoints at a constant rate, alone and beside bad ones, and show what those cost them.

    In turns, in one run: alone, beside one endpoint that hangs with a deep backlog, and beside dead ones (connections
    refused, connections swallowed, names without an address). It brings its own database and receivers, and touches no
    other. Says whether the difference is as small as wanted, which counts on an idle machine only.
    """
    plan = fairness.Plan(rate, seconds, healthy, owed, dead, rounds, payload_bytes)
    with measuring():
        report = fairness.run(plan, told(streams))
    streams.done("measured")
    streams.line(fairness.as_json(report) if streams.json else fairness.text(report))


@command.command("fan-out", epilog=example("relay loadtest fan-out --rounds 1"))
@click.option("--endpoints", type=click.IntRange(2), default=1_000, show_default=True, help="Endpoints of each event.")
@click.option("--events", type=click.IntRange(1), default=20, show_default=True, help="Events for each of them.")
@click.option("--workers", type=click.IntRange(1), default=4, show_default=True, help="Processes that record acks.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="How often both are measured.")
@json_option
@click.pass_obj
def fan_out_command(streams: Streams, endpoints: int, events: int, workers: int, rounds: int) -> None:
    """Record the acks of many endpoints that share a receipt, beside as many that have receipts of their own.

    Several processes claim and record at once, without HTTP. It brings its own database, and touches no other. Fails if
    a receipt does not close exactly once; says whether sharing one costs as little as wanted, which counts on an idle
    machine only.
    """
    with measuring():
        report = fanout.run(fanout.Plan(endpoints, events, workers, rounds), told(streams))
    streams.done("measured")
    streams.line(fanout.as_json(report) if streams.json else fanout.text(report))


def told(streams: Streams) -> Callable[[str], None]:
    """What hears of progress: a person, on a terminal."""

    def tell(line: str) -> None:
        if sys.stderr.isatty():
            streams.note(line)

    return tell


@contextmanager
def measuring() -> Iterator[None]:
    """Turn a measurement that failed into a command that failed."""
    try:
        yield
    except (RuntimeError, EmbeddedFault) as fault:
        raise CommandFailed(f"the measurement failed: {fault}") from fault
