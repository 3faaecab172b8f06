"""The sink with TLS: `python -m tests.loadtest.tls_sink`, with the certificate and the key as its first arguments.

Owns the listening with TLS; all else is the sink's.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from typing import Any

import uvloop

from relay.loadtest import sink


class _Loop(uvloop.Loop):
    """A loop whose servers speak TLS."""

    context: ssl.SSLContext

    # another signature than the overridden one: whatever it is called with goes on as it is
    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.AbstractServer:  # type: ignore[override]
        return await super().create_server(*arguments, ssl=self.context, **options)


def main() -> None:
    """Serve as the sink does, whose loop this is."""
    certificate, key, *others = sys.argv[1:]
    _Loop.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _Loop.context.load_cert_chain(certificate, key)
    uvloop.new_event_loop = _Loop
    sink.main(others)


if __name__ == "__main__":
    main()
