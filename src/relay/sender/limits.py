"""The bounds of sending, as values.

Owns the names and the defaults; where they are read from is settings' business. Invariant: each wait, each buffer and
each set of connections in this room has its bound here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ResolverLimits:
    """How long names are looked up and how long answers are kept, in seconds.

    An answer lives as long as its record says, within `shortest_ttl` and `longest_ttl`; a failure lives
    `failure_seconds`. A lookup that takes longer than `answer_seconds` counts as timed out for those who wait, and its
    late answer still serves whoever comes next. `servers` (`address` or `address:port`) replace the system's.
    """

    answer_seconds: float = 2.5
    second_family_seconds: float = 0.25
    shortest_ttl: float = 1.0
    longest_ttl: float = 60.0
    failure_seconds: float = 1.5
    names: int = 16_384
    lookups: int = 4_096
    servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SendLimits:
    """The bounds of one sender.

    `connect_seconds` covers name, TCP and TLS; `silence_seconds` is the longest time without a byte in either
    direction, unless a request allows more; the total is each request's own. At most `response_cap_bytes` of a body are
    taken before the connection is dropped, `snippet_bytes` of them are kept. `connections` bounds the requests on the
    wire and, idle ones included, the open connections; `connections_per_host` the requests on the wire to one host and
    port, which may have many endpoints. Requests beyond wait, on their own time. A kept connection is not used again
    after `idle_seconds` without use or `lifetime_seconds` of age. `framing_bytes` are what an answer may have beside
    its body: its head, chunks' sizes and extensions, trailers, TLS; looked at twice a second, sooner where much comes.
    `ca_file` (PEM) replaces the system's authorities.
    """

    connect_seconds: float = 3.0
    silence_seconds: float = 5.0
    response_cap_bytes: int = 64 * 1024
    snippet_bytes: int = 4 * 1024
    framing_bytes: int = 1024 * 1024
    connections: int = 512
    connections_per_host: int = 256
    idle_seconds: int = 60
    lifetime_seconds: int = 600
    ca_file: Path | None = None
    resolver: ResolverLimits = field(default_factory=ResolverLimits)
