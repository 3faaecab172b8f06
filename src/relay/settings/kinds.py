"""What the text of a setting may look like: one `Kind` for each form, with its parser and its way back to
text.

Owns the forms and the words that describe them. A parser raises `ValueError` for a text that it does not
take; what the person reads is the kind's `wants`, never the exception, so a secret cannot leak through a
fault. Invariant: for every kind that is not secret, `parse(show(value)) == value`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from relay.domain.authority import authority_of
from relay.domain.secret import Secret

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

Network = IPv4Network | IPv6Network

STARS = "***"

_WHOLE = re.compile(r"[0-9]{1,15}")
_DECIMAL = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
_DATABASE_HOST = re.compile(r"[A-Za-z0-9_.-]+")
_FERNET_KEY = re.compile(r"[A-Za-z0-9_-]{43}=")
_SECRET_PARAMETER = re.compile(r"(?i)([?&][^=&]*(?:password|secret|token|key)[^=&]*=)[^&]*")
_PASSWORD = re.compile(r"(?s)^([^:/?#]+://[^:/?#]*:).*(?=@)")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One form of setting. `wants` completes the sentence "must be …"; `secret` values are shown by `show`
    alone. A text that is refused is quoted only where it is `quotable`: a secret may stand in it by mistake.
    """

    wants: str
    parse: Callable[[str], T]
    show: Callable[[T], str] = str
    secret: bool = False
    quotable: bool = True


class WrongItem(ValueError):
    """What is wrong with a list is this item of it."""

    def __init__(self, item: str) -> None:
        super().__init__(item)
        self.item = item


class LogFormat(StrEnum):
    """How log lines are written."""

    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """The least important lines that are still written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Bind:
    """An address to listen on. `host` is a name or an IP literal without brackets; port 0 takes any free
    port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect. A name other than `localhost` counts as open."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"


def _bounded(text: str, form: re.Pattern[str], low: float, high: float) -> float:
    if not form.fullmatch(text) or not low <= float(text) <= high:
        raise ValueError
    return float(text)


def whole(low: int, high: int) -> Kind[int]:
    """A whole number, both ends included."""
    return Kind(f"a whole number from {low} to {high}", lambda text: int(_bounded(text, _WHOLE, low, high)))


def decimal(low: float, high: float) -> Kind[float]:
    """A number that may have decimals, both ends included."""
    return Kind(
        f"a number from {number(low)} to {number(high)}",
        lambda text: _bounded(text, _DECIMAL, low, high),
        number,
    )


def number(value: float) -> str:
    """The number as a person writes it: 2 and not 2.0, never an exponent."""
    return f"{value:.9f}".rstrip("0").rstrip(".")


def _boolean(text: str) -> bool:
    word = text.lower()
    if word in {"true", "1", "yes", "on"}:
        return True
    if word in {"false", "0", "no", "off"}:
        return False
    raise ValueError


BOOLEAN: Kind[bool] = Kind("true or false (also 1/0, yes/no, on/off)", _boolean, lambda value: str(value).lower())


def choice(members: type[E]) -> Kind[E]:
    """One of the enum's values, in any case."""
    names = [member.value for member in members]
    return Kind(
        f"{', '.join(names[:-1])} or {names[-1]}",
        lambda text: members(text.lower()),
        lambda value: value.value,
    )


def _host(text: str) -> str:
    """A name or an IPv4 literal. What ends in a number must be a whole IPv4 address: two readers take
    `127.1` or `0177.0.0.1` for different things."""
    if len(text) > 253 or not _HOST.fullmatch(text):
        raise ValueError
    if text.rsplit(".", 1)[-1].isdigit():
        IPv4Address(text)
    return text


def _bind(text: str) -> Bind:
    host, _, port = text.rpartition(":")
    checked_port = int(_bounded(port, _WHOLE, 0, 65535))
    if host.startswith("[") and host.endswith("]"):
        return Bind(str(IPv6Address(host[1:-1])), checked_port)
    return Bind(_host(host), checked_port)


BIND: Kind[Bind] = Kind("host:port or [IPv6]:port, port 0 to 65535", _bind)


def _items(text: str) -> list[str]:
    return [item for item in (part.strip() for part in text.split(",")) if item]


def _each(text: str, parse: Callable[[str], T]) -> tuple[T, ...]:
    """Every item of a list, read by itself. Raises `WrongItem` for the first that cannot be."""
    read = []
    for item in _items(text):
        try:
            read.append(parse(item))
        except ValueError as fault:
            raise WrongItem(item) from fault
    return tuple(read)


def _ports(text: str) -> frozenset[int] | None:
    if text == "*":
        return None
    ports = frozenset(_each(text, lambda item: int(_bounded(item, _WHOLE, 1, 65535))))
    if not ports:
        raise ValueError
    return ports


PORTS: Kind[frozenset[int] | None] = Kind(
    "ports separated by commas, or *",
    _ports,
    lambda ports: "*" if ports is None else ",".join(str(port) for port in sorted(ports)),
)

NETWORKS: Kind[tuple[Network, ...]] = Kind(
    "networks in CIDR form separated by commas, without host bits (10.1.0.0/16, fd00::/8)",
    lambda text: _each(text, ip_network),
    lambda networks: ",".join(str(network) for network in networks),
)


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as fault:  # ~somebody, who has no home here
        raise ValueError from fault


PATH: Kind[Path] = Kind("a path", _path)


_ENCODED = "with valid hosts and ports, and anything special in its password percent-encoded (@ as %40, / as %2F)"


def _parted(text: str, schemes: tuple[str, ...]) -> SplitResult:
    """The parts of a url. Where an `@` stands that ends no credentials, a password was cut in two."""
    if re.search(r"[\s\x00-\x1f\x7f\\]", text):
        raise ValueError
    parts = urlsplit(text)
    if parts.scheme not in schemes or parts.netloc.count("@") > 1 or "@" in parts.path or parts.fragment:
        raise ValueError
    return parts


def _url(text: str, schemes: tuple[str, ...]) -> str:
    parts = _parted(text, schemes)
    _ = parts.port
    if not parts.hostname:
        raise ValueError
    return text


def _base_url(text: str) -> str:
    parts = urlsplit(_url(text, ("http", "https")))
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError
    return text.rstrip("/")


BASE_URL: Kind[str] = Kind(
    "an http:// or https:// url without credentials, query or fragment", _base_url, quotable=False
)


def mask(url: str) -> str:
    """The url with its password, and every query value that names a credential, as stars."""
    return _SECRET_PARAMETER.sub(rf"\1{STARS}", _PASSWORD.sub(rf"\1{STARS}", url))


_SSL_MODES = frozenset({"disable", "allow", "prefer", "require", "verify-ca", "verify-full"})
_SESSIONS = frozenset({"any", "primary", "standby", "prefer-standby", "read-write", "read-only"})


def _database_url(text: str) -> Secret:
    """One host or several (`host1:5432,host2:5432`), in the url or as its parameters, as the driver reads them.

    Everything that the driver would stumble over is found here: its own words may quote what it took for a port. An @
    where there is no name of a database is the end of a password with a ? in it.
    """
    authority = authority_of(text)
    if authority is not None and authority.behind.startswith("?") and "@" in authority.behind:
        raise ValueError
    hosts = "" if authority is None else authority.places
    one_host = text if authority is None or "," not in hosts else authority.at("host")
    parts = _parted(one_host, ("postgresql", "postgres"))
    given = parse_qs(parts.query, strict_parsing=True, errors="strict") if parts.query else {}
    asked = {name: values[-1] for name, values in given.items()}
    ports = [port for port in asked.get("port", "").split(",") if port]
    names = hosts or asked.get("host", "")
    for host in names.split(",") if names else []:
        _database_host(unquote(host, errors="strict"))
    for port in ports:
        _bounded(port, _WHOLE, 1, 65535)
    if len(ports) > 1 and len(ports) != len(names.split(",")):
        raise ValueError
    if asked.get("sslmode", "prefer") not in _SSL_MODES or asked.get("target_session_attrs", "any") not in _SESSIONS:
        raise ValueError
    return Secret(text)


def _database_host(text: str) -> None:
    """A folder of a socket, or a host with or without its port."""
    if text.startswith("/"):
        return
    if text.startswith("["):
        literal, bracket, port = text[1:].partition("]")
        IPv6Address(literal)
        if not bracket or (port and not port.startswith(":")):
            raise ValueError
        port = port[1:]
    else:
        name, _, port = text.partition(":")
        if not _DATABASE_HOST.fullmatch(name):
            raise ValueError
    if port:
        _bounded(port, _WHOLE, 1, 65535)


DATABASE_URL: Kind[Secret] = Kind(
    f"a postgresql:// url, {_ENCODED}", _database_url, lambda value: mask(value.expose()), secret=True
)


def _broker_url(text: str) -> Secret:
    """One host, or the Sentinels that know it. Its path and options are the broker's to read.

    An @ behind the hosts says that a password which was not encoded ends them too early.
    """
    authority = authority_of(text)
    if authority is None or "@" in authority.behind:
        raise ValueError
    if "," not in authority.places:
        _url(text, _SERVERS + _SENTINELS)
    else:
        _parted(authority.at("host"), _SENTINELS)
        for host in authority.each:
            _database_host(host)
    return Secret(text)


_SERVERS, _SENTINELS = ("redis", "rediss"), ("redis+sentinel", "rediss+sentinel")

BROKER_URL: Kind[Secret] = Kind(
    f"a redis://, rediss://, redis+sentinel:// or rediss+sentinel:// url, {_ENCODED}",
    _broker_url,
    lambda value: mask(value.expose()),
    secret=True,
)


def _secret_keys(text: str) -> tuple[Secret, ...]:
    """Fernet keys: 32 bytes in url-safe base64 each."""
    keys = _items(text)
    if not keys or not all(_FERNET_KEY.fullmatch(key) for key in keys):
        raise ValueError
    return tuple(Secret(key) for key in keys)


SECRET_KEYS: Kind[tuple[Secret, ...]] = Kind(
    "keys as `relay secret-key` prints them, separated by commas, newest first",
    _secret_keys,
    lambda keys: ",".join(STARS for _ in keys),
    secret=True,
)

SECRET: Kind[Secret] = Kind("a secret", Secret, str, secret=True)
