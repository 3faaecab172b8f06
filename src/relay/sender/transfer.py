"""A transfer: one libcurl handle, used again and again, and the request that it carries at the moment.

Owns the options, every one set on purpose, what libcurl calls during a transfer, and the making of facts. Invariants:
nothing is raised out of a callback; no address is dialled that is not pinned and judged once more at that moment; a
transfer that was cleared holds nothing of its request but the pin with its url, which the next one may share.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import pycurl

from relay.domain.egress import EgressPolicy, Refusal, RefusalReason, judge_address
from relay.domain.sending import ErrorClass, OutboundRequest, Phases, SendFacts
from relay.sender import failure, progress, response
from relay.sender.limits import SendLimits
from relay.sender.request import header_lines
from relay.sender.route import Pin, Route
from relay.sender.wire import OnFault

Token = TypeVar("Token")

SWITCHING_PROTOCOLS = 101

PINNED_SECONDS = 2
"""How long libcurl remembers the addresses of a pin, which it is told before every request. It walks through all it
remembers after every request, so this is kept as short as its clock allows for sure."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What all transfers of a sender share. `opening` is called before a socket is made."""

    policy: EgressPolicy
    limits: SendLimits
    authorities: Path
    opening: Callable[[], None]
    on_fault: OnFault


class _Opened(socket.socket):
    """A socket that pycurl copies and lets go of; the copy is libcurl's, and this one is closed without complaint."""

    __slots__ = ()

    def __del__(self) -> None:
        if self.fileno() >= 0:  # it has none if it could not be made
            self.close()


class Transfer(Generic[Token]):
    """A handle and its request. `begin` → `prepare` → libcurl → `facts` → `clear`, and again.

    `turn` counts the requests that were cleared: who comes back to a transfer later can tell whether it is still the
    same one.
    """

    __slots__ = (
        "_body_seen",
        "_connect_ms",
        "_dialled",
        "_fresh",
        "_head",
        "_local_trouble",
        "_lost_pin",
        "_pin",
        "_refusal",
        "_setting",
        "_snippet",
        "_total_ms",
        "connecting_since",
        "curl",
        "had_to_wait",
        "has_left",
        "held_up",
        "moved",
        "moved_at",
        "on_wire_at",
        "received_before",
        "request",
        "route",
        "submitted_at",
        "token",
        "turn",
    )

    token: Token
    request: OutboundRequest
    route: Route

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self.curl = pycurl.Curl()
        self._head: list[bytes] = []
        self._snippet = b""
        self._body_seen = 0
        self._pin: Pin | None = None
        self._connect_ms = self._total_ms = -1
        self._dialled = self._fresh = self._lost_pin = False
        self._refusal: Refusal | None = None
        self._local_trouble = ""
        self.submitted_at = self.connecting_since = self.moved_at = 0.0
        self.had_to_wait = self.has_left = self.held_up = False
        self.on_wire_at: float | None = None
        self.moved = self.received_before = -1
        self.turn = 0
        self._set_options()

    def begin(self, token: Token, request: OutboundRequest, route: Route, now: float) -> None:
        """Take a request, whose time begins `now`; that of connecting begins anew once it has waited for a place."""
        self.token, self.request, self.route = token, request, route
        self.submitted_at = self.connecting_since = now
        self.had_to_wait = self.has_left = self.held_up = False

    @property
    def deadline(self) -> float:
        """When the request's whole time is over."""
        return self.submitted_at + self.request.timeout_seconds

    def prepare(self, now: float) -> None:
        """Tell libcurl everything about the request. Raises `Unsendable`; the route's pin must be fresh."""
        curl, request, pin = self.curl, self.request, self.route.pin
        assert pin is not None, "a route is resolved before a transfer uses it"
        curl.setopt(pycurl.HTTPHEADER, header_lines(request.headers))
        if pin is not self._pin:
            curl.setopt(pycurl.URL, pin.url)
            curl.setopt(pycurl.CONNECT_TO, pin.connect_to)
            self._pin = pin
        self._tell_addresses()
        curl.setopt(pycurl.POSTFIELDS, request.body)
        self._set_times(now - self.submitted_at, now - self.connecting_since)

    def died_with_its_connection(self, code: int) -> bool:
        """Whether a kept connection failed before the answer began, so that it says nothing about the endpoint.

        libcurl takes the next kept connection by itself, but gives up after five, and all may be dead. By the time it
        wants a new one, it may have forgotten the addresses.
        """
        if self._dialled or self._head or self._fresh:
            return False
        if self._lost_pin:
            return bool(self.curl.getinfo(pycurl.REQUEST_SIZE))
        return code in failure.OF_THE_CONNECTION

    def renew(self, now: float) -> None:
        """Make ready for one more try, on a connection of its own, within what is left of the total time."""
        self._fresh = True
        self.curl.setopt(pycurl.FRESH_CONNECT, 1)
        self._tell_addresses()
        self._reset()
        self._set_times(now - self.submitted_at, 0.0)

    def _tell_addresses(self) -> None:
        """Tell libcurl the addresses behind the pin's name. It takes them once, at the beginning of a transfer."""
        assert self._pin is not None, "a transfer is prepared before it is renewed"
        if self._pin.resolve:
            self.curl.setopt(pycurl.RESOLVE, self._pin.resolve)

    @property
    def is_new_connection(self) -> bool:
        """Whether the transfer opened its connection."""
        return self._dialled

    @property
    def is_connected(self) -> bool:
        """Whether the transfer has a connection that is ready for its request, TLS included."""
        return self._connected_after() is not None

    @property
    def is_multiplexed(self) -> bool:
        """Whether the transfer, which ended, spoke HTTP/2."""
        version: int = self.curl.getinfo(pycurl.INFO_HTTP_VERSION)
        return version == pycurl.CURL_HTTP_VERSION_2_0

    def facts(self, code: int, text: str, now: float) -> SendFacts:
        """What came of it, by libcurl's error code (0 for none) and text."""
        if not code:
            if response.has_two_lengths(self._head):
                self._spoil()
            return self._answered(None, "", now)
        if code == pycurl.E_WRITE_ERROR and self._body_seen > self._setting.limits.response_cap_bytes:
            return self._answered(None, "the response is longer than the cap; the rest was not read", now)
        error, detail = self._explain(code, text, now)
        return self._answered(error, detail, now)

    def is_flooded(self, fd: int) -> bool:
        """Whether more came on its connection than the longest answer that is read takes.

        libcurl reads what frames a body, chunk extensions above all, without end and without a word to anybody. On a
        kept connection only what comes from the first look on is known to be this answer's.
        """
        received = progress.bytes_received(self.curl, fd)
        if received is None:
            return False
        if self.received_before < 0:
            self.received_before = 0 if self._dialled else received
        limits = self._setting.limits
        return received - self.received_before > limits.response_cap_bytes + limits.framing_bytes

    def _spoil(self) -> None:
        fd = progress.socket_of(self.curl)
        if fd >= 0:
            progress.spoil(fd)

    def cut_short(self, error: ErrorClass, detail: str, now: float) -> SendFacts:
        """What came of it until it was ended from here."""
        if self.on_wire_at is None:
            phases = Phases(total_ms=(now - self.submitted_at) * 1000)
            return SendFacts(error_class=self.owned(error), detail=detail, phases=phases)
        return self._answered(error, detail, now)

    def clear(self) -> None:
        """Forget the request, libcurl's copies included: its headers may hold a customer's credentials."""
        self.curl.unsetopt(pycurl.HTTPHEADER)
        self.curl.setopt(pycurl.POSTFIELDS, b"")
        if self._fresh:
            self._fresh = False
            self.curl.setopt(pycurl.FRESH_CONNECT, 0)
        del self.token, self.request, self.route
        self.turn += 1
        self._reset()
        self.on_wire_at = None

    def _reset(self) -> None:
        self._head.clear()
        self._snippet = b""
        self._body_seen = 0
        self._dialled = self._lost_pin = False
        self._refusal = None
        self._local_trouble = ""
        self.moved = self.received_before = -1

    # -- options ------------------------------------------------------------------------------------------------------

    def _set_options(self) -> None:
        curl, limits = self.curl, self._setting.limits
        options: tuple[tuple[int, int | str], ...] = (
            (pycurl.NOSIGNAL, 1),
            (pycurl.POST, 1),
            # exactly this url, and nobody between: no redirects, no proxy and no .netrc from the environment
            (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
            (pycurl.REDIR_PROTOCOLS, 0),
            (pycurl.FOLLOWLOCATION, 0),
            (pycurl.PATH_AS_IS, 1),
            (pycurl.PROXY, ""),
            (pycurl.NOPROXY, "*"),
            (pycurl.NETRC, pycurl.NETRC_IGNORED),
            # certificates are verified against authorities that are named here, whatever the environment says
            (pycurl.SSL_VERIFYPEER, 1),
            (pycurl.SSL_VERIFYHOST, 2),
            (pycurl.CAINFO, str(self._setting.authorities)),
            (pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2),
            (pycurl.SSL_ENABLE_ALPN, 1),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS),
            (pycurl.HTTP09_ALLOWED, 0),
            # the body of a response is taken as it is: decompression is how a small one becomes a large one
            (pycurl.HTTP_CONTENT_DECODING, 0),
            (pycurl.TCP_NODELAY, 1),
            (pycurl.TCP_KEEPALIVE, 1),
            (pycurl.DNS_CACHE_TIMEOUT, PINNED_SECONDS),
            (pycurl.MAXAGE_CONN, limits.idle_seconds),
            (pycurl.MAXLIFETIME_CONN, limits.lifetime_seconds),
            # a request waits for no other's connection, not even to learn whether it can be shared
            (pycurl.PIPEWAIT, 0),
        )
        for option, value in options:
            curl.setopt(option, value)
        curl.unsetopt(pycurl.CAPATH)
        curl.setopt(pycurl.USERAGENT, "")  # pycurl would introduce itself
        # A built-in as the callback: no Python runs for the lines of a head, which libcurl itself bounds.
        curl.setopt(pycurl.HEADERFUNCTION, self._head.append)
        curl.setopt(pycurl.WRITEFUNCTION, self._take_body)
        curl.setopt(pycurl.OPENSOCKETFUNCTION, self._open)
        curl.setopt(pycurl.RESOLVER_START_FUNCTION, self._resolving)

    def _set_times(self, spent: float, spent_connecting: float) -> None:
        """What is left of the request's times after so many seconds; set anew only where it differs."""
        total = max(1, int((self.request.timeout_seconds - spent) * 1000))
        connect = max(1, int((self._setting.limits.connect_seconds - spent_connecting) * 1000))
        if total != self._total_ms:
            self.curl.setopt(pycurl.TIMEOUT_MS, total)
            self._total_ms = total
        if connect != self._connect_ms:
            self.curl.setopt(pycurl.CONNECTTIMEOUT_MS, connect)
            self._connect_ms = connect

    # -- what libcurl calls: nothing may be raised from here ---------------------------------------------------------

    def _take_body(self, data: bytes) -> int | None:
        """Keep the head of the body; beyond the cap, refuse the bytes, which makes libcurl drop the connection."""
        self._body_seen += len(data)
        limits = self._setting.limits
        if len(self._snippet) < limits.snippet_bytes:
            self._snippet = (self._snippet + data)[: limits.snippet_bytes]
        return None if self._body_seen <= limits.response_cap_bytes else 0

    def _resolving(self) -> int:
        """Let libcurl read an address; a name that it does not remember it must never ask the system for."""
        self._lost_pin = self._pin is None or bool(self._pin.resolve)
        return int(self._lost_pin)

    def _open(self, _purpose: int, address: pycurl.CurlSockAddr) -> socket.socket | int:
        """Make the socket for an address that libcurl is about to dial, if it is one of the judged ones."""
        try:
            self._dialled = True
            refusal = self._judge(str(address.addr[0]), address.addr[1])
            if refusal is not None:
                self._refusal = refusal
                return pycurl.SOCKET_BAD
            self._setting.opening()
            return _Opened(address.family, address.socktype, address.protocol)
        except OSError as fault:
            self._local_trouble = fault.strerror or "no socket"
        except Exception as fault:  # noqa: BLE001 - libcurl is written in C: an exception has nowhere to go
            self._local_trouble = "no socket"
            self._setting.on_fault("a socket cannot be opened", fault)
        return pycurl.SOCKET_BAD

    def _judge(self, ip: str, port: int) -> Refusal | None:
        if self._pin is None or ip not in self._pin.addresses:
            return Refusal(RefusalReason.UNREADABLE_ADDRESS, "the dialled address is not the one that was judged")
        return judge_address(self._setting.policy, ip, port)

    # -- facts --------------------------------------------------------------------------------------------------------

    def _answered(self, error: ErrorClass | None, detail: str, now: float) -> SendFacts:
        """The facts of a transfer that libcurl had. A status counts once its head is complete."""
        getinfo = self.curl.getinfo
        status: int | None = getinfo(pycurl.RESPONSE_CODE)
        if status == SWITCHING_PROTOCOLS:
            error, detail = ErrorClass.PROTOCOL, "the protocol was switched without being asked"
        if not status or status < 200 or not response.is_complete(self._head):
            status = None
            if error is None:
                error, detail = ErrorClass.RESET, "the connection was closed in the middle of the response's head"
            error = self.owned(error)
        elif not response.has_status_line(self._head):
            status, error, detail = None, ErrorClass.PROTOCOL, "the status line of the response cannot be read"
            self._spoil()
        # Nobody asks for the headers of a success, and reading them costs a tenth of what sending does.
        headers = () if status is None or status < 300 else response.read_headers(self._head)
        return SendFacts(status, error, headers, self._snippet, detail, self._phases(now))

    def owned(self, error: ErrorClass) -> ErrorClass:
        """Trouble of this side is LOCAL only while nothing of the request can have left it."""
        return ErrorClass.CUT_SHORT if error is ErrorClass.LOCAL and self._may_have_left() else error

    def _may_have_left(self) -> bool:
        """Whether any byte of the request may be on its way; in doubt it is.

        libcurl writes as soon as a connection is ready. How much it wrote, it counts only afterwards, and over TLS not
        before the whole of a block is out; but it does not forget what went to a kept connection that then died.
        """
        if self.has_left or self.on_wire_at is None:
            return self.has_left
        return bool(self._connected_after() or self.curl.getinfo(pycurl.REQUEST_SIZE))

    def _phases(self, now: float) -> Phases:
        """The transfer's time, cut into consecutive spans; libcurl's instants are microseconds since it began."""
        assert self.on_wire_at is not None, "only a transfer that libcurl had has phases"
        getinfo = self.curl.getinfo
        total_ms = (now - self.submitted_at) * 1000
        ready = self._connected_after()
        if ready is None:
            return Phases(total_ms=total_ms)
        connect_ms = (self.on_wire_at - self.submitted_at) * 1000
        if self._dialled:
            connect_ms += ready / 1000
        if not self._head and getinfo(pycurl.SIZE_UPLOAD_T) < len(self.request.body):
            return Phases(0.0, connect_ms, None, None, total_ms)
        # An early answer may begin before the request was written to its end.
        sent = max(ready, getinfo(pycurl.POSTTRANSFER_TIME_T))
        if not self._head:
            return Phases(0.0, connect_ms, (sent - ready) / 1000, None, total_ms)
        first_byte = max(sent, getinfo(pycurl.STARTTRANSFER_TIME_T))
        return Phases(0.0, connect_ms, (sent - ready) / 1000, (first_byte - sent) / 1000, total_ms)

    def _connected_after(self) -> int | None:
        """After how many microseconds the connection, with TLS where there is TLS, was ready; None if it never was.

        libcurl fills in what is missing of its other instants when a transfer fails, but not these two.
        """
        getinfo = self.curl.getinfo
        if self._lost_pin:
            return None
        if not self._dialled:
            kept: int = getinfo(pycurl.PRETRANSFER_TIME_T)
            return kept
        over_tls = self.route.target.scheme == "https"
        ready: int = getinfo(pycurl.APPCONNECT_TIME_T if over_tls else pycurl.CONNECT_TIME_T)
        return ready or None

    def _explain(self, code: int, text: str, now: float) -> tuple[ErrorClass, str]:
        """The class and the sentence of a failure: first what this side did, then what libcurl says.

        What became of an address's socket counts only if no address was connected to. That this side had none for one
        of several addresses counts only if the system was not asked to connect to any other.
        """
        getinfo = self.curl.getinfo
        system_error = getinfo(pycurl.OS_ERRNO)
        if code == pycurl.E_COULDNT_CONNECT:
            if self._refusal is not None:
                return failure.refused_class(self._refusal.reason), self._refusal.detail
            if self._local_trouble and not system_error:
                return ErrorClass.LOCAL, self._local_trouble
        if self._lost_pin or code == pycurl.E_COULDNT_RESOLVE_HOST:
            self._setting.on_fault("libcurl looked for an address itself", RuntimeError(text))
            return ErrorClass.LOCAL, "the address was not at hand"
        if code == pycurl.E_OPERATION_TIMEDOUT and self._ended_connecting(now):
            return ErrorClass.CONNECT_TIMEOUT, failure.sentence(text)
        error = failure.error_class(code, system_error, text)
        if error is ErrorClass.TOTAL_TIMEOUT and self.had_to_wait:
            return ErrorClass.LOCAL, "part of the time went by while no connection was free"
        return error, failure.sentence(text)

    def _ended_connecting(self, now: float) -> bool:
        """Whether it was the bound of connecting that ended a transfer. libcurl counts in whole milliseconds, so the
        whole time may be over a little before this process's deadline."""
        return not self.is_connected and self._connect_ms < self._total_ms and now < self.deadline
