"""Sockets to listen on, bound once by the process that a person started and inherited by its workers.

Owns binding. Invariant: a port is bound, or the start is refused, before anything
else of the process starts.
"""

from __future__ import annotations

import errno
import socket

from relay.app.faults import CannotRun
from relay.settings import Bind

BACKLOG = 2048
"""Connections that may wait to be accepted; the system may cap it (`net.core.somaxconn`)."""

UNREAD_SECONDS = 30.0
"""How long a client may leave an answer unread before the system ends its connection, whoever waits for that."""


def listen(bind: Bind, setting: str) -> socket.socket:
    """Bind and listen; port 0 takes a free port. `setting` is the variable to change if it fails.

    Raises `CannotRun` for a port that is taken and an address that this machine does not have.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            bind.host, bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as fault:
        raise CannotRun(_not_ours(bind, setting, fault)) from fault
    try:
        # a port whose last connections are still winding down is free
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # inherited by each connection
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_SECONDS * 1000))
        if family == socket.AF_INET6:
            # [::] means IPv6 alone, so that it does not depend on the machine's setting what is open
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as fault:
        listener.close()
        raise CannotRun(_refusal(bind, setting, fault)) from fault
    return listener


def _refusal(bind: Bind, setting: str, fault: OSError) -> str:
    match fault.errno:
        case errno.EADDRINUSE:
            return f"{bind} is in use by another process: stop that one, or set {setting} to another address"
        case errno.EACCES:
            return f"{bind} is not open to this user: set {setting} to a port above 1023"
        case _:
            return _not_ours(bind, setting, fault)


def _not_ours(bind: Bind, setting: str, fault: OSError) -> str:
    return f"cannot listen on {bind}: {fault.strerror}; set {setting} to an address of this machine"


def address_of(listener: socket.socket) -> Bind:
    """Where a socket listens, with the port that it really got."""
    host, port = listener.getsockname()[:2]
    return Bind(host, port)


def url_of(address: Bind, scheme: str = "http") -> str:
    """The address as this machine's own programs reach it: an open one is reached over loopback."""
    match address.host:
        case "0.0.0.0":  # noqa: S104 - compared, not bound
            reached = Bind("127.0.0.1", address.port)
        case "::":
            reached = Bind("::1", address.port)
        case _:
            reached = address
    return f"{scheme}://{reached}"
