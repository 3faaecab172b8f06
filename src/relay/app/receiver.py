"""The receiver worker: the testkit's server in a process of its own.

Owns its wiring. Invariant: it records with the real clock, so signatures that are too old fail in `/verify`.
"""

from __future__ import annotations

import sys
import time

from relay.app.roles import Role
from relay.app.work import Work
from relay.app.worker import main
from relay.testkit.app import create_app
from relay.testkit.serving import serve


async def run_receiver(work: Work) -> None:
    """Receive until told to stop; what the modes hold open on purpose is cut then."""
    settings = work.settings
    app = create_app(clock=time.time, secret=settings.testkit_secret, relay_url=settings.url, api_key=settings.api_key)
    await serve(app, work.listener, stop=work.stop, ready=lambda _: work.ready())


if __name__ == "__main__":
    sys.exit(main(Role.RECEIVER, run_receiver))
