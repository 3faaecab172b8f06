"""What a service does where it is the first process, as in a container.

Owns the division of such a process in two: the first one passes signals on and collects whoever ends, its child is the
service. To the first one the system gives every process whose parent is gone, to be collected, and it keeps from it the
signals for which it has no handler. Invariant: anywhere else nothing happens.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

from relay.app.interruption import SIGNALS

FIRST = 1


def leave_first_place() -> None:
    """Return in a child where this is the first process, which stays behind and ends as the child does.

    Call it before there is a thread or an event loop.
    """
    if os.getpid() != FIRST:
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # what comes meanwhile is for the child
    child = os.fork()
    if child:
        _look_after(child)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _look_after(child: int) -> None:
    """Pass signals on to the child and collect everybody; end as it ends."""

    def pass_on(number: int, _: FrameType | None) -> None:
        os.kill(child, number)  # it is there, or at least not collected, as long as this runs

    for number in SIGNALS:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    pid = status = 0
    while pid != child:
        pid, status = os.wait()
    ended = os.waitstatus_to_exitcode(status)
    os._exit(ended if ended >= 0 else 128 - ended)
