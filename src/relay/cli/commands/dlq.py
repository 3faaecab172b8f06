"""`relay dlq`: the dead letters, which wait for a person.

Owns the arguments, the question before a change of many, and the batches of one. Invariant: what is changed is at most
what was dead when the command began, so letters that die again meanwhile are not sent in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import click

from relay.cli.client import Client, connect
from relay.cli.failures import CommandFailed
from relay.cli.listing import INSTANT, WHEN, length_options, listed
from relay.cli.naming import call_once
from relay.cli.options import example, json_option
from relay.cli.progress import Progress
from relay.cli.reading import read_settings
from relay.cli.rendering import show, table
from relay.cli.stdin import agrees, has_somebody
from relay.cli.streams import Streams

F = TypeVar("F", bound=Callable[..., Any])

PATH = "/v1/dead-letters"

REASONS = ("exhausted", "permanent_failure", "refused", "no_route", "too_large", "endpoint_removed")

BATCH = 1_000
"""How many one call changes: a second's work."""

MOST_IDLE = 3
"""After so many calls in a row that found others at the same letters, those are left to them."""

MOST_COUNTED = 10_000
"""How far one call counts."""

_DONE = {"redrive": "re-driven", "discard": "discarded"}
_TO_DO = {"redrive": "Re-drive", "discard": "Discard, for good,"}

Filters = dict[str, str | None]


class Counted(NamedTuple):
    """How many there are, or (`more`) that there are more than so many."""

    known: int
    more: bool

    def __str__(self) -> str:
        """In words."""
        return f"more than {self.known}" if self.more else str(self.known)


def filter_options(command: F) -> F:
    """Add what chooses dead letters."""
    for option in (
        click.option("--since", type=INSTANT, metavar="WHEN", help=f"Dead since {WHEN}, or later."),
        click.option("--type", metavar="PATTERN", help="Of such events: invoice.paid, or 'invoice.*'."),
        click.option("--reason", type=click.Choice(REASONS), help="Dead for this reason."),
        click.option("--consumer", metavar="NAME", help="Owed to this endpoint, also to one that was removed."),
    ):
        command = option(command)
    return command


def change_options(command: F) -> F:
    """Add what a change of many may be told."""
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Count them, and change nothing."),
        click.option("--limit", type=click.IntRange(1), metavar="N", help="So many at most, the oldest first."),
    ):
        command = option(command)
    return command


@click.group("dlq", epilog=example("relay dlq list"))
def command() -> None:
    """List, re-drive and discard dead letters: deliveries that wait for a person."""


@command.command("list", epilog=example("relay dlq list --consumer ledger --since 1d"))
@filter_options
@length_options
@json_option
@click.pass_obj
def list_all(streams: Streams, /, limit: int | None, **filters: str | None) -> None:
    """List dead letters, the newest first. One without a delivery is an event that no endpoint subscribed to."""
    with connect(read_settings()) as relay:
        letters = listed(relay, PATH, filters, limit, streams)
    if streams.json:
        streams.document(letters)
        return
    if not letters:
        streams.line("no such dead letters" if any(filters.values()) else "no dead letters")
        return
    columns = ("dead at", "receipt", "delivery", "consumer", "type", "reason", "attempts", "last error")
    names = ("dead_at", "receipt_id", "delivery_id", "consumer", "type", "reason", "attempts", "last_error")
    rows = [[letter[name] for name in names] for letter in letters]
    show(streams, table(columns, rows, prose=("last error",), optional=columns[2:]))


@command.command("redrive", epilog=example("relay dlq redrive --consumer ledger --reason exhausted"))
@filter_options
@change_options
@json_option
@click.pass_obj
def redrive(streams: Streams, /, limit: int | None, dry_run: bool, yes: bool, **filters: str | None) -> None:
    """Send dead letters again, once what killed them is mended. Without a filter: all of them.

    Before more than one is sent a person at a terminal is asked. What removed endpoints are owed is left out, and so
    are events that still no endpoint subscribes to. A run that was interrupted may be started again.
    """
    _change("redrive", streams, filters, limit, dry_run=dry_run, yes=yes or not has_somebody())


@command.command("discard", epilog=example("relay dlq discard --reason endpoint_removed --dry-run"))
@filter_options
@change_options
@json_option
@click.pass_obj
def discard(streams: Streams, /, limit: int | None, dry_run: bool, yes: bool, **filters: str | None) -> None:
    """Give dead letters up: they are in no list any more, and their receipts close as incomplete.

    Before more than one is discarded a person is asked, or --yes is given.
    """
    _change("discard", streams, filters, limit, dry_run=dry_run, yes=yes)


def _change(what: str, streams: Streams, filters: Filters, limit: int | None, *, dry_run: bool, yes: bool) -> None:
    """Change what is dead now and wanted. Raises `CommandFailed`."""
    body = {name: value for name, value in filters.items() if value is not None}
    with connect(read_settings()) as relay:
        counted = _count(relay, what, body, limit)
        if dry_run:
            _tell(
                streams,
                {"dry_run": True, "count": counted.known, "more": counted.more},
                f"{counted} would be {_DONE[what]}",
            )
            return
        if counted.known > 1 and not yes:
            up_to = f", {limit} at most" if counted.more and limit is not None else ""
            _ask(f"{_TO_DO[what]} {counted} dead letters{up_to}?", _DONE[what])
        changed = _in_batches(relay, what, body, counted, limit, streams)
    _tell(streams, {"dry_run": False, "count": changed}, f"{changed} {_DONE[what]}")


def _ask(question: str, done: str) -> None:
    if not has_somebody():
        raise click.UsageError("There is nobody to ask: add --yes.")
    if not agrees(question):
        raise CommandFailed(f"nothing is {done}")


def _count(relay: Client, what: str, body: dict[str, str], limit: int | None = None) -> Counted:
    """How many there are now, but no more than `limit`, and no further than `MOST_COUNTED`."""
    most = MOST_COUNTED if limit is None else min(limit, MOST_COUNTED)
    count, more = 0, True
    place: dict[str, str] = {}
    while more and count < most:
        wanted = {**body, **place, "limit": most - count, "dry_run": True}
        answer = relay.call("POST", f"{PATH}/{what}", body=wanted)
        count, following = count + int(answer["count"]), answer.get("next_cursor")
        more = bool(answer["more"])
        if following is None:
            break
        place = {"cursor": following}
    return Counted(count, more and count != limit)


def _in_batches(
    relay: Client, what: str, body: dict[str, str], counted: Counted, limit: int | None, streams: Streams
) -> int:
    """Change what was counted, batch by batch, each under a name of its own; answers how many were changed."""
    changed, idle, more = 0, 0, counted.known > 0
    place: dict[str, str] = {}
    with Progress(streams, _DONE[what], None if counted.more else counted.known, short=BATCH) as progress:
        for allowed in _rounds(relay, what, body, counted, limit, streams):
            end = changed + allowed
            while more and changed < end and idle < MOST_IDLE:
                wanted = {**body, **place, "limit": min(BATCH, end - changed)}
                try:
                    answer = call_once(relay, f"{PATH}/{what}", wanted)
                except CommandFailed as fault:
                    if not changed:
                        raise
                    told = f"{changed} of {counted} are {_DONE[what]}, then: {fault}; run it again"
                    raise CommandFailed(told) from fault
                changed, more = changed + answer["count"], answer["more"]
                following = answer.get("next_cursor")
                # a call that got on without a find has looked at a stretch of others' letters
                idle = 0 if answer["count"] or following else idle + 1
                place = {"cursor": following} if following else {}
                streams.done(f"{changed} dead letters are {_DONE[what]}")
                progress.to(changed)
            if changed < end:
                break
    return changed


def _rounds(
    relay: Client, what: str, body: dict[str, str], counted: Counted, limit: int | None, streams: Streams
) -> Iterator[int]:
    """How many may be changed, and after those how many more, until none is left of what was dead at first.

    The oldest are changed first. So what may be changed is what is dead, without what has died since.
    """
    newest = next(relay.pages(PATH, body, size=1), None) if counted.more else None
    if newest is None:
        yield counted.known
        return
    # listed instants are cut off to milliseconds
    since = {**body, "since": (datetime.fromisoformat(newest["dead_at"]) + timedelta(milliseconds=1)).isoformat()}
    rest, changed = counted.known, 0
    while rest > 0:
        yield rest
        changed += rest
        dead, new = _count(relay, what, body), _count(relay, what, since)
        rest = dead.known - new.known
        if limit is not None:
            rest = min(rest, limit - changed)
        elif dead.more and rest <= 0:
            streams.note(f"{new} have died meanwhile; run it again for what was dead before")


def _tell(streams: Streams, answer: dict[str, object], words: str) -> None:
    if streams.json:
        streams.document(answer)
    else:
        streams.line(words)
