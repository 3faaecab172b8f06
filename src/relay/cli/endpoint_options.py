"""What `relay endpoints add` and `change` can be told of an endpoint, and the request body that it becomes.

Owns the options and the names that the API has for them. Invariant: what nobody named is not in the body, so that the
API's defaults, or the values in force, stand; no credential has to be on the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import click

from relay.cli.options import pairs
from relay.cli.pointers import in_words_of
from relay.cli.stdin import read_stdin
from relay.cli.streams import Streams

F = TypeVar("F", bound=Callable[..., Any])

_SIGNATURES = (
    "By whose rules requests are signed: Relay's own, those of Standard Webhooks (standardwebhooks, svix), Stripe's or"
    " GitHub's; or not at all."
)
_RETRY_NUMBERS: Mapping[str, type[int | float]] = {
    "max_attempts": int,
    "base_seconds": float,
    "max_seconds": float,
    "window_seconds": float,
}

_OPTIONS = {
    "url": "--url",
    "name": "--name",
    "event_types": "--event-type",
    "rate_per_second": "--rate",
    "burst": "--burst",
    "max_in_flight": "--max-in-flight",
    "timeout_seconds": "--timeout",
    "ack": "--ack",
    "signature": "--signature",
    "headers": "--header",
    "retry": "--retry",
    "secret": "--secret-file",
}
"""The members of a request's body, and the options that stand for them."""


class _Setting(NamedTuple):
    """An option of `add` and `change`; `default` is what counts where an endpoint is added without it."""

    flags: tuple[str, ...]
    help: str
    default: str = ""
    attributes: Mapping[str, Any] = MappingProxyType({})


_SETTINGS = (
    _Setting(("--name",), "Name, unique; it is the consumer in metrics.", "made from the host"),
    _Setting(
        ("--event-type", "--type", "types"),
        "Event types it gets; may be repeated.",
        "all",
        {"multiple": True, "metavar": "PATTERN"},
    ),
    _Setting(("--rate",), "Requests per second, at most, over all dispatchers.", "10; for a chat 2", {"type": float}),
    _Setting(("--burst",), "Requests at once after a pause.", "20; for a chat 3", {"type": int}),
    _Setting(
        ("--max-in-flight",),
        "Requests under way, per dispatcher process.",
        "RELAY_ENDPOINT_CONCURRENCY (32); for a chat 1",
        {"type": int},
    ),
    _Setting(
        ("--timeout",),
        "Seconds for one attempt, and for its longest silence.",
        "RELAY_TOTAL_TIMEOUT_SECS (10), and RELAY_READ_TIMEOUT_SECS (5) of silence",
        {"type": float},
    ),
    _Setting(
        ("--ack",),
        "What proves that an event was processed: its 2xx, or a call of its own (explicit).",
        "response",
        {"type": click.Choice(["response", "explicit"])},
    ),
    _Setting(
        ("--signature",),
        _SIGNATURES,
        "relay; for a chat none",
        {"type": click.Choice(["relay", "standard", "stripe", "github", "none"])},
    ),
    _Setting(
        ("--header", "headers"),
        "A header of yours; may be repeated.",
        attributes={"multiple": True, "metavar": "NAME:VALUE"},
    ),
    _Setting(
        ("--header-file", "header_files"),
        "A header whose value stands in a file, as for a credential; may be repeated.",
        attributes={"multiple": True, "metavar": "NAME=FILE|-"},
    ),
    _Setting(
        ("--preset",),
        "Retry over three days instead of half an hour.",
        attributes={"type": click.Choice(["patient"])},
    ),
    _Setting(
        ("--retry",),
        "A number of an own retry rule, max_attempts, base_seconds, max_seconds or window_seconds; may be repeated."
        " What is not named is the installation's (RELAY_RETRY_*).",
        attributes={"multiple": True, "metavar": "NUMBER=VALUE"},
    ),
)


def settings_options(*, defaults: bool) -> Callable[[F], F]:
    """Add the options of `add` and `change`; with `defaults` they say what counts where they are not given."""

    def decorate(command: F) -> F:
        for each in reversed(_SETTINGS):
            text = f"{each.help} Default: {each.default}." if defaults and each.default else each.help
            command = click.option(*each.flags, help=text, **each.attributes)(command)
        return command

    return decorate


def secret_option(help_text: str) -> Callable[[F], F]:
    """Add `--secret-file`."""
    return click.option("--secret-file", type=click.Path(allow_dash=True), metavar="FILE|-", help=help_text)


def read_body(given: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
    """The request body: only what was given. Raises `click.UsageError`."""
    headers = _headers(given, streams)
    body = {
        "url": given["url"],
        "name": given["name"],
        "event_types": list(given["types"]) or None,
        "rate_per_second": given["rate"],
        "burst": given["burst"],
        "max_in_flight": given["max_in_flight"],
        "timeout_seconds": given["timeout"],
        "ack": given["ack"],
        "signature": given["signature"],
        "headers": headers or None,
        "retry": _retry(given["preset"], given["retry"]) or None,
        "secret": read_secret(given["secret_file"], streams) if given.get("secret_file") else None,
    }
    return {name: value for name, value in body.items() if value is not None}


def read_secret(file: str, streams: Streams) -> str:
    """The text of a file, or of stdin for `-`, without the line's end. Raises `click.UsageError`."""
    try:
        text = (read_stdin(streams) if file == "-" else Path(file).read_bytes()).decode()
    except OSError as fault:
        raise click.UsageError(f"{file} cannot be read: {fault.strerror}.") from fault
    except UnicodeDecodeError as fault:
        raise click.UsageError(f"{file} holds no text.") from fault
    return text.rstrip("\r\n")


def changed_headers(known: Mapping[str, str], given: Mapping[str, str], removed: Iterable[str]) -> dict[str, str]:
    """All headers after a change: the API takes them as a whole, and stars for values that stay what they are."""
    gone = {name.lower() for name in (*removed, *given)}
    return {**{name: value for name, value in known.items() if name.lower() not in gone}, **given}


@contextmanager
def in_words_of_options() -> Iterator[None]:
    """What Relay refuses inside the block is told by the names of the options, which is what a person has written."""
    with in_words_of(_OPTIONS):
        yield


def _headers(given: Mapping[str, Any], streams: Streams) -> dict[str, str]:
    files = pairs(given["header_files"], "=", "NAME=FILE")
    if [*files.values(), given.get("secret_file")].count("-") > 1:
        raise click.UsageError("Only one value can come from stdin: put the others into files.")
    read = {name: read_secret(file, streams) for name, file in files.items()}
    return {**pairs(given["headers"], ":", "NAME:VALUE"), **read}


def _retry(preset: str | None, numbers: Iterable[str]) -> dict[str, Any]:
    rule: dict[str, Any] = {} if preset is None else {"preset": preset}
    for name, text in pairs(numbers, "=", "NUMBER=VALUE").items():
        number = _RETRY_NUMBERS.get(name)
        if number is None:
            raise click.BadParameter(f"{name!r} is none of {', '.join(_RETRY_NUMBERS)}.", param_hint="--retry")
        try:
            rule[name] = number(text)
        except ValueError:
            raise click.BadParameter(f"{text!r} is no number for {name}.", param_hint="--retry") from None
    return rule
