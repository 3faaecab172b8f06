"""Claims about signals to a process in the foreground, each with a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_SECONDS = 30.0

PROGRAM = """
import asyncio, sys
from relay.app import interruption

interruption.SAME_SECONDS = float(sys.argv[1])

async def body(hurry):
    try:
        print("working", flush=True)
        await asyncio.Event().wait()
    finally:
        print("cleaning up", flush=True)
        if sys.argv[2] == "wait":
            await hurry.wait()
        print("clean", flush=True)

print("interrupted", asyncio.run(interruption.until_interrupted(body)), flush=True)
input()
"""


@contextmanager
def running(
    same_seconds: float, end: str, prepare: Callable[[], object] | None = None
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(same_seconds), end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,  # noqa: PLW1509 - it sets one signal
    )
    guard = threading.Timer(PATIENCE_SECONDS, process.kill)
    guard.start()
    try:
        with process:
            yield process
    finally:
        guard.cancel()
        process.kill()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_body_cleans_up_and_the_interruption_is_told() -> None:
    with running(0.0, "end") as process:
        assert says(process) == "working"
        process.send_signal(signal.SIGINT)
        assert [says(process) for _ in range(3)] == ["cleaning up", "clean", "interrupted True"]


def test_a_signal_after_the_end_is_swallowed() -> None:
    with running(0.0, "end") as process:
        assert says(process) == "working"
        process.send_signal(signal.SIGINT)
        assert [says(process) for _ in range(3)] == ["cleaning up", "clean", "interrupted True"]
        for number in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
        process.communicate("\n", timeout=PATIENCE_SECONDS)
        assert process.returncode == 0


def test_a_later_signal_asks_for_hurry() -> None:
    with running(0.0, "wait") as process:
        assert says(process) == "working"
        process.send_signal(signal.SIGTERM)
        assert says(process) == "cleaning up"
        process.send_signal(signal.SIGTERM)
        assert says(process) == "clean"


def test_a_signal_that_comes_twice_at_once_is_one() -> None:
    with running(PATIENCE_SECONDS, "wait") as process:
        assert says(process) == "working"
        process.send_signal(signal.SIGINT)
        assert says(process) == "cleaning up"
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.poll() is None
        process.kill()
        assert says(process) == ""


def test_ctrl_c_is_heeded_although_a_shell_had_it_ignored_in_the_background() -> None:
    with running(0.0, "end", lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) as process:
        assert says(process) == "working"
        process.send_signal(signal.SIGINT)
        assert says(process) == "cleaning up"


def test_the_end_of_the_terminal_is_ignored_under_nohup() -> None:
    with running(0.0, "end", lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as process:
        assert says(process) == "working"
        os.kill(process.pid, signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert [says(process) for _ in range(3)] == ["cleaning up", "clean", "interrupted True"]
