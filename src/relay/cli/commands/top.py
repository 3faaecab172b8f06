"""`relay top`: the overview, live on a terminal.

Owns the arguments and the looking again. Invariants: one call to each process per look, each within its time; a process
that is away is said to be and asked again; the terminal is as it was at the end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlsplit

import click
from rich.console import Console, Group
from rich.live import Live

from relay.cli.failures import DONE, FAILED, CommandFailed
from relay.cli.keyboard import keyboard
from relay.cli.options import example, json_option, text_option
from relay.cli.overview import Overview, Source, overview, shown
from relay.cli.reading import read_settings
from relay.cli.rendering import show, words
from relay.cli.scraping import Scraper, scraper
from relay.cli.streams import Streams
from relay.settings import Settings

ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on


@click.command(
    "top",
    epilog=example("relay top", "relay top --once --metrics http://127.0.0.1:8080 --metrics http://127.0.0.1:9091"),
)
@click.option("--every", type=click.FloatRange(0.2, 60), default=2.0, show_default=True, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="Look twice, so many seconds apart, print one overview and end.")
@click.option(
    "--metrics",
    "urls",
    metavar="URL",
    multiple=True,
    help="Where a gateway or dispatcher serves /metrics; once for each of them. Without it: RELAY_URL, and the port of"
    " RELAY_METRICS_BIND.",
)
@json_option
@text_option
@click.pass_obj
def command(streams: Streams, every: float, once: bool, urls: tuple[str, ...]) -> int:
    """Show the overview, live: events accepted and delivered per second, how late and how many deliveries are, the
    oldest open receipt, what gates defer, open breakers, dead letters of each consumer, p99 of ingest and delivery.

    It asks the processes themselves, by one GET /metrics each per look; rates and p99 are of the last 20 seconds. A
    dash is what nobody says now. q ends it. On a pipe, or with --json, it is --once: then the exit code is 1 if a
    process is away.
    """
    named = list(dict.fromkeys(urls)) or _usual(read_settings())
    sources = [Source(url) for url in named]
    with scraper(named) as relay:
        if streams.watched and not once:
            _watch(relay, sources, every, streams)
            return DONE
        _look(relay, sources)
        time.sleep(every)
        return _print(_look(relay, sources), streams)


def _usual(settings: Settings) -> list[str]:
    """Gateway and dispatcher as one machine runs them; a dispatcher that listens everywhere is where the gateway is."""
    bind = settings.metrics_bind
    host = (urlsplit(settings.url).hostname or "") if bind.host in ANY_ADDRESS else bind.host
    return [settings.url, f"http://[{host}]:{bind.port}" if ":" in host else f"http://{host}:{bind.port}"]


def _look(relay: Scraper, sources: Sequence[Source]) -> Overview:
    for source in sources:
        try:
            reading = relay.read(source.url)
        except CommandFailed as fault:
            source.away(str(fault))
        else:
            source.said(time.monotonic(), reading)
    return overview(sources)


def _print(seen: Overview, streams: Streams) -> int:
    if streams.json:
        streams.document(seen.document())
    else:
        show(streams, *shown(seen))
    for url, fault in seen.away.items():
        streams.note(f"{url} is away: {fault}; start it, or name those that run with --metrics")
    return FAILED if seen.away else DONE


def _watch(relay: Scraper, sources: Sequence[Source], every: float, streams: Streams) -> None:
    """Look again and again until a q, or a signal."""
    with (
        streams.written() as out,
        keyboard() as keys,
        Live(
            console=Console(file=out, highlight=False, markup=False, emoji=False), screen=True, auto_refresh=False
        ) as live,
    ):
        while True:
            seen = _look(relay, sources)
            head = words(f"relay top  {datetime.now().astimezone():%H:%M:%S}  every {every:g} s, q ends it", "bold")
            live.update(Group(head, words(""), *shown(seen)), refresh=True)
            if keys.quits_within(every):
                return
