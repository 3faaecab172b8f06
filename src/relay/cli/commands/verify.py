"""`relay verify`: the proof that nothing is missing, or what is.

Owns the showing. Invariant: the exit code is 0 only if everything was looked at and is right.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from relay.app.faults import CannotRun
from relay.app.installation import Installation, find
from relay.app.verification import verify
from relay.cli.failures import DONE, FAILED, WRONG_USAGE, CommandFailed
from relay.cli.options import example, json_option
from relay.cli.progress import LateBar
from relay.cli.reading import read_settings
from relay.cli.rendering import facts, show, table, words
from relay.cli.streams import Streams
from relay.domain.verification import MEANINGS, FaultKind, FaultsFound, Verification
from relay.settings import SettingsError

_SHOWN = 5
"""How many places of each kind of fault a person is shown; JSON has more of them."""

_QUICK = 100_000
"""So many steps are over in a second or two, and need no bar."""


@click.command("verify", epilog=example("relay verify --data ~/.local/share/relay"))
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the embedded database, which must run [RELAY_DATA_DIR].",
)
@json_option
@click.pass_obj
def command(streams: Streams, data: Path | None) -> int:
    """Prove that every event is there, whole and accounted for, or name what is wrong.

    Walks the journal: positions without gaps, payloads as they were hashed, a receipt for every event, every delivery
    of every receipt, a state that explains each. The system may be running. The database is that of DATABASE_URL, or
    the embedded one that runs in RELAY_DATA_DIR. Exit code 1 if anything is wrong.
    """
    settings = read_settings(command_line={} if data is None else {"RELAY_DATA_DIR": str(data)})
    try:
        found = _verified(find(settings), streams)
    except SettingsError as fault:
        raise CommandFailed(str(fault), WRONG_USAGE) from fault
    except CannotRun as fault:
        raise CommandFailed(str(fault)) from fault
    if streams.json:
        streams.document(document(found))
    else:
        _show(found, streams)
    if not found.ok:
        kinds = ", ".join(f"{each.kind} {each.count}" for each in found.faults)
        streams.fault(f"not everything is right and accounted for: {kinds or 'the sums differ'}")
    return DONE if found.ok else FAILED


def _verified(installation: Installation, streams: Streams) -> Verification:
    bar = LateBar(streams, "verified", short=_QUICK)
    try:
        return asyncio.run(verify(installation, bar.tell, streams.note))
    finally:
        bar.close()


def document(found: Verification) -> dict[str, Any]:
    """What was found, as JSON."""
    tally = found.tally
    return {
        "ok": found.ok,
        "events": tally.events,
        "partitions": [
            {
                "partition": each.partition,
                "first": each.first,
                "last": each.last,
                "gaps": each.gaps,
                "missing": each.missing,
                "pruned": each.pruned,
            }
            for each in found.partitions
        ],
        "gapless": found.gapless,
        "hash_mismatches": found.count(FaultKind.HASH_MISMATCH),
        "unaccounted": found.unaccounted,
        "matched": tally.matched,
        "delivered": tally.delivered,
        "waiting": tally.waiting,
        "dead": tally.dead,
        "discarded": tally.discarded,
        "no_route": tally.no_route,
        "void": tally.void,
        "faults": [{"fault": each.kind, "count": each.count, "first": each.first} for each in found.faults],
    }


def _show(found: Verification, streams: Streams) -> None:
    tally = found.tally
    dead = f"{tally.dead:,} dead" + (f" ({tally.discarded:,} given up)" if tally.discarded else "")
    pruned = sum(each.pruned for each in found.partitions)
    rows = [
        ("events", f"{tally.events:,}" + (f", and {tally.void:,} void" if tally.void else "")),
        ("positions", _positions(found) + (f"; {pruned:,} pruned" if pruned else "")),
        ("payloads", _number(found.count(FaultKind.HASH_MISMATCH), "hash mismatch", "hash mismatches")),
        ("deliveries", f"{tally.matched:,} = {tally.delivered:,} delivered + {tally.waiting:,} waiting + {dead}"),
        ("unaccounted", f"{found.unaccounted:,}"),
    ]
    show(streams, facts(rows))
    if found.faults:
        streams.line("")
        named = [(each.kind, f"{each.count:,}", MEANINGS[each.kind], _first(each)) for each in found.faults]
        show(streams, table(("fault", "count", "what it is", "where"), named, prose=("what it is", "where")))
    if found.ok:
        streams.line("")
        show(streams, words("Everything is there, whole and accounted for.", "bold green"))


def _positions(found: Verification) -> str:
    spans = ", ".join(f"p{each.partition:02d}:{each.first}-{each.last}" for each in found.partitions if each.first)
    return ("gapless" if found.gapless else "with gaps") + (f" ({spans})" if spans else "")


def _number(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _first(each: FaultsFound) -> str:
    return " ".join(each.first[:_SHOWN]) + (" …" if each.count > _SHOWN else "")
