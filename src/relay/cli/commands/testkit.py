"""`relay testkit`: the configurable receiver in the foreground.

Owns the arguments. It is a crew of one like the other services, so its stop and its restarts are theirs.
"""

from __future__ import annotations

import asyncio

import click

from relay.app.listening import address_of, url_of
from relay.app.roles import Role
from relay.app.service import crew_of, socket_of
from relay.cli.options import example, json_option
from relay.cli.reading import read_settings
from relay.cli.running import for_workers, notice, prepare_log, run
from relay.cli.streams import Streams


@click.command("testkit", epilog=example("relay testkit", "curl http://127.0.0.1:9099/"))
@json_option
@click.pass_obj
def command(streams: Streams) -> None:
    """Run a receiver at RELAY_TESTKIT_BIND that behaves well, badly or oddly on demand.

    The first part of a url's path is the mode, like /ok, /verify or /slow?ms=200; `GET /` lists them, and `GET
    /received` tells what arrived. It also plays Telegram's Bot API and Discord's webhooks: RELAY_TELEGRAM_URL is its
    address then, and RELAY_DISCORD_URL its address and /api.
    """
    settings = read_settings()
    prepare_log(settings)

    async def body(hurry: asyncio.Event) -> None:
        listener = socket_of(Role.RECEIVER, settings)
        url = url_of(address_of(listener))
        crew = crew_of(Role.RECEIVER, settings, for_workers({}), listener=listener, notice=notice, hurry=hurry)
        async with crew as running:
            if streams.json:
                streams.record({"running": "testkit", "url": url})
            else:
                streams.line(f"testkit receiver at {url}; Ctrl-C stops it")
            await running.watch()

    run(body)
