"""`relay keys reencrypt`: bring every stored secret under the newest key.

Owns the output. Invariant: the exit code is 0 only if every secret that somebody signs with can be read.
"""

from __future__ import annotations

import asyncio
from typing import Any

import click

from relay.app.faults import CannotRun
from relay.app.key_notes import called
from relay.app.reencryption import Reencrypted, reencrypt
from relay.cli.failures import DONE, FAILED, WRONG_USAGE, CommandFailed
from relay.cli.options import example, json_option
from relay.cli.progress import LateBar
from relay.cli.reading import read_settings
from relay.cli.streams import Streams
from relay.cli.text import printable
from relay.domain import ids
from relay.settings import SettingsError
from relay.store.reencryption import StoredKey, User

_QUICK = 2_000
"""So many secrets are done in a moment, and need no bar."""

_NAMED = 20
"""So many of those with unreadable secrets are named on stderr; JSON has all."""

_KINDS = {"endpoint": ids.ENDPOINT, "source": ids.SOURCE}


@click.command(
    "reencrypt",
    epilog=example('RELAY_SECRET_KEYS="$NEW,$OLD" relay keys reencrypt', "relay keys reencrypt --give-up"),
)
@click.option("--give-up", is_flag=True, help="Let Relay start without keys that are lost.")
@json_option
@click.pass_obj
def reencrypt_secrets(streams: Streams, give_up: bool) -> int:
    """Bring every stored secret under the newest key of RELAY_SECRET_KEYS.

    It works straight on the database while gateways and dispatchers run, all of which have the new key by then. It may
    be ended at any moment and run again. It names the keys that are not needed any more. Exit code 1 if there are
    secrets that no key opens: whose they are is told, and the rest is done. Where their key is lost, --give-up has
    Relay start without it; whose secrets they were needs new ones.
    """
    settings = read_settings()
    bar = LateBar(streams, "re-encrypted", short=_QUICK)
    try:
        found = asyncio.run(reencrypt(settings, give_up=give_up, tell=bar.tell, say=streams.note))
    except SettingsError as fault:
        raise CommandFailed(str(fault), WRONG_USAGE) from fault
    except CannotRun as fault:
        raise CommandFailed(str(fault)) from fault
    finally:
        bar.close()
    streams.done("the secrets are re-encrypted")
    if streams.json:
        streams.document(_document(found))
    else:
        for line in _lines(found):
            streams.line(line)
    if advice := _advice(found):
        streams.note(advice)
    if found.unreadable or found.lost:
        streams.fault(_trouble(found))
    return DONE if give_up or not (found.unreadable or found.lost) else FAILED


def _lines(found: Reencrypted) -> list[str]:
    """What was done, and which keys can go."""
    retired = [called(key) for key in found.keys if key.is_retired]
    if len(found.keys) == 1 and not found.given_up:
        return ["there is one key in RELAY_SECRET_KEYS, or in the key file; nothing to do"]
    lines = [f"{_number(found.sealed_anew)} re-encrypted, and all that can be read are under key 1"]
    if retired:
        rest = "remove it from RELAY_SECRET_KEYS, or from the key file, and leave the others"
        lines += [f"{each}, is not needed any more: {rest}" for each in retired]
    if found.given_up:
        lines.append(f"{found.given_up} lost key{'' if found.given_up == 1 else 's'} given up: Relay starts without")
    return lines


def _advice(found: Reencrypted) -> str | None:
    """What to think of before a key is removed that nothing was ever sealed with; None if there is none."""
    if not found.never_used:
        return None
    names = " and ".join(called(key) for key in found.never_used)
    if found.sealed_anew:
        return f"{names}, never sealed anything: keep it if it is the next one"
    return f"the front key is the one already in use, and {names}, never sealed anything: is the new one in front?"


def _document(found: Reencrypted) -> dict[str, Any]:
    return {
        "reencrypted": found.sealed_anew,
        "unreadable": [
            {
                "kind": each.kind,
                "id": ids.write(_KINDS[each.kind], each.id),
                "tenant": each.tenant,
                "name": each.name,
                "secret": "previous" if each.is_previous else "current",
            }
            for each in found.unreadable
        ],
        "unreadable_unused": found.unused,
        "lost_keys": found.lost + found.given_up,
        "given_up_keys": found.given_up,
        "keys": [
            {"position": key.position, "fingerprint": key.fingerprint, "state": _state(key)} for key in found.keys
        ],
    }


def _state(key: StoredKey) -> str:
    if key.is_retired:
        return "retired"
    if key.position == 1:
        return "in_force"
    return "sealed" if key.has_sealed else "never_used"


def _trouble(found: Reencrypted) -> str:
    """What cannot be read, and what to do, in one line."""
    users = [printable(_called(each)) for each in found.unreadable[:_NAMED]]
    more = ", …" if len(found.unreadable) > _NAMED else ""
    what = f"{_number(len(found.unreadable))} cannot be read by any key ({', '.join(users)}{more})"
    if not found.lost:
        return f"{what}: give each a new one by `relay endpoints rotate-secret` or `relay sources rotate`"
    return (
        f"{what}: add the key that sealed them to RELAY_SECRET_KEYS; if it is lost, `relay keys reencrypt --give-up`,"
        " then give each a new one by `relay endpoints rotate-secret` or `relay sources rotate`"
    )


def _called(user: User) -> str:
    return f"{user.kind} {user.name} of {user.tenant}{', its previous one' if user.is_previous else ''}"


def _number(secrets: int) -> str:
    return f"{secrets:,} secret{'' if secrets == 1 else 's'}"
