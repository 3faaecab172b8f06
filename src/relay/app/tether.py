"""The thread between a parent and one of its workers: a pair of connected sockets.

Owns what is said over it. The worker reports once, `Ready` or `Refused`; after that the silence is the message: each
side learns of the other's end, however that came, because the system closes the socket. Invariant: no worker outlives
its parent by more than the time that it may drain."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker does its work from now on."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The worker cannot start; `reason` is a line for the person."""

    reason: str


Report = Ready | Refused


def encode(report: Report) -> bytes:
    """The report as one line."""
    match report:
        case Ready():
            fields: dict[str, object] = {"ready": True}
        case Refused(reason):
            fields = {"ready": False, "reason": reason}
        case _:
            assert_never(report)
    return json.dumps(fields).encode() + b"\n"


def decode(line: bytes) -> Report | None:
    """Read a report; None for a line that was cut off by the worker's death."""
    try:
        fields = json.loads(line)
        return Ready() if fields["ready"] else Refused(str(fields["reason"]))
    except (ValueError, KeyError, TypeError):
        return None


class WorkerEnd:
    """The worker's end, made from the descriptor that it inherited."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(True)
        self._socket.set_inheritable(False)

    def report(self, report: Report) -> None:
        """Tell the parent. If it is gone there is nobody to tell, and `watch` says so."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(encode(report))

    def close(self) -> None:
        """Let go of it: to the parent, the worker has ended."""
        self._socket.close()

    def watch(self, on_parted: Callable[[], None]) -> None:
        """Call `on_parted`, in a thread of its own, when the parent has ended."""

        def wait() -> None:
            with contextlib.suppress(OSError):
                while self._socket.recv(64):
                    pass
            on_parted()

        threading.Thread(target=wait, name="tether", daemon=True).start()
