"""How log lines look and where they go: JSON for a collector, text for a person, one form for all of a
process.

Owns the root logger of the process. Whoever logs (Relay, uvicorn, asyncio, Python's warnings) comes out the
same way, one line a record, with times in UTC to the millisecond. Invariant: no line holds a `Secret`'s
text, nor anything that `redaction` recognises as a credential.

A record's fields travel as `extra={"fields": {...}}`; its message is the name of what happened.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO

from relay.metrics.redaction import redact
from relay.settings import LogFormat, LogLevel

_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[31m"}
_encode = json.JSONEncoder(default=str).encode
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


def configure(log_format: LogFormat | None, level: LogLevel, stream: TextIO | None = None) -> None:
    """Send every record of this process to `stream` (stderr if None), in place of whatever was set up before.

    Without a format it is text on a terminal and JSON elsewhere. Servers must not set up logging of their own
    (uvicorn: `log_config=None`); their lines about single requests are shown at `debug` only.
    """
    stream = sys.stderr if stream is None else stream
    terminal = stream.isatty()
    chosen = log_format or (LogFormat.TEXT if terminal else LogFormat.JSON)
    handler = logging.StreamHandler(stream)
    coloured = terminal and not os.environ.get("NO_COLOR")
    handler.setFormatter(JsonLines() if chosen is LogFormat.JSON else TextLines(coloured=coloured))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = []
        logger.propagate = True
    logging.getLogger("uvicorn.access").setLevel(logging.NOTSET if level is LogLevel.DEBUG else logging.WARNING)
    logging.captureWarnings(capture=True)


class JsonLines(logging.Formatter):
    """One JSON object a line: `at`, `level`, `event`, `logger` where it is not Relay's own, then the
    fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line without its end."""
        line: dict[str, object] = {
            "at": _instant(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        if not _is_ours(record):
            line["logger"] = record.name
        line |= {name: _value(value) for name, value in _fields(record).items()}
        if trace := _trace(self, record):
            line["traceback"] = trace
        return redact(_encode(line))


class TextLines(logging.Formatter):
    """Time, level, what happened, then the fields as `name=value`; a traceback follows on lines of its
    own."""

    def __init__(self, *, coloured: bool = False) -> None:
        super().__init__()
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line, or several with a traceback, without the last end."""
        words = [_instant(record), f"{record.levelname:<7}", _printable(record.getMessage())]
        if self._coloured:
            words[0] = f"{_DIM}{words[0]}{_PLAIN}"
            words[1] = f"{_COLOURS.get(record.levelno, '')}{words[1]}{_PLAIN}"
        if not _is_ours(record):
            words.append(f"logger={record.name}")
        words += [f"{name}={_quoted(_value(value))}" for name, value in _fields(record).items()]
        trace = _trace(self, record)
        return redact(" ".join(words) + "".join(f"\n{_printable(part)}" for part in trace.splitlines()))


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name == "relay"


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, Mapping) else {}


def _instant(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _value(value: object) -> object:
    """What JSON can say: NaN and the infinities are no numbers there."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


def _printable(text: str) -> str:
    """Text without what could end the line or steer a terminal."""
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    )


def _quoted(value: object) -> str:
    text = str(value)
    plain = text.isprintable() and text and not set(text) & set(' "=')
    return text if plain else json.dumps(text)
