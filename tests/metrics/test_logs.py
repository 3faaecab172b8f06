"""Claims about how log lines look and where they come from."""

import asyncio
import io
import json
import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from datetime import datetime
from math import nan
from typing import Any

import pytest
import uvicorn

from relay.domain.secret import Secret
from relay.metrics import logs
from relay.settings import LogFormat, LogLevel

WITHIN = 5.0


class Terminal(io.StringIO):
    """A stream that a person looks at."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
    for name in ("uvicorn.access", "urllib3", "opentelemetry"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture
def stream() -> io.StringIO:
    """Stand for a pipe to a collector."""
    return io.StringIO()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """The lines of a JSON stream."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_pipe_gets_json(stream: io.StringIO) -> None:
    logs.configure(None, LogLevel.INFO, stream)
    logging.getLogger("relay").info("leases_reaped", extra={"fields": {"count": 3}})
    (line,) = lines(stream)
    assert (line["level"], line["event"], line["count"]) == ("info", "leases_reaped", 3)


def test_a_terminal_gets_text() -> None:
    stream = Terminal()
    logs.configure(None, LogLevel.INFO, stream)
    logging.getLogger("relay").warning("leases_reaped", extra={"fields": {"count": 3}})
    assert "leases_reaped count=3\n" in stream.getvalue()


def test_either_form_can_be_forced(stream: io.StringIO) -> None:
    terminal = Terminal()
    logs.configure(LogFormat.JSON, LogLevel.INFO, terminal)
    logging.getLogger("relay").info("one")
    logs.configure(LogFormat.TEXT, LogLevel.INFO, stream)
    logging.getLogger("relay").info("two")
    assert lines(terminal)[0]["event"] == "one"
    assert stream.getvalue().endswith("INFO    two\n")


def test_only_a_terminal_is_given_colours(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    for target in (stream, terminal):
        logs.configure(LogFormat.TEXT, LogLevel.INFO, target)
        logging.getLogger("relay").error("broken")
    assert "\x1b" not in stream.getvalue()
    assert "\x1b[31mERROR" in terminal.getvalue()


def test_a_terminal_whose_owner_wants_no_colours_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    logs.configure(None, LogLevel.INFO, terminal)
    logging.getLogger("relay").error("broken")
    assert "\x1b" not in terminal.getvalue()


@pytest.mark.parametrize("log_format", LogFormat)
def test_a_line_has_its_time_in_utc_to_the_millisecond(stream: io.StringIO, log_format: LogFormat) -> None:
    logs.configure(log_format, LogLevel.INFO, stream)
    logging.getLogger("relay").info("now")
    text = stream.getvalue()
    at = json.loads(text)["at"] if log_format is LogFormat.JSON else text.split()[0]
    assert len(at) == len("2026-01-01T00:00:00.000Z")
    assert datetime.fromisoformat(at).utcoffset() is not None


def test_less_important_lines_than_the_level_are_not_written(stream: io.StringIO) -> None:
    logs.configure(None, LogLevel.WARNING, stream)
    logging.getLogger("relay").info("quiet")
    logging.getLogger("relay").warning("loud")
    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_setting_up_twice_writes_every_line_once(stream: io.StringIO) -> None:
    logs.configure(None, LogLevel.INFO, stream)
    logs.configure(None, LogLevel.INFO, stream)
    logging.getLogger("relay").info("once")
    assert len(lines(stream)) == 1


def test_a_server_and_the_loop_write_the_same_way(stream: io.StringIO) -> None:
    uvicorn.Config(app=lambda: None)  # sets up uvicorn's own handlers
    logs.configure(None, LogLevel.INFO, stream)
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 7)
    logging.getLogger("asyncio").error("Task exception was never retrieved")
    assert [(line["event"], line["logger"], line["message"]) for line in lines(stream)] == [
        ("library_message", "uvicorn.error", "Started server process [7]"),
        ("library_message", "asyncio", "Task exception was never retrieved"),
    ]


def test_an_error_nobody_waited_for_is_a_line(stream: io.StringIO) -> None:
    logs.configure(None, LogLevel.INFO, stream)
    loop = asyncio.new_event_loop()
    loop.call_exception_handler({"message": "callback failed", "exception": ValueError("no")})
    loop.close()
    (line,) = lines(stream)
    assert (line["logger"], line["level"]) == ("asyncio", "error")
    assert "ValueError: no" in line["traceback"]


def test_single_requests_are_for_debug_only(stream: io.StringIO) -> None:
    for level in (LogLevel.INFO, LogLevel.DEBUG):
        logs.configure(None, level, stream)
        logging.getLogger("uvicorn.access").info("GET /%s", level)
    assert [line["message"] for line in lines(stream)] == ["GET /debug"]


def test_a_warning_of_the_language_is_a_line(stream: io.StringIO) -> None:
    logs.configure(None, LogLevel.INFO, stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old ways", DeprecationWarning, stacklevel=1)
    assert "old ways" in lines(stream)[0]["message"]


HOSTILE = "x\ny=\u2028 z\x1b[1m \u202emoc.live\u202c \u2066a\u2069 \x9b2J \x07\x08\x7f\r\t\u200b\ufeff\x00 \udc80 end"
"""Line ends, a terminal's commands, signs that turn the direction of writing, a bell, half a character."""


@pytest.mark.parametrize("log_format", LogFormat)
def test_no_line_can_be_forged_and_no_terminal_steered(stream: io.StringIO, log_format: LogFormat) -> None:
    handler = logs.configure(log_format, LogLevel.INFO, stream)
    logging.getLogger("relay").info("said", extra={"fields": {"consumer": HOSTILE, "list": [HOSTILE]}})
    logging.getLogger(f"evil\n{HOSTILE}").warning(HOSTILE)
    logging.getLogger("relay").error("failed", exc_info=ValueError(HOSTILE))
    handler.tell([logs.Told(logging.INFO, "delivery_acked", {"event_type": HOSTILE, "event_id": HOSTILE})])
    text = stream.getvalue()
    assert text.splitlines() == text.split("\n")[:-1]
    assert text.isprintable() or set(text) - set("\n") == {c for c in text if c.isprintable()}
    assert text.count(" end") == 7


def test_a_consumer_of_any_language_is_itself_again_when_json_is_read(stream: io.StringIO) -> None:
    logs.configure(None, LogLevel.INFO, stream)
    logging.getLogger("relay").info("said", extra={"fields": {"consumer": "Zürich 東京 😀"}})
    assert stream.getvalue().isascii()
    assert lines(stream)[0]["consumer"] == "Zürich 東京 😀"


def test_a_traceback_is_a_field_of_one_line(stream: io.StringIO) -> None:
    logs.configure(None, LogLevel.INFO, stream)
    logging.getLogger("relay").error("failed", exc_info=ValueError("first\nsecond"))
    (line,) = lines(stream)
    assert line["traceback"].splitlines() == ["ValueError: first", "second"]


def test_a_thread_that_dies_has_a_line_with_its_trace(stream: io.StringIO) -> None:
    logs.configure(None, LogLevel.INFO, stream)
    logs.catch_uncaught()
    thread = threading.Thread(target=lambda: 1 // 0, name="sweeper")
    thread.start()
    thread.join()
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["thread"]) == ("thread_ended_by_bug", "error", "sweeper")
    assert "ZeroDivisionError" in line["traceback"]


def test_a_program_that_dies_has_a_line_with_its_trace(stream: io.StringIO) -> None:
    logs.configure(None, LogLevel.INFO, stream)
    logs.catch_uncaught()
    sys.excepthook(ValueError, ValueError("no"), None)
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["traceback"]) == ("uncaught_exception", "critical", "ValueError: no")


def test_an_exception_in_a_destructor_has_a_line(stream: io.StringIO) -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError("in the end")

    logs.configure(None, LogLevel.INFO, stream)
    logs.catch_uncaught()
    broken = Broken()
    del broken
    (line,) = lines(stream)
    assert (line["event"], "in the end" in line["traceback"]) == ("exception_ignored", True)


def test_a_record_that_cannot_be_formatted_costs_its_line_and_tells_nothing_of_its_arguments(
    stream: io.StringIO,
) -> None:
    logs.configure(None, LogLevel.INFO, stream)
    logging.getLogger("some.library").warning("%d", "hunter2")
    (line,) = lines(stream)
    assert (line["event"], line["detail"]) == ("log_line_failed", "some.library: TypeError")
    assert "hunter2" not in stream.getvalue()


def test_a_thread_that_makes_a_line_keeps_no_other_from_writing_one() -> None:
    # the writer's thread is one too: a destructor that fails on it may have something to tell while it holds its lock
    out, into = os.pipe()
    told, asked = threading.Event(), threading.Event()

    class Slow:
        def __str__(self) -> str:
            asked.set()
            told.wait(WITHIN)
            return "slow"

    def tell_quickly() -> None:
        logger.info("quick")
        told.set()

    logger = logging.getLogger("relay")
    with os.fdopen(into, "w", encoding="utf-8") as stream:
        told_by = logs.configure(LogFormat.JSON, LogLevel.INFO, stream)
        slow = threading.Thread(target=logger.info, args=("%s", Slow()))
        slow.start()
        asked.wait(WITHIN)
        quick = threading.Thread(target=tell_quickly)
        quick.start()
        quick.join(WITHIN)
        came = told.is_set()
        told.set()
        slow.join(WITHIN)
        told_by.close()
    with os.fdopen(out, encoding="utf-8") as read:
        assert came
        assert [json.loads(line)["event"] for line in read] == ["quick", "slow"]


def test_lines_told_together_look_like_lines_told_alone(stream: io.StringIO) -> None:
    told = logs.Told(logging.WARNING, "leases_reaped", {"count": 3, "reason": "two words", "none": None})
    for form in LogFormat:
        handler = logs.configure(form, LogLevel.INFO, stream)
        handler.tell([told, told])
        logging.getLogger("relay").warning(told.name, extra={"fields": told.fields})
    texts = [re.sub(r"[0-9-]+T[0-9:.]+Z", "", line) for line in stream.getvalue().splitlines()]
    assert (len(set(texts[:3])), len(set(texts[3:]))) == (1, 1)


def test_a_field_that_is_no_plain_word_is_quoted(stream: io.StringIO) -> None:
    logs.configure(LogFormat.TEXT, LogLevel.INFO, stream)
    logging.getLogger("relay").info("said", extra={"fields": {"plain": "word", "spaced": "two words", "empty": ""}})
    assert stream.getvalue().endswith('said plain=word spaced="two words" empty=""\n')


def test_what_is_no_number_is_null_in_json(stream: io.StringIO) -> None:
    logs.configure(None, LogLevel.INFO, stream)
    logging.getLogger("relay").info("measured", extra={"fields": {"age": nan}})
    assert lines(stream)[0]["age"] is None


@pytest.mark.parametrize("log_format", LogFormat)
def test_no_secret_reaches_a_line_in_any_way(stream: io.StringIO, log_format: LogFormat) -> None:
    logs.configure(log_format, LogLevel.DEBUG, stream)
    secret = Secret("hunter2hunter2")
    logger = logging.getLogger("relay.somewhere")
    logger.info(
        "secret %s %r", secret, secret, extra={"fields": {"one": secret, "more": [secret], "map": {"k": secret}}}
    )
    failure = ConnectionError("postgresql://relay:hunter2@db/relay refused, Authorization: Bearer hunter2hunter2")
    logger.error("failed with %s", "https://h/?token=hunter2", exc_info=failure)
    assert "failed with" in stream.getvalue()
    assert "ConnectionError" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()
