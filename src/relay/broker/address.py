"""Where the broker is: its url, read once into what the client library wants.

Owns the forms of the url, which are those of redis-py and one more for Sentinel:

    redis://[user[:password]@]host[:6379][/db]
    rediss://…                                          with TLS, whose authorities and certificates are options
    redis+sentinel://[user[:password]@]host[:26379][,host[:port]…]/service[/db]
    rediss+sentinel://…                                 with TLS, to the Sentinels as well

What is special in a user or a password is percent-encoded. The user and the password are the server's; Sentinels that
want one of their own have it as options. An option that Relay does not know is refused, since a misspelled one would
otherwise be no more than a wish. Invariant: neither `shown` nor a refusal holds a credential, also of a url whose
password was not encoded.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from relay.broker.broker import LONGEST_WAIT_SECONDS
from relay.domain.authority import authority_of

STREAM = "relay.deliveries"
"""The key of the stream unless the url has another one: two installations on one server have one each."""

SERVER_PORT, SENTINEL_PORT = 6379, 26379
_SCHEMES = {
    "redis": (False, False),
    "rediss": (True, False),
    "redis+sentinel": (False, True),
    "rediss+sentinel": (True, True),
}


class AddressRefused(ValueError):
    """The url is none that Relay can use; the text says why, without any credential."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the broker is. `service` is the name under which Sentinels know the primary; `hosts` are theirs then.

    `socket_timeout` is None where the url leaves it to Relay, else more than `LONGEST_WAIT_SECONDS`.
    """

    shown: str
    hosts: tuple[tuple[str, int], ...]
    database: int = 0
    service: str | None = None
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    tls: Mapping[str, str | bool] | None = field(default=None, repr=False)
    socket_timeout: float | None = None
    stream: str = STREAM


def read_address(url: str) -> Address:
    """Read a broker's url. Raises `AddressRefused`."""
    authority = authority_of(url)
    scheme = "" if authority is None else authority.scheme.lower()
    if authority is None or scheme not in _SCHEMES:
        raise AddressRefused(f"the broker's url must begin with one of {', '.join(f'{each}://' for each in _SCHEMES)}")
    encrypted, watched = _SCHEMES[scheme]
    if "@" in authority.behind:
        raise AddressRefused(_CUT)
    parts = urlsplit(f"{scheme}://host{authority.behind}")
    username, colon, password = (authority.credential or "").partition(":")
    hosts = _hosts(authority.each, SENTINEL_PORT if watched else SERVER_PORT)
    service, database = _path(parts.path, watched=watched)
    options = _options(parts.query)
    if len(hosts) > 1 and not watched:
        raise AddressRefused("the broker's url may name several hosts only if they are Sentinels (redis+sentinel://)")
    tls = {name: options.pop(name) for name in _TLS if name in options}
    if tls and not encrypted:
        raise AddressRefused(f"{min(tls)} in the broker's url needs TLS: rediss:// or rediss+sentinel://")
    _look_into(tls)
    if not watched and not options.keys().isdisjoint(_OF_SENTINELS):
        raise AddressRefused("sentinel_username and sentinel_password are for urls of Sentinels (redis+sentinel://)")
    return Address(
        shown=f"{scheme}://{authority.places}{parts.path}",
        hosts=hosts,
        database=database,
        service=service,
        username=unquote(username) or None,
        password=unquote(password) if colon else None,
        tls=tls if encrypted else None,
        **options,
    )


_CUT = (
    "an @ stands behind the hosts in the broker's url, so what is special in its user or password (/ as %2F, ? as %3F,"
    " # as %23) ends these too early; one in an option is %40"
)
"""What stands there is not repeated: it may be the rest of a password."""


def _hosts(places: Sequence[str], port: int) -> tuple[tuple[str, int], ...]:
    found = []
    for place in places:
        try:
            host, own = urlsplit(f"//{place}").hostname, urlsplit(f"//{place}").port
        except ValueError:
            raise AddressRefused(f"{place!r} in the broker's url is no host with a port") from None
        if not host:
            raise AddressRefused("the broker's url names no host")
        if own == 0:
            raise AddressRefused(f"{place!r} in the broker's url has port 0, at which nobody answers")
        found.append((unquote(host), port if own is None else own))
    return tuple(found)


def _path(path: str, *, watched: bool) -> tuple[str | None, int]:
    names = [unquote(name) for name in path.strip("/").split("/") if name]
    service = None
    if watched:
        if not names:
            raise AddressRefused("a Sentinel url ends in the name of the primary: redis+sentinel://host:26379/mymaster")
        service = names.pop(0)
    if len(names) > 1 or not all(name.isascii() and name.isdecimal() for name in names):
        raise AddressRefused(f"{path!r} in the broker's url is not the number of a database")
    return service, int(names[0]) if names else 0


def _file(text: str) -> str:
    if not Path(text).exists():
        raise AddressRefused(f"{text!r}, which the broker's url names, does not exist")
    return text


def _look_into(tls: Mapping[str, str | bool]) -> None:
    """Whatever else a connection finds out about its files would be said of the server."""
    context = ssl.create_default_context()
    authorities, certificate, key = (tls.get(name) for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"))
    try:
        if authorities:
            context.load_verify_locations(cafile=str(authorities))
    except OSError:
        raise AddressRefused(f"ssl_ca_certs in the broker's url: {authorities!r} holds no certificate") from None
    try:
        if certificate:
            context.load_cert_chain(str(certificate), str(key) if key else None, password="")
    except OSError:
        raise AddressRefused(
            f"ssl_certfile in the broker's url: {certificate!r} is no certificate whose key, without a password, is in"
            f" {key or certificate!r}"
        ) from None


def _yes_or_no(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError
    return text.lower() == "true"


def _requirement(text: str) -> str:
    if text not in {"required", "none"}:
        raise ValueError
    return text


def _seconds(text: str) -> float:
    seconds = float(text)
    if not LONGEST_WAIT_SECONDS < seconds < 3600:
        raise AddressRefused(
            f"socket_timeout={text} in the broker's url must be more than {LONGEST_WAIT_SECONDS:g} s, for which a read"
            " waits while there is nothing to do; leave it out"
        )
    return seconds


def _words(text: str) -> str:
    if not text:
        raise ValueError
    return text


_TLS: dict[str, Callable[[str], str | bool]] = {
    "ssl_ca_certs": _file,
    "ssl_ca_path": _file,
    "ssl_certfile": _file,
    "ssl_keyfile": _file,
    "ssl_check_hostname": _yes_or_no,
    "ssl_cert_reqs": _requirement,
}
_OF_SENTINELS = {"sentinel_username", "sentinel_password"}
_OPTIONS: dict[str, Callable[[str], str | bool | float]] = {
    **_TLS,
    **dict.fromkeys(_OF_SENTINELS, _words),
    "socket_timeout": _seconds,
    "stream": _words,
}


_NAME = re.compile("[a-z_]{1,30}")
"""What may be repeated: anything else is hardly a misspelled option."""


def _options(query: str) -> dict[str, Any]:
    read = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            named = repr(name) if _NAME.fullmatch(name) else "something behind the ?"
            raise AddressRefused(f"{named} is no option of the broker's url; there are {', '.join(sorted(_OPTIONS))}")
        try:
            read[name] = _OPTIONS[name](text)
        except AddressRefused:
            raise
        except ValueError:
            raise AddressRefused(f"the broker's url has no valid value for {name}") from None
    return read
