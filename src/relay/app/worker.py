"""The frame of a worker process: its event loop, its signals, its end.

Each role's module is a program that puts its body into this frame: `python -m relay.app.gateway --slot=… --listen=…
--tether=…`, started by a crew only. SIGTERM, or the end of the parent, lets it finish what is under way; past the bound
it ends anyway. Invariant: a worker that cannot start tells its parent why, in a line."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from relay.app.faults import CannotRun, cannot_import
from relay.app.number_folders import hold
from relay.app.roles import Bounds, Role, bounds
from relay.app.tether import Ready, Refused, WorkerEnd
from relay.app.work import Body, Work
from relay.metrics import Slot
from relay.metrics.logs import Lines, catch_uncaught, configure
from relay.settings import Settings, SettingsError, read

OPEN_FILES = 65_536
"""How many connections and files a worker may have open, where the system lets it: the usual limit of 1,024 is less
than what one dispatcher may have in flight."""

CRASHED = 70
"""The exit status of a worker that ended by a bug (EX_SOFTWARE)."""

YOUNG_OBJECTS = 20_000
"""How many objects that could be in a cycle are made before the collector looks among them. Python's own 700 are those
of a few dozen requests, nearly all of them still in use: looking at them each time took a tenth of a gateway's time."""


def main(role: Role, body: Body, arguments: Sequence[str] | None = None) -> int:
    """Live one worker's life; answers its exit status."""
    options = _options(role, arguments)
    tether = WorkerEnd(options.tether)
    # Ctrl-C is the parent's, even if somebody sends it to the whole group
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _raise_file_limit()
    try:
        settings = read(os.environ)
        lines = configure(settings.log_format, settings.log_level, process=role.value)
        catch_uncaught()
        if options.numbers is not None:
            hold(options.numbers)  # until this process ends
        # what it warns of, a database that is away, whoever needs the database tells, once and without a traceback
        logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_live(body, bounds(role, settings), settings, options, tether, lines))
    except (CannotRun, SettingsError) as fault:
        tether.report(Refused(str(fault)))
        return 1
    except ImportError as missing:
        tether.report(Refused(cannot_import(missing)))
        return 1
    except Exception:
        logging.getLogger("relay").critical("worker_crashed", exc_info=True, extra={"fields": {"role": role.value}})
        return CRASHED
    finally:
        tether.close()
    return 0


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _options(role: Role, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m relay.app.{role}", description="Started by relay itself.")
    parser.add_argument("--slot", type=int, required=True)
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--tether", type=int, required=True)
    parser.add_argument("--numbers", type=Path)
    return parser.parse_args(arguments)


async def _live(
    body: Body, limits: Bounds, settings: Settings, options: argparse.Namespace, tether: WorkerEnd, lines: Lines
) -> None:
    parting = Parting(limits.delay)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, parting.begin)
    tether.watch(lambda: _part(loop, parting, limits, lines))
    await body(
        Work(
            settings=settings,
            listener=socket.socket(fileno=options.listen),
            slot=None if options.numbers is None else Slot(options.numbers, options.slot),
            drain_seconds=limits.drain,
            leaving=parting.leaving,
            stop=parting.stop,
            lines=lines,
            ready=lambda: ready(tether),
        )
    )


class Parting:
    """How a worker comes to its stop: at once, or after the delay that its role has."""

    def __init__(self, delay_seconds: float) -> None:
        self._delay_seconds = delay_seconds
        self.leaving = asyncio.Event()
        self.stop = asyncio.Event()

    def begin(self) -> None:
        """Leave; told so again, do not delay it any longer."""
        if self.leaving.is_set() or not self._delay_seconds:
            self.end()
            return
        self.leaving.set()
        asyncio.get_running_loop().call_later(self._delay_seconds, self.stop.set)

    def end(self) -> None:
        """Stop now."""
        self.leaving.set()
        self.stop.set()


def ready(tether: WorkerEnd) -> None:
    """Tell the parent that the work has begun.

    What a worker starts with lives as long as it: a full collection that walks all of it stops the loop for 50 to
    100 ms, and finds nothing there.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    tether.report(Ready())


def _part(loop: asyncio.AbstractEventLoop, parting: Parting, limits: Bounds, lines: Lines) -> None:
    """The parent is gone, and with it whoever would kill a worker that does not stop: watch over that here."""
    with contextlib.suppress(RuntimeError):  # the loop has ended already
        loop.call_soon_threadsafe(parting.end)
    time.sleep(limits.stop)
    lines.flush()
    os._exit(CRASHED)
