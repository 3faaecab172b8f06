"""The threads of an examination: for checks that block, and for the names that libraries look up.

Owns how they end. Invariant: nobody waits for one that hangs, neither the end of the loop nor that of the process. Both
join the threads of an ordinary executor, and what was found would not be told before that.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class LeftAlone(ThreadPoolExecutor):
    """A thread for each piece of work, which ends with the process at the latest.

    A pool in name: a loop takes nothing else as its default.
    """

    def submit(self, work: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> Future[T]:
        """Begin at once."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work(*args, **named))
            except BaseException as fault:  # noqa: BLE001 - it is raised where the work is waited for
                future.set_exception(fault)

        Thread(target=run, name="check", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing is waited for."""
