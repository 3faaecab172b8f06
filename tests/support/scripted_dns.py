"""A name server on loopback that answers as a test says, or not at all."""

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

A, AAAA, SOA = 1, 28, 6


@dataclass(frozen=True, slots=True)
class Records:
    """An answer: addresses of the asked family (others are left out), and how long they may be kept."""

    addresses: Sequence[str]
    ttl: int = 0


@dataclass(frozen=True, slots=True)
class Missing:
    """The name does not exist."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The server failed (SERVFAIL)."""


@dataclass(frozen=True, slots=True)
class Silent:
    """No answer ever; for AAAA alone if `only_ipv6`."""

    only_ipv6: bool = False
    addresses: Sequence[str] = ()


Answer = Records | Missing | Broken | Silent
Zone = Callable[[str, int], Answer]
"""From a name and how often it was asked for before (per family) to the answer."""


class ScriptedDns:
    """A listening name server; use it as a context manager. `asked` counts questions by name and type."""

    def __init__(self, zone: Zone) -> None:
        self._zone = zone
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.05)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.asked: Counter[tuple[str, int]] = Counter()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="scripted dns")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(5.0)
        self._socket.close()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                query, client = self._socket.recvfrom(2048)
            except TimeoutError:
                continue
            reply = self._reply(query)
            if reply is not None:
                self._socket.sendto(reply, client)

    def _reply(self, query: bytes) -> bytes | None:
        name, end = _read_name(query)
        kind = int.from_bytes(query[end : end + 2], "big")
        question = query[12 : end + 4]
        answer = self._zone(name, self.asked[name, kind])
        self.asked[name, kind] += 1
        match answer:
            case Silent(only_ipv6=False):
                return None
            case Silent(addresses=addresses):
                return None if kind == AAAA else _message(query, question, 0, addresses, kind, 0)
            case Missing():
                return _message(query, question, 3, (), kind, 0)
            case Broken():
                return _message(query, question, 2, (), kind, 0)
            case Records(addresses, ttl):
                return _message(query, question, 0, addresses, kind, ttl)


def _read_name(query: bytes) -> tuple[str, int]:
    labels, place = [], 12
    while length := query[place]:
        labels.append(query[place + 1 : place + 1 + length].decode("ascii").lower())
        place += length + 1
    return ".".join(labels), place + 1


def _message(query: bytes, question: bytes, code: int, addresses: Sequence[str], kind: int, ttl: int) -> bytes:
    family = socket.AF_INET6 if kind == AAAA else socket.AF_INET
    packed = [socket.inet_pton(family, each) for each in addresses if (":" in each) == (kind == AAAA)]
    records = [b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, ttl, len(each)) + each for each in packed]
    header = query[:2] + bytes([0x81, 0x80 | code]) + struct.pack("!HHHH", 1, len(records), 0, 0)
    return header + question + b"".join(records)
