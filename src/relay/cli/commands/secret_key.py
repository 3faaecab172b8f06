"""`relay secret-key`: a new key for stored secrets.

Owns nothing but the output. It is the bare key when piped, too: what it is made for is `$(relay secret-key)`.
"""

from __future__ import annotations

import click

from relay.cli.options import example, json_option
from relay.cli.streams import Streams
from relay.store.vault import new_key


@click.command("secret-key", epilog=example('export RELAY_SECRET_KEYS="$(relay secret-key)"'))
@json_option
@click.pass_obj
def command(streams: Streams) -> None:
    """Print a new key for RELAY_SECRET_KEYS.

    To change keys, put the new one before the old one, separated by a comma: the newest encrypts, all decrypt.
    """
    key = new_key().expose()
    if streams.json_asked:
        streams.document({"key": key})
    else:
        streams.line(key)
