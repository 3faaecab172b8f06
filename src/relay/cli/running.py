"""Running a service in the foreground until a person or a supervisor stops it.

Owns the event loop of a parent process and the translation of what can keep it from running. Invariant: a service that
was stopped by a signal ends with exit code 0.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping

from relay.app.faults import CannotRun
from relay.app.first_process import leave_first_place
from relay.app.interruption import until_interrupted
from relay.app.roles import Role
from relay.app.service import run_service
from relay.cli.failures import WRONG_USAGE, CommandFailed
from relay.cli.reading import read_settings
from relay.cli.streams import Streams
from relay.metrics.logs import catch_uncaught, configure
from relay.settings import LogLevel, Settings, SettingsError


def run(body: Callable[[asyncio.Event], Coroutine[None, None, None]]) -> None:
    """Run a body until a signal ends it. Raises `CommandFailed`."""
    leave_first_place()
    try:
        asyncio.run(until_interrupted(body))
    except SettingsError as fault:
        raise CommandFailed(str(fault), WRONG_USAGE) from fault
    except CannotRun as fault:
        raise CommandFailed(str(fault)) from fault


def prepare_log(settings: Settings) -> None:
    """Have everything that this process logs come out in one form, without a line for each call that it makes."""
    configure(settings.log_format, settings.log_level)
    catch_uncaught()
    if settings.log_level is not LogLevel.DEBUG:
        logging.getLogger("httpx").setLevel(logging.WARNING)


def notice(text: str) -> None:
    """Log what a person should know of a service."""
    logging.getLogger("relay").warning("notice", extra={"fields": {"detail": text}})


def for_workers(command_line: Mapping[str, str]) -> dict[str, str]:
    """The environment of the workers: this one, with what the command line decided."""
    return {**os.environ, **command_line}


def serve(role: Role, streams: Streams, workers: int | None) -> None:
    """Run a gateway or a dispatcher, whose workers are `workers`, or as many as the environment says."""
    command_line = {} if workers is None else {"RELAY_WORKERS": str(workers)}
    settings = read_settings(command_line=command_line)
    prepare_log(settings)

    def started(url: str) -> None:
        if streams.json:
            streams.record({"running": role, "url": url, "workers": settings.workers})
        else:
            streams.line(f"{role} at {url}, {settings.workers} worker(s); Ctrl-C stops it")

    run(
        lambda hurry: run_service(
            role, settings, for_workers(command_line), started=started, notice=notice, hurry=hurry
        )
    )
