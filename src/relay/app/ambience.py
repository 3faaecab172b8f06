"""The world as the acting rooms get it: clocks, chance and sleep.

Owns the one `Ambient` of the product. Invariant: nothing else in the package makes one, but tests.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from datetime import UTC, datetime

from relay.domain.ambient import Ambient


def ambient() -> Ambient:
    """The real clocks, the system's random bytes, and a generator seeded by it for what needs no secrecy (jitter)."""
    return Ambient(
        now=lambda: datetime.now(UTC),
        monotonic=time.monotonic,
        entropy=os.urandom,
        draw=random.Random(os.urandom(16)).random,  # noqa: S311 - jitter needs no secrecy
        sleep=asyncio.sleep,
    )
