"""What a client library and a server say when they cannot, in words that say what to do.

Owns the translation of redis-py's exceptions, once, at the edge of the room. Invariant: no argument of a command and no
credential gets into the words.
"""

from __future__ import annotations

from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError
from redis.exceptions import TimeoutError as SocketTimeout

from relay.broker.broker import BrokerUnavailable

OLDEST_VERSION = 7

_MOST_SAID = 200

_SAID: dict[str, str] = {
    "LOADING": "still loads its data from disk; it answers once that is done",
    "READONLY": (
        "is a replica, which takes no writes: RELAY_BROKER_URL must name the primary, or Sentinels that know it"
    ),
    "MISCONF": (
        "takes no writes since it cannot save its snapshots: look at its disk and its log (stop-writes-on-bgsave-error)"
    ),
    "OOM": "is at its maxmemory: raise it, or see what else is kept there; Relay keeps a few megabytes at most",
    "NOAUTH": "wants a password: put it into RELAY_BROKER_URL",
    "WRONGPASS": "does not take the user and password in RELAY_BROKER_URL",
    "NOPERM": "does not let this user do what Relay must: allow ~{stream} with"
    " +@stream, +eval, +exists, +info, +time, and +select for another database than 0",
    "WRONGTYPE": "keeps something else under the key {stream}: remove it, or give Relay another (?stream=NAME)",
    "NOREPLICAS": "takes no writes since too few of its replicas answer (min-replicas-to-write)",
    "MASTERDOWN": "is a replica that has lost its primary",
    "BUSY": "is busy with somebody's script (SCRIPT KILL ends it)",
    **dict.fromkeys(
        ("MOVED", "ASK", "CLUSTERDOWN", "CROSSSLOT", "TRYAGAIN"),
        "is a Redis Cluster, which Relay does not use as broker: one server, or one with Sentinels, carries the ids",
    ),
    **dict.fromkeys(
        ("NOGROUP", "UNBLOCKED"),
        "loses its stream again and again: its maxmemory-policy must be noeviction, and nobody may flush it all the"
        " time",
    ),
}
"""What the first word of a server's refusal means."""


_PLAIN = "; RELAY_BROKER_URL asks for TLS (rediss): does it speak that there?"

_SAID_OF_THE_LAST = ("invalid start ID for the interval", "exhausted the last possible ID")
_AT_THE_LAST = (
    "has an entry with the last possible id under the key {stream}, which Relay did not write and behind which nothing"
    " can be added: remove that key (DEL {stream}); what was announced is announced again"
)

_NO_PRIMARY = (
    "gave no primary: no Sentinel answers, or takes what there is of sentinel_password, or knows a primary of this name"
    " that is up"
)
_NO_SENTINEL = "is no Sentinel: write redis:// or rediss:// for the server itself"
_NO_STREAMS = "knows no streams: if it is a Sentinel, write redis+sentinel://host:26379/NAME"


class Unusable(RedisError):
    """What answers there is nothing that Relay can use: too old, or no such server at all."""


def code_of(error: BaseException) -> str:
    """The first word of what a server refused with: `NOGROUP`. The library takes some of them away and keeps them."""
    if isinstance(error, BusyLoadingError):
        return "LOADING"
    return str(getattr(error, "status_code", None) or str(error).split(" ", 1)[0])


def is_emptied(error: BaseException) -> bool:
    """Whether an error says that the stream or the group is gone. A read that was waiting is told so in another way
    before 7.2 (UNBLOCKED) than from then on (NOGROUP)."""
    return isinstance(error, ResponseError) and code_of(error) in {"NOGROUP", "UNBLOCKED"}


def unavailable(error: Exception, *, shown: str, stream: str, bound: float) -> BrokerUnavailable:
    """An error of the library or of the network, translated."""
    code = code_of(error)
    if isinstance(error, Unusable):
        words = str(error)
    elif code in _SAID:
        words = _SAID[code].format(stream=stream)
    elif isinstance(error, MasterNotFoundError):
        words = _NO_PRIMARY
    elif isinstance(error, AuthenticationError):
        words = _SAID["WRONGPASS"]
    elif isinstance(error, (TimeoutError, SocketTimeout)):
        words = f"did not answer within {bound:g} s{_PLAIN if shown.startswith('rediss') else ''}"
    elif any(said in str(error) for said in _SAID_OF_THE_LAST):
        words = _AT_THE_LAST.format(stream=stream)
    elif "unknown command" in str(error):  # with its arguments
        words = _NO_SENTINEL if "sentinel" in str(error).lower() else _NO_STREAMS
    elif isinstance(error, ResponseError):
        words = f"refused: {_plain(error)}"
    else:
        words = f"cannot be reached: {_plain(error) or type(error).__name__}"
    return BrokerUnavailable(f"the broker at {shown} {words}")


def _plain(error: Exception) -> str:
    """One line of what an error says."""
    return " ".join(str(error).split())[:_MOST_SAID]
