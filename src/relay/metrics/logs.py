"""How log lines look: JSON for a collector, text for a person, one form for all of a process.

Owns the root logger of the process. Whoever logs (Relay, uvicorn, asyncio, Python's warnings, an exception that nobody
caught) comes out the same way, one line a record, with times in UTC to the millisecond. How lines reach the stream is
`writing`'s; which names and fields there are, `glossary`'s. Invariant: no line holds a `Secret`'s text, nor anything
that `redaction` recognises as a credential, nor a character that could end it early or steer a terminal.

A record's fields travel as `extra={"fields": {...}}`; its message is the name of what happened. What a library says is
a `library_message`, with its text as a field.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import NamedTuple, Protocol, TextIO

import msgspec

from relay.metrics.redaction import redact
from relay.metrics.writing import LineWriter
from relay.settings import LogFormat, LogLevel

FLUSH_SECONDS = 1.0
"""How long the end of a process waits for a stream that does not take its last lines."""

LIBRARY_MESSAGE = "library_message"

_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[31m"}
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_LEVEL_NAMES = {
    level: logging.getLevelName(level).lower()
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
}
_ENCODER = msgspec.json.Encoder(enc_hook=str)
_NOT_PLAIN = re.compile(r"[^ -~\n]")

_UNHEARD = ("urllib3", "opentelemetry")
"""Libraries that tell at each try what Relay counts and tells in lines of its own."""


class Told(NamedTuple):
    """A line of Relay's own before it has a form."""

    level: int
    name: str
    fields: dict[str, object]


class Form(Protocol):
    """How lines look."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as a line without its end."""
        ...

    def batch(self, at: float, told: Sequence[Told]) -> str:
        """Lines of one instant (Unix seconds), each with its end."""
        ...


class Lines(logging.Handler):
    """Where all lines of a process go. `tell` takes many at once; it and `emit` return without waiting for anything.

    A stream without a file descriptor (a test's) is written to directly.
    """

    def __init__(self, form: Form, stream: TextIO, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._form = form
        self._stream = stream
        self._clock = clock
        descriptor = _descriptor(stream)
        self._writer = None if descriptor is None else LineWriter(descriptor, self._gap)

    @property
    def dropped(self) -> int:
        """How many lines were not written so far."""
        return 0 if self._writer is None else self._writer.dropped

    def handle(self, record: logging.LogRecord) -> bool:
        """Write a record's line if no filter is against it, without the lock that `logging` holds for that.

        The writer has one of its own. Under two, garbage that is collected on the writer's thread and has something to
        tell would wait for whoever tells something and waits for the writer.
        """
        passed = bool(self.filter(record))
        if passed:
            self.emit(record)
        return passed

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record's line. Of a record that cannot be formatted only its logger is told."""
        try:
            line = self._form.format(record)
        except Exception as fault:  # noqa: BLE001 - a line that fails must not end what wanted to tell it
            about: dict[str, object] = {"detail": f"{record.name}: {type(fault).__name__}"}
            line = self._form.batch(self._clock(), [Told(logging.ERROR, "log_line_failed", about)]).removesuffix("\n")
        self._put(line + "\n", 1, important=record.levelno >= logging.WARNING)

    def tell(self, told: Sequence[Told]) -> None:
        """Write many lines of one instant, formatted together."""
        important = any(each.level >= logging.WARNING for each in told)
        self._put(self._form.batch(self._clock(), told), len(told), important=important)

    def flush(self) -> None:
        """Wait for the stream, at most `FLUSH_SECONDS`."""
        if self._writer is not None:
            self._writer.flush(FLUSH_SECONDS)

    def close(self) -> None:
        """Write what is left and end the thread that writes; within `FLUSH_SECONDS`."""
        if self._writer is not None:
            self._writer.close(FLUSH_SECONDS)
        super().close()

    def _put(self, text: str, count: int, *, important: bool) -> None:
        if self._writer is None:
            self._stream.write(text)
            self._stream.flush()
        else:
            self._writer.write(text.encode("utf-8", "backslashreplace"), count, important=important)

    def _gap(self, count: int) -> bytes:
        return self._form.batch(self._clock(), [Told(logging.WARNING, "log_lines_dropped", {"count": count})]).encode()


def configure(
    log_format: LogFormat | None, level: LogLevel, stream: TextIO | None = None, *, process: str = "relay"
) -> Lines:
    """Send every record of this process to `stream` (stderr if None), in place of whatever was set up before.

    Without a format it is text on a terminal and JSON elsewhere. `process` says in JSON which of those that share the
    stream it is. Servers must not set up logging of their own (uvicorn: `log_config=None`); their lines about single
    requests are shown at `debug` only.
    """
    stream = sys.stderr if stream is None else stream
    terminal = stream.isatty()
    chosen = log_format or (LogFormat.TEXT if terminal else LogFormat.JSON)
    coloured = terminal and not os.environ.get("NO_COLOR")
    lines = Lines(JsonLines(process) if chosen is LogFormat.JSON else TextLines(coloured=coloured), stream)
    root = logging.getLogger()
    root.handlers[:] = [lines]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = []
        logger.propagate = True
    logging.getLogger("uvicorn.access").setLevel(logging.NOTSET if level is LogLevel.DEBUG else logging.WARNING)
    for name in _UNHEARD:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.captureWarnings(capture=True)
    return lines


def catch_uncaught() -> None:
    """Have exceptions that nobody caught, in the main program, a thread or a destructor, come out as lines."""
    logger = logging.getLogger("relay")

    def of_program(kind: type[BaseException], error: BaseException, _: object) -> None:
        if issubclass(kind, KeyboardInterrupt):
            return
        logger.critical("uncaught_exception", exc_info=error)

    def of_thread(hook: threading.ExceptHookArgs) -> None:
        thread = "" if hook.thread is None else hook.thread.name
        logger.error("thread_ended_by_bug", exc_info=hook.exc_value, extra={"fields": {"thread": thread}})

    def of_destructor(hook: sys.UnraisableHookArgs) -> None:
        where = {"detail": f"{hook.err_msg or 'ignored'}: {type(hook.object).__name__}"}
        logger.error("exception_ignored", exc_info=hook.exc_value, extra={"fields": where})

    sys.excepthook, threading.excepthook, sys.unraisablehook = of_program, of_thread, of_destructor


class JsonLines(logging.Formatter):
    """One JSON object a line: `at`, `level`, `event`, `process`, `pid`, `logger` where it is not Relay's own, then the
    fields. Whatever is not visible ASCII is escaped."""

    def __init__(self, process: str = "relay") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line without its end."""
        line = self._line(_instant(record.created), record.levelno, *_named(record))
        if not _is_ours(record):
            line["logger"] = record.name
        line |= _fields(record)
        if trace := _trace(self, record):
            line["traceback"] = trace
        return redact(_json([line])).removesuffix("\n")

    def batch(self, at: float, told: Sequence[Told]) -> str:
        """Lines of one instant, each with its end."""
        instant = _instant(at)
        return redact(_json([self._line(instant, level, name, fields) for level, name, fields in told]))

    def _line(self, instant: str, level: int, name: str, fields: Mapping[str, object]) -> dict[str, object]:
        return {
            "at": instant,
            "level": _LEVEL_NAMES.get(level) or logging.getLevelName(level).lower(),
            "event": name,
            "process": self._process,
            "pid": os.getpid(),
            **fields,
        }


class TextLines(logging.Formatter):
    """Time, level, what happened, then the fields as `name=value`; a traceback follows on lines of its
    own."""

    def __init__(self, *, coloured: bool = False) -> None:
        super().__init__()
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line, or several with a traceback, without the last end."""
        name, fields = _named(record)
        words = self._words(_instant(record.created), record.levelno, name)
        if not _is_ours(record):
            words.append(f"logger={_quoted(record.name)}")
        words += _said(fields | _fields(record))
        trace = _trace(self, record)
        return redact(" ".join(words) + "".join(f"\n  {_printable(part)}" for part in trace.splitlines()))

    def batch(self, at: float, told: Sequence[Told]) -> str:
        """Lines of one instant, each with its end."""
        instant = _instant(at)
        lines = [[*self._words(instant, level, name), *_said(fields)] for level, name, fields in told]
        return redact("".join([" ".join(line) + "\n" for line in lines]))

    def _words(self, instant: str, level: int, name: str) -> list[str]:
        words = [instant, f"{logging.getLevelName(level):<7}", _printable(name)]
        if self._coloured:
            words[0] = f"{_DIM}{words[0]}{_PLAIN}"
            words[1] = f"{_COLOURS.get(level, '')}{words[1]}{_PLAIN}"
        return words


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):  # none, closed, or something that only looks like a stream
        return None


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name == "relay" or record.name.startswith("relay.")


def _named(record: logging.LogRecord) -> tuple[str, dict[str, object]]:
    """The name of what happened, and the text of who has no name for it."""
    if _is_ours(record):
        return record.getMessage(), {}
    return LIBRARY_MESSAGE, {"message": record.getMessage()}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = getattr(record, "fields", None)
    return dict(fields) if isinstance(fields, Mapping) else {}


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


def _json(lines: Sequence[Mapping[str, object]]) -> str:
    """The lines as JSON, each with its end; only visible ASCII."""
    try:
        encoded = _ENCODER.encode_lines(lines)
    except (TypeError, ValueError, OverflowError):  # what JSON has no form for, and halves of characters
        encoded = _ENCODER.encode_lines([{_whole(name): _whole(line[name]) for name in line} for line in lines])
    text = encoded.decode()
    return text if text.isascii() and "\x7f" not in text else _NOT_PLAIN.sub(_escaped, text)


def _whole(value: object) -> str | int | float | None:
    if value is None or isinstance(value, int | float):
        return value if isinstance(value, float | None) or value.bit_length() < 64 else str(value)
    return str(value).encode("utf-8", "backslashreplace").decode()


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0]).strip('"') if found[0] != "\x7f" else "\\u007f"


def _said(fields: Mapping[str, object]) -> Iterable[str]:
    return [f"{name}={_quoted(value)}" for name, value in fields.items() if value is not None]


def _printable(text: str) -> str:
    """Text without what could end the line or steer a terminal."""
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    )


def _quoted(value: object) -> str:
    if isinstance(value, float) and not isfinite(value):
        return "none"
    text = str(value) if not isinstance(value, tuple | list) else ",".join(map(str, value))
    plain = text.isprintable() and text and not set(text) & set(' "=')
    return text if plain else json.dumps(text)
