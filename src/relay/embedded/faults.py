"""What can go wrong with the embedded server, in words for the person who started it.

Owns the exceptions of this room. Invariant: each message names the folder or process concerned and what to do.
"""

from __future__ import annotations


class EmbeddedFault(Exception):
    """Something in the world keeps the embedded server from doing what was asked."""


class DataFolderRefused(EmbeddedFault):
    """The data folder cannot be used as it is; nothing in it was changed."""


class ServerInUse(EmbeddedFault):
    """Another process has the server of this folder, or may have it."""


class NoUsableAccount(EmbeddedFault):
    """Relay runs as root, and no account was found under which PostgreSQL could run."""


class StartFailed(EmbeddedFault):
    """One of PostgreSQL's programs failed or took longer than its limit; the message ends with its output."""


class StopFailed(EmbeddedFault):
    """The server did not end, not even when it was killed."""
