"""redis-py, set up so that nothing in it waits, goes on trying or decodes by a default.

Owns how connections are made: to one server or to the primary that Sentinels name, with TLS where the url says so.
Every connection asks for the server's version first. Invariant: the socket's timeout is longer than the longest read; a
default of a library that is shorter would make a fault of every idle read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Connection, ConnectionPool, Redis, Sentinel, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import InvalidResponse
from redis.utils import str_if_bytes

from relay.broker.address import Address
from relay.broker.broker import LONGEST_WAIT_SECONDS
from relay.broker.faults import OLDEST_VERSION, Unusable

ANSWER_SECONDS = 3.0
"""Within which a server answers what it need not wait for, a new connection included."""

CONNECT_SECONDS = 2.0
SENTINEL_SECONDS = 1.0
"""Within which a Sentinel is reached, and answers. Several are asked one after the other."""

SOCKET_SECONDS = LONGEST_WAIT_SECONDS + 2 * ANSWER_SECONDS
"""A backstop behind the bounds of every call, for all that is not one."""

MOST_CONNECTIONS = 32


def answer_seconds(address: Address) -> float:
    """Within which the broker at this address answers, all its Sentinels asked."""
    return ANSWER_SECONDS + (2 * SENTINEL_SECONDS * len(address.hosts) if address.service else 0.0)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself: `server` is its name and version, `eviction` what it does at its `memory_bound` in
    bytes, which is 0 where there is none."""

    server: str
    is_replica: bool
    eviction: str
    memory_bound: int


class Client:
    """The library's client, with what belongs to it."""

    def __init__(self, address: Address) -> None:
        """Connects to nothing yet."""
        self._sentinel: Sentinel | None = None
        settings = {
            **_plain(address.socket_timeout or SOCKET_SECONDS, CONNECT_SECONDS),
            "db": address.database,
            "username": address.username,
            "password": address.password,
            "redis_connect_func": _greet,
            "max_connections": MOST_CONNECTIONS,
        }
        tls: dict[str, Any] = dict(address.tls or {})
        if address.service is None:
            ((host, port),) = address.hosts
            kind = Connection if address.tls is None else SSLConnection
            pool = ConnectionPool(connection_class=kind, host=host, port=port, **settings, **tls)
            self._redis = Redis(connection_pool=pool)
        else:
            own = {
                **_plain(SENTINEL_SECONDS, SENTINEL_SECONDS),
                "username": address.sentinel_username,
                "password": address.sentinel_password,
            }
            tls |= {} if address.tls is None else {"ssl": True}
            watchers: Any = Sentinel  # the library does not type its arguments
            self._sentinel = watchers(list(address.hosts), sentinel_kwargs={**own, **tls})
            self._redis = self._sentinel.master_for(address.service, **settings, **tls)
        # what the library would make of answers differs by its version and the protocol's; they are read in `entries`
        self._redis.response_callbacks.clear()

    async def ask(self, *command: bytes | int | str) -> Any:  # noqa: ANN401 - it is the command that knows
        """What the server answers to a command, as it stands on the wire (RESP 2). Raises what redis-py raises."""
        ask: Any = self._redis.execute_command  # the library does not type it
        return await ask(*command)

    async def ask_all(self, commands: Iterable[Sequence[bytes | int | str]]) -> list[Any]:
        """The answers to several commands in one round trip. The first refusal is raised as the server gave it: the
        library would add the command, with its arguments."""
        pipeline: Any = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    async def facts(self) -> ServerFacts:
        """What the server says of itself."""
        told = _parsed(await self.ask("INFO", "server", "memory", "replication"))
        return ServerFacts(
            server=f"Valkey {told['valkey_version']}" if "valkey_version" in told else f"Redis {told['redis_version']}",
            is_replica=told.get("role") == "slave",
            eviction=told.get("maxmemory_policy", ""),
            memory_bound=int(told.get("maxmemory", 0)),
        )

    async def forget_idle(self) -> None:
        """Close the connections that nobody uses, since one that failed tells about them all."""
        await self._redis.connection_pool.disconnect(inuse_connections=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._redis.connection_pool.disconnect()
        if self._sentinel is not None:
            await self._sentinel.aclose()


def _plain(seconds: float, to_connect: float) -> dict[str, Any]:
    """One retry, at once, of what a closed connection took with it: the server may have closed what lay idle, and a
    primary may have been demoted. More is the caller's to repeat, who meanwhile polls. The protocol is the one that
    every server since 7.0 answers alike."""
    return {
        "socket_timeout": seconds,
        "socket_connect_timeout": to_connect,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 1, supported_errors=(ConnectionLost,)),
        "protocol": 2,
        "driver_info": None,
    }


async def _greet(connection: Connection) -> None:
    """Log in, and be sure that the server is one, and new enough. Raises `Unusable`."""
    try:
        await connection.on_connect()
        await connection.send_command("INFO", "server", check_health=False)
        told = await connection.read_response()
    except (ValueError, InvalidResponse) as error:  # the library reads what should be a number
        raise Unusable(_NO_SERVER) from error
    except ConnectionLost as error:
        if _HUNG_UP not in str(error):
            raise
        raise Unusable(_NO_SERVER) from error
    facts = _parsed(told) if isinstance(told, bytes) else {}
    version = facts.get("redis_version", "")
    major = version.partition(".")[0]
    if not major.isdecimal():
        raise Unusable(_NO_SERVER)
    if int(major) < OLDEST_VERSION:
        raise Unusable(f"is Redis {version}, and Relay needs Redis {OLDEST_VERSION}.0 or newer, or Valkey")


_HUNG_UP = "closed by server"
_NO_SERVER = "does not answer as Redis and Valkey do: something else is at that address, or it speaks TLS (rediss://)"


def _parsed(told: bytes | str) -> dict[str, str]:
    """The answer to INFO: `name:value` in lines, under headings."""
    return dict(line.partition(":")[::2] for line in str_if_bytes(told).splitlines())
