"""What a process serves at `/metrics`, fetched once.

Owns the call. Invariants: it ends within its time, however slowly the other side speaks, and takes no more than it can
be; no key is sent, since metrics need none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx

from relay import __version__
from relay.cli.client import is_this_machine, trusted
from relay.cli.failures import CommandFailed
from relay.metrics.reading import NotMetrics, Reading, read

STEP_SECONDS, WHOLE_SECONDS = 2.0, 5.0
"""For each step of a call, and for all of them."""

MOST_BYTES = 32 * 1024 * 1024


class Scraper:
    """Calls to the processes at these addresses."""

    def __init__(self, clients: dict[str, httpx.Client]) -> None:
        self._clients = clients

    def read(self, url: str) -> Reading:
        """What it says now. Raises `CommandFailed` with the cause alone."""
        deadline = time.monotonic() + WHOLE_SECONDS
        body = bytearray()
        try:
            with self._clients[url].stream("GET", "/metrics", headers={"accept": "text/plain"}) as response:
                if response.status_code != httpx.codes.OK:
                    raise CommandFailed(f"it answered {response.status_code}")
                for piece in response.iter_bytes():
                    body += piece
                    if time.monotonic() > deadline or len(body) > MOST_BYTES:
                        raise CommandFailed("its answer does not come to an end")
        except httpx.TimeoutException as fault:
            raise CommandFailed("it did not answer in time") from fault
        except httpx.HTTPError as fault:
            raise CommandFailed(" ".join(str(fault).split()) or type(fault).__name__) from fault
        try:
            return read(body.decode(errors="replace"))
        except NotMetrics as fault:
            raise CommandFailed("what it answers is no metrics: is it a Relay?") from fault


@contextmanager
def scraper(urls: list[str]) -> Iterator[Scraper]:
    """Connections to these addresses, each the base of a `/metrics`. Raises `CommandFailed`."""
    with ExitStack() as stack:
        yield Scraper({url: stack.enter_context(_client(url)) for url in urls})


def _client(url: str) -> httpx.Client:
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise CommandFailed(f"{url!r} is no http:// or https:// address", 2)
    return httpx.Client(
        base_url=url.removesuffix("/").removesuffix("/metrics"),
        headers={"user-agent": f"relay-cli/{__version__}"},
        timeout=STEP_SECONDS,
        trust_env=not is_this_machine(url),
        verify=trusted(url),
        follow_redirects=False,
    )
