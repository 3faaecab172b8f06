"""What must not be reached: the ranges of addresses, the ways to write one of them, and a listener that tells.

The ranges are written down a second time here, from the registries, so that a row lost from the module's tables is
missed.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from ipaddress import ip_address, ip_network
from types import TracebackType
from typing import Self

_IPV4 = """
    0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
    192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24
    203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 255.255.255.255/32 168.63.129.16/32
"""
_IPV6 = """
    ::/128 ::1/128 ::/96 ::ffff:0:0:0/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001::/32
    2001:2::/48 2001:10::/28 2001:20::/28 2001:30::/28 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20 5f00::/16
    fc00::/7 fe80::/10 fec0::/10 ff00::/8 ::/3 4000::/3 6000::/3 8000::/1
"""
REFUSED_IPV4, REFUSED_IPV6 = _IPV4.split(), _IPV6.split()

_EMBEDDED = """
    ::ffff:127.0.0.1 ::ffff:10.0.0.5 ::ffff:169.254.169.254 ::ffff:100.64.0.1 ::10.0.0.1 ::a9fe:a9fe
    64:ff9b:1::a9fe:a9fe 64:ff9b:1:fffe::1 64:ff9b::a9fe:a9fe 2002:7f00:1::1 2002:a9fe:a9fe::1
    2001:0:4136:e378:8000:63bf:f5ff:fffe ::ffff:0:127.0.0.1
"""
EMBEDDED = _EMBEDDED.split()
"""Addresses that carry another one (C27, C30 to C32)."""


def samples(network: str) -> tuple[str, str, str]:
    """The first, the middle and the last address of a range."""
    addresses = ip_network(network)
    return str(addresses[0]), str(addresses[addresses.num_addresses // 2]), str(addresses[-1])


_THIS_MACHINE = """
    127.0.0.1 127.0.0.2 127.1.2.3 127.255.255.254 127.1 127.0.1 127.0.0.01 127.00.0.1 127.0.0.1.
    2130706433 0x7f000001 0X7F000001 017700000001 0x7f.0.0.1 0x7f.1 0X7F.0X0.0X0.0X1
    0177.0.0.1 0177.1 0177.0.0.01 0 00 0x0 0.0.0.0 0.0.0.1 0.1
    localhost LOCALHOST LocalHost localhost. a.localhost a.b.localhost. loc%61lhost
    127%2e0%2e0%2e1 %31%32%37.0.0.1 127.0.0.1%00.example.test
    [::1] [0:0:0:0:0:0:0:1] [::0001] [0000::1] [::] [0::0] [::1%lo] [::1%25lo] [::1]. ::1 [[::1]]
    [::ffff:127.0.0.1] [::FFFF:127.0.0.1] [::ffff:7f00:1] [0:0:0:0:0:ffff:7f00:0001] [::ffff:0.0.0.0]
    [::127.0.0.1] [::7f00:1] [::ffff:0:127.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b::7f00:1] [2002:7f00:1::]
    [127.0.0.1] [::ffff:127.1] [v1.127.0.0.1]
    user@127.0.0.1 user:pass@127.0.0.1 example.test@127.0.0.1 @127.0.0.1 127.0.0.1\\@example.test
    example.test#@127.0.0.1
"""
_IN_OTHER_CHARACTERS = [
    "\u24d1.localhost",
    "\u24dbocalhost",
    "localhost\u3002",
    "local\u00adhost",
    "\u2460\u2461\u2466.\u24ea.\u24ea.\u2460",
    "\uff11\uff12\uff17.\uff10.\uff10.\uff11",
    "127\u30020\uff0e0\uff611",
    "127.0.0.1\t",
]
_OTHERS = """
    169.254.169.254 0xa9fea9fe 2852039166 169.254.43518 0251.0376.0251.0376 [::ffff:a9fe:a9fe]
    [fd00:ec2::254] 100.100.100.200 192.0.0.192 168.63.129.16
    10.0.0.1 012.0.0.1 172.16.0.1 192.168.0.1 192.168.1 100.64.0.1 [fd00::1] [fe80::1] [fe80::1%25eth0]
"""
SPELLINGS = [*_THIS_MACHINE.split(), *_IN_OTHER_CHARACTERS, *_OTHERS.split()]
"""Hosts, as somebody would write them into a url: this machine, metadata services and private networks."""


def own_address() -> str | None:
    """The address from which this machine speaks to others; None for one that is alone."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as speaker:
        try:
            speaker.connect(("192.0.2.200", 9))  # sends nothing; the kernel chooses the address to send from
        except OSError:
            return None
        spoken = str(speaker.getsockname()[0])
    return None if ip_address(spoken).is_loopback else spoken


class Trap:
    """A listener on every address of this machine, at one port, that counts who connects; a context manager."""

    def __init__(self) -> None:
        self.connections = 0
        self._listeners = [socket.socket(socket.AF_INET), socket.socket(socket.AF_INET6)]
        self._listeners[0].bind(("0.0.0.0", 0))
        self.port: int = self._listeners[0].getsockname()[1]
        self._listeners[1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self._listeners[1].bind(("::", self.port))
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._count, args=(each,)) for each in self._listeners]

    def __enter__(self) -> Self:
        for listener, thread in zip(self._listeners, self._threads, strict=True):
            listener.listen(128)
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for listener in self._listeners:
            listener.close()

    def url(self, host: str) -> str:
        """A url that leads here, if the host is this machine."""
        return f"http://{host}:{self.port}/hook"

    def wait_for(self, connections: int, within: float = 10.0) -> None:
        """Return once so many have connected. Raises `AssertionError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.connections >= connections, within):
                raise AssertionError(f"{self.connections} connected, not {connections}")

    def _count(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # the trap is taken away
                return
            connection.close()
            with self._changed:
                self.connections += 1
                self._changed.notify_all()
