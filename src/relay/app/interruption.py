"""How a person stops what runs in the foreground.

Owns the signals of a parent process, from the start of a body to the end of the process. The first SIGINT, SIGTERM or
SIGHUP asks for an orderly end, a later one for a quick end. Invariant: a body that is interrupted has run its clean-up
to the end when `until_interrupted` returns, and nothing that is sent afterwards turns that into a failure.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from types import FrameType

SAME_SECONDS = 0.5

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def until_interrupted(body: Callable[[asyncio.Event], Coroutine[None, None, None]]) -> bool:
    """Run a body to its end, or cancel it at the first signal; answers whether it was interrupted.

    The body gets an event that a later signal sets: then its clean-up should not wait for anybody. A signal that comes
    within `SAME_SECONDS` is the one before it again: some programs send theirs to a process and to its whole group.
    Call it once, as the last thing that a process does: the signals stay ignored behind it.
    """
    hurry = asyncio.Event()
    task = asyncio.create_task(body(hurry))
    loop = asyncio.get_running_loop()
    last_at = 0.0

    def interrupt() -> None:
        nonlocal last_at
        if not task.cancelling():
            last_at = loop.time()
            task.cancel()
        elif loop.time() - last_at > SAME_SECONDS:
            last_at = loop.time()
            hurry.set()

    def handle(_: int, __: FrameType | None) -> None:
        loop.call_soon_threadsafe(interrupt)

    # Not the loop's own handlers: it takes them off when it closes, and a signal at that moment would kill.
    heeded = _heeded()
    for number in heeded:
        signal.signal(number, handle)
    try:
        await asyncio.wait([task])
    finally:
        for number in heeded:
            signal.signal(number, signal.SIG_IGN)
    if task.cancelled():
        return True
    task.result()
    return False


def _heeded() -> list[signal.Signals]:
    """SIGHUP stays ignored where whoever started this process had it so (`nohup`). SIGINT is heeded even then: a shell
    without job control lets every background process ignore it, and a person who sends it by hand means it."""
    return [each for each in SIGNALS if each is not signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN]
