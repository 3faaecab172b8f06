"""`relay up`: everything on this machine.

Owns the arguments, and what a person sees while it starts, runs and stops.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import click

from relay.app.up import Site, everything
from relay.cli.demonstration import Demonstration, tell_of_key
from relay.cli.options import example, json_option, workers_option
from relay.cli.reading import read_settings
from relay.cli.running import for_workers, notice, prepare_log, run
from relay.cli.streams import Streams
from relay.cli.welcome import welcome
from relay.settings import Settings

DEFAULTS = {"RELAY_METRICS_BIND": "127.0.0.1:9091"}
"""On a person's machine the metrics are that person's business."""

QUORUM_OF_THREE = "2"
"""With three servers any one of them may be lost."""


@click.command("up", epilog=example("relay up --dev --demo"))
@click.option("--dev", is_flag=True, help="Allow private endpoints, plain http and any port; start the receiver.")
@click.option("--demo", is_flag=True, help="With --dev: send an event, and show its receipt closing.")
@workers_option
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the database, made if missing [RELAY_DATA_DIR].",
)
@click.option(
    "--replicas",
    type=click.Choice(["1", "3"]),
    default="1",
    show_default=True,
    help="Servers of the database: with 3, two of them hold every event before its 202.",
)
@json_option
@click.pass_obj
def command(streams: Streams, dev: bool, demo: bool, workers: int | None, data: Path | None, replicas: str) -> None:
    """Run the gateway and the dispatcher here, with a database of their own unless DATABASE_URL names one.

    The database is migrated first. Ctrl-C, or SIGTERM, stops all of it in order.
    """
    if demo and not dev:
        raise click.UsageError("--demo sends to the receiver that --dev starts: add --dev.")
    command_line = {} if workers is None else {"RELAY_WORKERS": str(workers)}
    if dev:
        command_line["RELAY_ALLOW_PRIVATE_ENDPOINTS"] = "true"
    if data is not None:
        command_line["RELAY_DATA_DIR"] = str(data)
    defaults = DEFAULTS if replicas == "1" else {**DEFAULTS, "RELAY_JOURNAL_QUORUM": QUORUM_OF_THREE}
    settings = read_settings(command_line=command_line, command_defaults=defaults)
    prepare_log(settings)
    if replicas != "1":
        command_line["RELAY_JOURNAL_QUORUM"] = str(settings.journal_quorum)
    command_line["RELAY_DATA_DIR"] = str(settings.data_dir.expanduser().absolute())

    def say(text: str) -> None:
        if streams.json:
            streams.record({"progress": text})
        else:
            streams.line(text)

    async def body(hurry: asyncio.Event) -> None:
        site = everything(
            settings,
            for_workers(command_line),
            receiver=dev,
            replicas=int(replicas),
            say=say,
            notice=notice,
            hurry=hurry,
        )
        async with site as running:
            await _greet(running, settings, streams, demo=demo)
            if not streams.json:
                streams.line("\nCtrl-C stops everything.")
            await running.watch()

    run(body)
    say("stopped")


async def _greet(site: Site, settings: Settings, streams: Streams, *, demo: bool) -> None:
    """Say where everything is, and show the demonstration if it is wanted and there is a key for it."""
    lacks_key = site.asks_for_keys and settings.api_key is None
    welcome(site, streams, with_demo=demo and not lacks_key)
    if demo and lacks_key:
        tell_of_key(streams)
    elif demo:
        await _demonstrate(site, settings, streams)


async def _demonstrate(site: Site, settings: Settings, streams: Streams) -> None:
    """Run the demonstration in a thread, and let it end early if it is interrupted."""
    stopped = threading.Event()
    try:
        await asyncio.to_thread(Demonstration(site, settings, streams, stopped).run)
    finally:
        stopped.set()
