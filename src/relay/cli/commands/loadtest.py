"""`relay loadtest`: how fast this machine is.

Owns the arguments and the output; the measuring is the loadtest room's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import click

from relay.cli.failures import CommandFailed
from relay.cli.options import example, json_option
from relay.cli.streams import Streams
from relay.domain.credentials import Proof
from relay.embedded import EmbeddedFault
from relay.loadtest import bench, bench_report, fairness, fanout, quorum, steady, steady_report, sweep, sweep_report
from relay.loadtest.backlog import Shape
from relay.loadtest.receivers import Receivers, Share, read_share
from relay.loadtest.results import write_whole
from relay.loadtest.schedule import Arrivals

F = TypeVar("F", bound=Callable[..., Any])


class _Wanted(TypedDict):
    """The options of a steady load."""

    rate: float
    seconds: float
    arrivals: str
    endpoints: int
    fan_out: int | None
    payload_bytes: tuple[int, ...]
    fail: float
    throttle: Share | None
    slow: Share | None
    dead: float
    seed: int
    gateways: int
    dispatchers: int
    auth: str | None


class _Turned(TypedDict):
    """The options of a sweep."""

    knobs: tuple[str, ...]
    values: tuple[int, ...]
    events: int
    rates: tuple[float, ...]
    seconds: float


class _Timed(click.ParamType[Share]):
    """A share of requests, and the seconds that go with it."""

    name = "share:seconds"

    def convert(self, value: str | Share, param: click.Parameter | None, ctx: click.Context | None) -> Share:
        """Read it."""
        try:
            return value if isinstance(value, Share) else read_share(value)
        except ValueError as fault:
            self.fail(f"{fault}.", param, ctx)


SHARE = click.FloatRange(0, 1)
TIMED = _Timed()


def output_option(measurement: F) -> F:
    """Add `--output` and `--force`: where the result is kept. Refuses before anything is measured."""

    def look(ctx: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
        if path is not None and not path.parent.is_dir():
            raise click.BadParameter(f"there is no folder {path.parent}.")
        if path is not None and path.exists() and not ctx.params.get("force"):
            raise click.BadParameter(f"{path} is there already; --force replaces it.")
        return path

    force = click.option("--force", is_flag=True, is_eager=True, help="Even if the file is there already.")
    output = click.option(
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        callback=look,
        metavar="FILE",
        help="Write what was measured, with its histograms, to this file.",
    )
    return force(output(measurement))


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
    faults = [f"{report.drain.lost:,} deliveries of the backlog are lost"] if report.drain.lost else []
    if faults := faults + (report.sustained.steady.faults() if report.sustained else []):
        raise CommandFailed("; ".join(faults))


@command.command("steady", epilog=example("relay loadtest steady --rate 500 --seconds 10"))
@click.option("--rate", type=click.FloatRange(1), default=500.0, show_default=True, help="Posts per second.")
@click.option("--seconds", type=click.FloatRange(1), default=10.0, show_default=True, help="For how long.")
@click.option(
    "--arrivals",
    type=click.Choice([each.value for each in Arrivals]),
    default=Arrivals.CONSTANT.value,
    show_default=True,
    help="At even distances, or as chance has it.",
)
@click.option("--endpoints", type=click.IntRange(1), default=1, show_default=True, help="Endpoints there are.")
@click.option(
    "--fan-out", type=click.IntRange(1), help="Endpoints that get each event, in turn; by default all of them."
)
@click.option(
    "--payload-bytes",
    type=click.IntRange(40),
    multiple=True,
    default=[500],
    show_default=True,
    help="Size of each event; given several times, the sizes in turn.",
)
@click.option(
    "--fail", type=SHARE, default=0.0, metavar="SHARE", help="Of all requests to endpoints, so many get a 500."
)
@click.option("--throttle", type=TIMED, metavar="SHARE:SECONDS", help="So many get a 429 that asks to wait so long.")
@click.option("--slow", type=TIMED, metavar="SHARE:SECONDS", help="So many get their 200 after so long.")
@click.option("--dead", type=SHARE, default=0.0, metavar="SHARE", help="Of all endpoints, so many refuse connections.")
@click.option("--seed", type=int, default=0, show_default=True, help="What chance begins with.")
@click.option("--gateways", type=click.IntRange(1), default=1, show_default=True, help="Gateway processes.")
@click.option("--dispatchers", type=click.IntRange(1), default=1, show_default=True, help="Dispatcher processes.")
@click.option(
    "--auth", type=click.Choice([Proof.BEARER.value, Proof.HMAC.value]), help="How each post proves whose it is."
)
@output_option
@json_option
@click.pass_obj
def steady_command(streams: Streams, /, output: Path | None, force: bool, **wanted: Unpack[_Wanted]) -> None:
    """Post events at a constant rate, and show how long each took to be accepted and to arrive.

    Posts leave at times fixed in advance, so a stall shows instead of slowing the load down. An event has arrived when
    its endpoint has answered with 200. Shows what is owed and how much memory is taken meanwhile, and fails if
    something that was accepted is lost. It brings its own database and receiver, and touches no other.
    """
    load = _load(wanted)
    with measuring():
        report, machine = steady.run(load, told(streams))
    if output is not None:
        with _files("the result could not be written"):
            write_whole(output, steady_report.result(report, machine), replace=force)
    streams.done("measured")
    streams.line(steady_report.as_json(report) if streams.json else steady_report.text(report))
    if faults := report.faults():
        raise CommandFailed("\n".join(faults))


def _load(wanted: _Wanted) -> steady.Load:
    sizes, auth = wanted["payload_bytes"], wanted["auth"]
    try:
        return steady.Load(
            rate=wanted["rate"],
            seconds=wanted["seconds"],
            endpoints=wanted["endpoints"],
            payload_bytes=sizes[0],
            gateways=wanted["gateways"],
            dispatchers=wanted["dispatchers"],
            auth=None if auth is None else Proof(auth),
            fan_out=wanted["fan_out"],
            payload_mix=sizes if len(sizes) > 1 else (),
            receivers=Receivers(
                wanted["fail"], wanted["throttle"] or Share(), wanted["slow"] or Share(), wanted["dead"], wanted["seed"]
            ),
            arrivals=Arrivals(wanted["arrivals"]),
        )
    except ValueError as fault:
        raise click.UsageError(f"{fault}.") from fault


@command.command("sweep", epilog=example("relay loadtest sweep --output sweep.json"))
@click.option(
    "--knob",
    "knobs",
    type=click.Choice([each.name for each in sweep.KNOBS]),
    multiple=True,
    help="What to turn; given several times, each; by default all.",
)
@click.option(
    "--value", "values", type=click.IntRange(1), multiple=True, help="Of a single knob these values instead of its own."
)
@click.option(
    "--events", type=click.IntRange(100), default=30_000, show_default=True, help="Events in each backlog, at most."
)
@click.option(
    "--rate",
    "rates",
    type=click.FloatRange(1),
    multiple=True,
    default=[500.0, 2000.0, 4000.0],
    show_default=True,
    help="Posts per second of steady loads; given several times, each.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    default=8.0,
    show_default=True,
    help="For how long each steady load; 0: none at all.",
)
@click.option(
    "--page",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    metavar="FILE",
    help="Write tables into this page's part named sweep, and plots into the folder beside it that has its name.",
)
@output_option
@json_option
@click.pass_obj
def sweep_command(
    streams: Streams, /, page: Path | None, output: Path | None, force: bool, **wanted: Unpack[_Turned]
) -> None:
    """Drain a backlog and keep up with loads under one configuration after the other, and say what to change first.

    Turns one knob at a time: dispatcher processes, claim batch, pool, requests under way in a process and to an
    endpoint; then gateway and dispatcher processes under steady loads. Takes some minutes. It may be interrupted:
    what was measured by then is shown and kept. Fails if a configuration could not be measured or lost something.
    Each configuration has a database and receivers of its own, and no others are touched.
    """
    plan = _plan(wanted)
    if page is not None:
        with _files("the page cannot be written"):
            sweep_report.look_at_page(page)

    def keep(measured: sweep.Sweep) -> None:
        if output is not None:
            with _files("the result could not be written"):
                write_whole(output, sweep.written(measured), replace=force or len(measured.measured) > 1)

    with measuring():
        measured = sweep.run(plan, told(streams), keep)
    if page is not None:
        with _files("the page could not be written"):
            sweep_report.write_page(page, measured)
    streams.done("measured")
    streams.line(sweep.written(measured) if streams.json else sweep_report.text(measured))
    if not measured.is_whole:
        raise click.Abort
    if faults := measured.faults():
        raise CommandFailed("\n".join(faults))


def _plan(wanted: _Turned) -> sweep.Plan:
    knobs = tuple(each for each in sweep.KNOBS if not wanted["knobs"] or each.name in wanted["knobs"])
    if wanted["values"]:
        if len(knobs) > 1:
            raise click.UsageError("--value goes with one --knob, whose values they are.")
        knobs = (replace(knobs[0], values=wanted["values"]),)
    return sweep.Plan(
        knobs=knobs,
        events=wanted["events"],
        rates=wanted["rates"] if wanted["seconds"] else (),
        seconds=wanted["seconds"],
    )


@contextmanager
def _files(what: str) -> Iterator[None]:
    """Turn a file that cannot be written into a command that failed."""
    try:
        yield
    except (OSError, LookupError) as fault:
        raise CommandFailed(f"{what}: {fault}") from fault


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
