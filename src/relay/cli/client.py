"""Calls to Relay's HTTP API, for the commands that are clients.

Owns the connection, the walk over the pages of a list, and the words for what can go wrong with a call. A proxy of the
environment is used for a Relay elsewhere and never for one on this machine, where it would send the event, or the key,
on a detour. The authorities in SSL_CERT_FILE and SSL_CERT_DIR are believed for both. Redirects are not followed: the
key is for the address that was given. Invariant: a call ends within its timeout, as an answer or as `CommandFailed`.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx

from relay import __version__
from relay.cli.failures import WRONG_USAGE, CommandFailed
from relay.settings import Settings

TIMEOUT = httpx.Timeout(30.0, connect=5.0)
"""Seconds for each step of a call: writing, and waiting for the next bytes."""

PAGE = 100

_OTHER_NAMES = frozenset({62, 64})
_OTHER_TIMES = frozenset({9, 10})
"""Of OpenSSL's codes of verification: another host name or address; not yet valid, or no longer."""

EVERYTHING: Mapping[str, str | None] = MappingProxyType({})


_OVER_TLS = "look at its log; if it speaks TLS, RELAY_URL begins with https://"
"""A server that waits for TLS ends a connection on which something else comes."""


class Unanswered(CommandFailed):
    """No answer came; what was asked for may have been done."""


class NotReached(Unanswered):
    """There was no connection, so nothing was done."""


class Refused(CommandFailed):
    """Relay answered that it will not, with this status."""

    def __init__(self, text: str, status: int, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.problem = problem

    def reworded(self, text: str) -> Refused:
        """The same refusal in other words."""
        return Refused(text, self.status, self.problem)


class Client:
    """Calls to one Relay."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def call(self, method: str, path: str, *, body: object = None, key: str | None = None) -> Any:  # noqa: ANN401 - JSON
        """Send a JSON body, or none; answers the JSON of a 2xx, None for one without a body. Raises `CommandFailed`.

        `key` names the request: under the same one it is carried out once, however often it is sent.
        """
        content = b"" if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        if key is not None:
            headers["idempotency-key"] = key
        response = self.send(method, path, content=content, headers=headers)
        return _document(response) if response.content else None

    def send(self, method: str, path: str, *, content: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Send these bytes; answers a 2xx. Raises `CommandFailed` with what the problem document says."""
        try:
            response = self._http.request(method, path, content=content, headers=dict(headers))
        except (httpx.ConnectError, httpx.ConnectTimeout) as fault:
            if isinstance(cause := _innermost(fault), ssl.SSLCertVerificationError):
                raise NotReached(_distrust(self._where, cause)) from fault
            raise NotReached(f"{self._where} cannot be reached ({_cause(fault)}): {self._remedy}") from fault
        except httpx.TimeoutException as fault:
            raise Unanswered(f"{self._where} did not answer in time: look at its /readyz and its log") from fault
        except httpx.HTTPError as fault:
            remedy = _OVER_TLS if str(self._http.base_url).startswith("http:") else self._remedy
            raise Unanswered(f"{self._where} did not answer ({_cause(fault)}): {remedy}") from fault
        if response.is_success:
            return response
        problem = _problem(response)
        raise Refused(_refusal(response, problem, self._where), response.status_code, problem)

    def pages(
        self, path: str, query: Mapping[str, str | None] = EVERYTHING, *, size: int = PAGE
    ) -> Iterator[dict[str, Any]]:
        """Every item of a list, page after page; a page may be empty and yet not be the last."""
        asked = {name: value for name, value in query.items() if value is not None}
        asked["limit"] = str(min(size, PAGE))
        while True:
            page = self.call("GET", f"{path}?{urlencode(asked)}")
            yield from page["data"]
            if not page["next_cursor"]:
                return
            asked["cursor"] = page["next_cursor"]

    @property
    def _where(self) -> str:
        return f"Relay at {str(self._http.base_url).rstrip('/')}"

    @property
    def _remedy(self) -> str:
        if is_this_machine(str(self._http.base_url)):
            return "start it with `relay up`, or set RELAY_URL"
        return "check RELAY_URL and that it runs"


@contextmanager
def connect(settings: Settings) -> Iterator[Client]:
    """A client of the Relay at `RELAY_URL`, with the key in `RELAY_API_KEY`. Raises `CommandFailed`."""
    headers = {"user-agent": f"relay-cli/{__version__}", "accept": "application/json"}
    if settings.api_key is not None:
        key = settings.api_key.expose()
        if not (key.isascii() and key.isprintable()):
            raise CommandFailed("RELAY_API_KEY holds characters that no key has: copy it anew", WRONG_USAGE)
        headers["authorization"] = f"Bearer {key}"
    with httpx.Client(
        base_url=settings.url,
        headers=headers,
        timeout=TIMEOUT,
        trust_env=not is_this_machine(settings.url),
        verify=trusted(settings.url),
        follow_redirects=False,
    ) as http:
        yield Client(http)


def is_this_machine(url: str) -> bool:
    """Whether the url leads to this machine, without asking anybody."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def trusted(url: str) -> ssl.SSLContext | bool:
    """Whom to believe a certificate: the authorities that the environment names, or else the usual ones.

    Raises `CommandFailed` if they cannot be read.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not (file or folder) or urlsplit(url).scheme != "https":
        return True
    try:
        return ssl.create_default_context(cafile=file or None, capath=folder or None)
    except OSError as fault:
        where = "SSL_CERT_FILE" if file else "SSL_CERT_DIR"
        why = fault.strerror or type(fault).__name__
        raise CommandFailed(
            f"{where} cannot be read ({why}): name a file of certificates in PEM", WRONG_USAGE
        ) from fault


def _distrust(where: str, fault: ssl.SSLCertVerificationError) -> str:
    """What to do about a certificate that is not believed."""
    if fault.verify_code in _OTHER_NAMES:
        remedy = "set RELAY_URL to a name that it has"
    elif fault.verify_code in _OTHER_TIMES:
        remedy = "renew it there, or set the clock here"
    else:
        remedy = "set SSL_CERT_FILE to a file with the certificate of its authority, in PEM"
    return f"{where} shows a certificate that is not believed ({fault.verify_message.rstrip('.')}): {remedy}"


def _cause(fault: httpx.HTTPError) -> str:
    """The innermost reason: the outer ones repeat that the connection failed."""
    cause = _innermost(fault)
    words = (cause.strerror if isinstance(cause, OSError) else None) or str(cause) or type(cause).__name__
    return " ".join(words.split())


def _innermost(fault: BaseException) -> BaseException:
    while fault.__cause__ is not None or fault.__context__ is not None:
        fault = fault.__cause__ or fault.__context__ or fault
    return fault


def _document(response: httpx.Response) -> Any:  # noqa: ANN401 - JSON is what it is
    try:
        return response.json()
    except ValueError as fault:
        kind = response.headers.get("content-type", "no content type")
        raise CommandFailed(
            f"{response.request.url} answered {response.status_code} with {kind}, not with JSON: is RELAY_URL a Relay?"
        ) from fault


def _refusal(response: httpx.Response, problem: dict[str, Any] | None, where: str) -> str:
    """What a refused call says, from its problem document."""
    if problem is None:
        return f"{where} answered {response.status_code} {response.reason_phrase}: is RELAY_URL a Relay?"
    reason = problem.get("reason")
    code = f"{problem['code']}: {reason}" if isinstance(reason, str) else problem["code"]
    text = f"{problem.get('detail') or problem.get('title')} ({code})"
    errors = problem.get("errors")
    if isinstance(errors, list) and len(errors) > 1:
        further = errors[1:] if str(errors[0].get("detail")) in text else errors
        text += ": " + "; ".join(map(_named, further))
    if response.status_code == 401:
        text += "; set RELAY_API_KEY to a valid key"
    if problem.get("scope") == "operator":
        text += (
            "; whoever reaches the database makes a key that has it: `relay keys create ops --local --scope operator`"
        )
    return text


def _named(error: Mapping[str, Any]) -> str:
    """A fault with the place that it is at, which for the whole has no words."""
    where = error.get("pointer")
    return f"{where}: {error.get('detail')}" if where else str(error.get("detail"))


def _problem(response: httpx.Response) -> dict[str, Any] | None:
    try:
        found = response.json()
    except ValueError:
        return None
    return found if isinstance(found, dict) and "code" in found else None
