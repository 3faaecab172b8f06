"""Which of several servers a connection is made to.

Owns that choice. Invariant: where an address names several hosts, nobody is given a standby unless the address asks for
one.
"""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from asyncpg.connect_utils import SessionAttribute


def wanted_session(dsn: str) -> SessionAttribute | None:
    """What the driver is to look for among the hosts; None where the address says it, or names one host."""
    parts = urlsplit(dsn)
    asked = parse_qs(parts.query)
    hosts = [parts.netloc.rpartition("@")[2], *asked.get("host", ())]
    if "target_session_attrs" in asked or not any("," in host for host in hosts):
        return None
    return SessionAttribute.read_write
