"""The receiver worker: the testkit's server in a process of its own.

Owns its wiring. Invariant: it records with the real clock, so signatures that are too old fail in `/verify`; what it
was taught outlives it where a file for that is named.
"""

from __future__ import annotations

import sys
import time
from functools import partial

from relay.app.roles import Role
from relay.app.taught_secrets import read_taught, write_taught
from relay.app.work import Work
from relay.app.worker import main
from relay.settings import Settings
from relay.testkit.app import create_app
from relay.testkit.keyring import Keyring
from relay.testkit.serving import serve


async def run_receiver(work: Work) -> None:
    """Receive until told to stop; what the modes hold open on purpose is cut then."""
    settings = work.settings
    app = create_app(clock=time.time, keyring=_keyring(settings), relay_url=settings.url, api_key=settings.api_key)
    await serve(app, work.listener, stop=work.stop, ready=lambda _: work.ready())


def _keyring(settings: Settings) -> Keyring:
    given = () if settings.testkit_secret is None else (settings.testkit_secret,)
    file = settings.testkit_secrets_file
    if file is None:
        return Keyring(*given)
    file = file.expanduser()
    return Keyring(*given, taught=read_taught(file), keep=partial(write_taught, file))


if __name__ == "__main__":
    sys.exit(main(Role.RECEIVER, run_receiver))
