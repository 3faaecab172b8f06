"""From an address to a connection, which may name several servers.

Owns the choice among them, and what the system is told of each connection. Invariants: where an address names several
hosts, nobody is given a standby unless the address asks for one; no host that hangs, as a machine without power does,
is in the way of the others; and a connection to a machine that is gone fails by itself, whatever is waited for on it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from relay.domain.authority import authority_of

PATIENCE_SECONDS = 0.25
"""How long a host may say nothing before the next one is tried beside it (as RFC 8305 does with addresses)."""

_OF_TCP = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 25_000))
"""After how many seconds without a word the other machine is asked for one, how often, and after how many milliseconds
without any it counts as gone; where a system has these options. A session asks its server for the same."""

TAKES_WRITES = "begin read write"
"""Begins a transaction on a server that takes writes; a standby raises `IS_STANDBY`."""

IS_STANDBY = (asyncpg.FeatureNotSupportedError,)

_TAKES_WRITES = frozenset({"read-write", "primary"})


Dial = Callable[..., Awaitable[asyncpg.Connection]]
"""Connects to one host, as `asyncpg.connect` does."""


async def connect(dsn: str | None = None, **arguments: Any) -> asyncpg.Connection:  # noqa: ANN401 - the driver's own
    """Connect to the server of an address, of several to the first that takes writes. `asyncpg.connect`, otherwise.

    The driver would try one host after the other, and the first might take all the time there is.
    """
    hosts = each_host(dsn or "")
    asked = parse_qs(urlsplit(hosts[0]).query).get("target_session_attrs", ["read-write"])[-1]
    if len(hosts) == 1 or asked not in _TAKES_WRITES:
        return await _dial(dsn, **arguments)
    return await _first_of(hosts, _dial, {"target_session_attrs": SessionAttribute.read_write, **arguments})


async def connect_through_pooler(
    dsn: str | None = None,
    **arguments: Any,  # noqa: ANN401 - the driver's own
) -> asyncpg.Connection:
    """Connect to a pooler that gives each transaction some server connection; of several to the first behind which a
    server takes writes.

    The driver's own question to a server takes two steps, which a pooler may send to two servers.
    """
    # whatever the address asks for: every transaction looks for itself whether it may write
    arguments = {**arguments, "target_session_attrs": SessionAttribute.any}
    return await _first_of(each_host(dsn or ""), _dial_pooler, arguments)


async def _dial_pooler(host: str, **arguments: Any) -> asyncpg.Connection:  # noqa: ANN401 - the driver's own
    connection = await _dial(host, **arguments)
    try:
        await connection.execute(f"{TAKES_WRITES}; rollback")
    except IS_STANDBY as fault:
        connection.terminate()
        raise asyncpg.TargetServerAttributeNotMatched("behind the pooler is a standby") from fault
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _first_of(hosts: list[str], dial: Dial, arguments: Mapping[str, Any]) -> asyncpg.Connection:
    faults: list[Exception] = []
    dialling: set[asyncio.Task[asyncpg.Connection]] = set()
    try:
        while hosts or dialling:
            if hosts:
                dialling.add(asyncio.create_task(_dialled(dial, hosts.pop(0), arguments)))
            patience = PATIENCE_SECONDS if hosts else None
            done, dialling = await asyncio.wait(dialling, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            made = [each.result() for each in done if each.exception() is None]
            for spare in made[1:]:
                spare.terminate()
            if made:
                return made[0]
            faults += [fault for each in done if isinstance(fault := each.exception(), Exception)]
    finally:
        await _give_up(dialling)
    raise min(faults, key=_rank)


async def _dialled(dial: Dial, host: str, arguments: Mapping[str, Any]) -> asyncpg.Connection:
    return await dial(host, **arguments)


async def _dial(dsn: str | None, **arguments: Any) -> asyncpg.Connection:  # noqa: ANN401 - the driver's own
    connection: asyncpg.Connection = await asyncpg.connect(dsn, **arguments)
    there = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined] # the driver has no word for it
    if there is not None and there.family != socket.AF_UNIX:
        there.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _OF_TCP:
            if hasattr(socket, option):
                there.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection


def each_host(dsn: str) -> list[str]:
    """The address of each host that an address names, in their order."""
    authority = authority_of(dsn)
    if authority is not None and "," in authority.places:
        return [authority.at(host) for host in authority.each]
    parts = urlsplit(dsn)
    hosts = parts.netloc.rpartition("@")[2]
    asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if hosts or "," not in asked.get("host", ""):
        return [dsn]
    names, ports = asked["host"].split(","), asked.get("port", "").split(",")
    ports = ports * len(names) if len(ports) == 1 else ports
    queries = [{**asked, "host": name, "port": port} for name, port in zip(names, ports, strict=True)]
    return [
        urlunsplit(parts._replace(query=urlencode({name: value for name, value in query.items() if value})))
        for query in queries
    ]


def _rank(fault: Exception) -> int:
    """What a server has against us tells more than that a host is gone, and that more than that it is a standby."""
    if isinstance(fault, asyncpg.PostgresError):
        return 0
    return 2 if isinstance(fault, asyncpg.TargetServerAttributeNotMatched) else 1


async def _give_up(dialling: set[asyncio.Task[asyncpg.Connection]]) -> None:
    """End the attempts that nobody needs any more."""
    for attempt in dialling:
        attempt.cancel()
    for made in await asyncio.gather(*dialling, return_exceptions=True):
        if not isinstance(made, BaseException):
            made.terminate()
