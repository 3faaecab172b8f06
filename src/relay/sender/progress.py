"""A transfer's connection, seen past libcurl: whether bytes still move, how many came, and how to spoil it.

Owns the counting for the silence timeout, and of what libcurl reads without a word. libcurl's own low-speed timer is
not used: it has a grain of a second, fires two seconds late and takes a slow drip for silence. Here any byte counts, a
request that a slow reader takes in as well: the kernel says what the peer has acknowledged, where libcurl only knows
what the kernel has taken.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import pycurl

MOST_READS, READ_BYTES = 16, 65536
"""How much of what strayed in is read away; a peer that sends more gets its connection reset."""

_ONE_AT_A_TIME = frozenset({pycurl.CURL_HTTP_VERSION_1_0, pycurl.CURL_HTTP_VERSION_1_1})

_BYTES_ACKED = slice(120, 128)
_BYTES_RECEIVED = slice(128, 136)
_INFO_BYTES = 136
"""Fields of Linux' struct tcp_info, there since 4.1."""


def socket_of(curl: pycurl.Curl) -> int:
    """The descriptor of the connection that the transfer uses; negative without one."""
    fd: int = curl.getinfo(pycurl.ACTIVESOCKET)
    return fd


@contextmanager
def borrowed(fd: int) -> Iterator[socket.socket]:
    """libcurl's descriptor as a socket object; it stays libcurl's to close."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fd)
    try:
        yield connection
    finally:
        connection.detach()


def spoil(fd: int) -> None:
    """Make a kept connection unusable: what comes, or came, on it cannot be told from an answer to the next request.

    libcurl has no call for it. It notices at its first write, and takes another connection.
    """
    with suppress(OSError), borrowed(fd) as connection:
        for _ in range(MOST_READS):
            if not connection.recv(READ_BYTES, socket.MSG_DONTWAIT):
                break
    with suppress(OSError), borrowed(fd) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def shared(fds: Iterable[int]) -> set[int]:
    """Those descriptors that stand there more than once: HTTP/2 connections with several transfers."""
    once: set[int] = set()
    more: set[int] = set()
    for fd in fds:
        (more if fd in once else once).add(fd)
    return more


def bytes_moved(curl: pycurl.Curl, fd: int, *, alone: bool) -> int:
    """A number that differs from an earlier one if bytes moved in between.

    For a transfer that has its connection `alone` these are the connection's bytes; otherwise the stream's, as far as
    libcurl counts them.
    """
    if alone and fd >= 0:
        counted = _bytes_of_connection(fd)
        if counted is not None:
            return sum(counted)
    getinfo = curl.getinfo
    stream: int = getinfo(pycurl.SIZE_UPLOAD_T) + getinfo(pycurl.SIZE_DOWNLOAD_T) + getinfo(pycurl.HEADER_SIZE)
    return stream


def bytes_received(curl: pycurl.Curl, fd: int) -> int | None:
    """How many bytes came on the connection so far, if it is known to serve one transfer at a time, as HTTP/1 does;
    libcurl knows it by the answer's status line."""
    if fd < 0 or curl.getinfo(pycurl.INFO_HTTP_VERSION) not in _ONE_AT_A_TIME:
        return None
    counted = _bytes_of_connection(fd)
    return None if counted is None else counted[1]


def _bytes_of_connection(fd: int) -> tuple[int, int] | None:
    """The bytes that the peer acknowledged and those that came from it."""
    try:
        with borrowed(fd) as connection:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError:
        return None
    if len(info) < _INFO_BYTES:
        return None
    return int.from_bytes(info[_BYTES_ACKED], "little"), int.from_bytes(info[_BYTES_RECEIVED], "little")
