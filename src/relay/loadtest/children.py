"""Child processes of a measurement: started together, stopped whatever happens.

Owns start, stop and the first line that a child prints. Invariant: no child outlives the block that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STOP_SECONDS = 20.0


@dataclass(slots=True)
class Child:
    """A running child; what it prints on standard output is read line by line as JSON."""

    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        """Its process number."""
        return self.process.pid

    def line(self) -> dict[str, Any]:
        """The next line it prints. Raises `RuntimeError` if it ends instead."""
        assert self.process.stdout is not None, "children are started with a pipe"
        text = self.process.stdout.readline()
        if not text:
            raise RuntimeError(f"a process of the measurement ended early, with status {self.process.wait()}")
        document: dict[str, Any] = json.loads(text)
        return document

    def ask(self) -> dict[str, Any]:
        """Send SIGUSR1 and read the line that answers it (the sink's counts)."""
        self.process.send_signal(signal.SIGUSR1)
        return self.line()


@contextlib.contextmanager
def child(
    module: str, *arguments: str, environ: Mapping[str, str] | None = None, log: Path | None = None
) -> Iterator[Child]:
    """Run `python -m module arguments` inside the block; its standard error goes to `log`, or to ours."""
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(log.open("ab")) if log else None
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **(environ or {})},
        )
        try:
            yield Child(process)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()
