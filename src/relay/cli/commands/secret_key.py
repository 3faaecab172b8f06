"""`relay secret-key`: a new key for stored secrets.

Owns nothing but the output. It is the bare key when piped, too: what it is made for is a file.
"""

from __future__ import annotations

import click

from relay.app.faults import CannotRun
from relay.app.installation import KEY_FILE, add_key
from relay.cli.failures import CommandFailed
from relay.cli.options import example, json_option
from relay.cli.reading import read_settings
from relay.cli.streams import Streams
from relay.store.vault import new_key


@click.command("secret-key", epilog=example("(umask 077; relay secret-key > relay.key)", "relay secret-key --add"))
@click.option("--add", is_flag=True, help="Put it first in the key file of RELAY_DATA_DIR instead of printing it.")
@json_option
@click.pass_obj
def command(streams: Streams, add: bool) -> None:
    """Print a new key for RELAY_SECRET_KEYS.

    Keep it in a file that only its owner reads: without it no stored secret opens again. The first key encrypts, all
    decrypt. To change keys, restart every gateway and dispatcher with `old,new`, so that all can open what the new one
    seals, then with `new,old`, then run `relay keys reencrypt` with `new,old` (docs/credentials.md). With an embedded
    database the keys are in its data folder; --add puts a new one first there. Restart `relay up`, then run `relay keys
    reencrypt`.
    """
    if add:
        _add(streams)
        return
    key = new_key().expose()
    if streams.json_asked:
        streams.document({"key": key})
    else:
        streams.line(key)


def _add(streams: Streams) -> None:
    settings = read_settings()
    if settings.database_url is not None or settings.secret_keys is not None:
        raise click.UsageError(
            "DATABASE_URL or RELAY_SECRET_KEYS is set: then the keys stand in RELAY_SECRET_KEYS alone."
        )
    folder = settings.data_dir.expanduser().absolute()
    try:
        keys = add_key(folder)
    except CannotRun as fault:
        raise CommandFailed(str(fault)) from fault
    streams.done("the key is added")
    if streams.json_asked:
        streams.document({"file": str(folder / KEY_FILE), "keys": keys})
    else:
        streams.line(f"a new key is the first of {keys} in {folder / KEY_FILE}: restart `relay up`")
