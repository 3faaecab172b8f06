"""A webhook receiver as a customer would write one in Python: a small HTTP server around the library of a vendor.

It is a program of its own and knows nothing of Relay: `python receiver.py LIBRARY` listens on a free port of loopback,
prints it as a line of JSON and runs until its stdin ends. Its hooks are paths:

    POST /NAME   a delivery: 204 if the library verifies it, 401 if not; while the hook is busy, 503 for what verifies
    PUT /NAME    what the hook trusts: {"secrets": [text, ...], "busy": how many deliveries are turned away first}
    GET /NAME    what was delivered so far, in order, with the hash of the bytes as they arrived

`receiver.mjs` is the same in JavaScript.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FRESH_SECONDS = 300

Verify = Callable[[bytes, Mapping[str, str], str], None]
"""Raises something unless this body with these headers (names in lower case) bears the signature of this secret."""


def _standardwebhooks() -> Verify:
    import standardwebhooks  # noqa: PLC0415 - each program has one library

    def verify(body: bytes, headers: Mapping[str, str], secret: str) -> None:
        standardwebhooks.Webhook(secret).verify(body, dict(headers), json_parse=False)

    return verify


def _svix() -> Verify:
    import svix.webhooks  # noqa: PLC0415 - each program has one library

    def verify(body: bytes, headers: Mapping[str, str], secret: str) -> None:
        svix.webhooks.Webhook(secret).verify(body, dict(headers))

    return verify


def _stripe() -> Verify:
    import stripe  # noqa: PLC0415 - each program has one library

    def verify(body: bytes, headers: Mapping[str, str], secret: str) -> None:
        stripe.WebhookSignature.verify_header(body, headers["stripe-signature"], secret, FRESH_SECONDS)

    return verify


def _documented() -> Verify:
    """No library: what the documentation of each profile asks of a receiver, over the bytes, which may be any."""

    def verify(body: bytes, headers: Mapping[str, str], secret: str) -> None:
        at, given, expected = _expected(body, headers, secret)
        if at is not None and abs(time.time() - int(at)) > FRESH_SECONDS:
            raise ValueError("too old or too new")
        if not any(hmac.compare_digest(expected, each) for each in given):
            raise ValueError("no matching signature")

    return verify


def _expected(body: bytes, headers: Mapping[str, str], secret: str) -> tuple[str | None, list[str], str]:
    """The time that was signed, if any; the signatures that came; the one that should be among them."""

    def code(key: bytes, signed: bytes) -> bytes:
        return hmac.new(key, signed, hashlib.sha256).digest()

    key = secret.encode()
    if "relay-signature" in headers:
        at = headers["relay-timestamp"]
        return at, headers["relay-signature"].split(","), "v1=" + code(key, at.encode() + b"." + body).hex()
    if "webhook-signature" in headers:
        at = headers["webhook-timestamp"]
        signed = f"{headers['webhook-id']}.{at}.".encode() + body
        signature = code(base64.b64decode(secret.removeprefix("whsec_")), signed)
        return at, headers["webhook-signature"].split(" "), "v1," + base64.b64encode(signature).decode()
    if "stripe-signature" in headers:
        first, *given = headers["stripe-signature"].split(",")
        at = first.removeprefix("t=")
        return at, given, "v1=" + code(key, at.encode() + b"." + body).hex()
    return None, [headers["x-hub-signature-256"]], "sha256=" + code(key, body).hex()


LIBRARIES: Mapping[str, Callable[[], Verify]] = {
    "documented": _documented,
    "standardwebhooks": _standardwebhooks,
    "stripe": _stripe,
    "svix": _svix,
}


class Hook:
    """What one path trusts and has seen."""

    def __init__(self) -> None:
        self.secrets: list[str] = []
        self.busy = 0
        self.seen: list[dict[str, Any]] = []


class Hooks:
    """All paths, for the threads of all connections."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify
        self._lock = threading.Lock()
        self._hooks: dict[str, Hook] = {}

    def set(self, path: str, wanted: Mapping[str, Any]) -> None:
        """Replace what a hook trusts."""
        with self._lock:
            hook = self._hooks.setdefault(path, Hook())
            hook.secrets, hook.busy = list(wanted["secrets"]), int(wanted["busy"])

    def seen(self, path: str) -> list[dict[str, Any]]:
        """What a hook has seen."""
        with self._lock:
            return list(self._hooks[path].seen)

    def deliver(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        """Judge one delivery; answers the status and why it is not 204."""
        arrived_at = time.time()
        with self._lock:
            hook = self._hooks[path]
            secrets = list(hook.secrets)
        status, why = 401, "no secret is trusted"
        for secret in secrets:
            try:
                self._verify(body, headers, secret)
            except Exception as refusal:  # noqa: BLE001 - whatever a library raises is its way of refusing
                why = f"{type(refusal).__name__}: {refusal}"
            else:
                status, why = 204, ""
                break
        with self._lock:
            if status == 204 and hook.busy > 0:
                hook.busy -= 1
                status, why = 503, "busy"
            sha256 = hashlib.sha256(body).hexdigest()
            hook.seen.append(
                {"status": status, "why": why, "sha256": sha256, "at": arrived_at, "headers": dict(headers)}
            )
        return status, why


class Connection(BaseHTTPRequestHandler):
    """One connection, kept for as many requests as the client likes."""

    protocol_version = "HTTP/1.1"
    hooks: Hooks

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, why = self.hooks.deliver(self.path, headers, self._body())
        self._answer(status, why.encode())

    def do_PUT(self) -> None:
        self.hooks.set(self.path, json.loads(self._body()))
        self._answer(204)

    def do_GET(self) -> None:
        self._answer(200, json.dumps(self.hooks.seen(self.path)).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by the library
        """Say nothing; the tests ask."""

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["content-length"]))

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if status != 204:
            self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """All connections, a thread each."""

    daemon_threads = True
    request_queue_size = 128


def main() -> None:
    """Serve until stdin ends."""
    Connection.hooks = Hooks(LIBRARIES[sys.argv[1]]())
    with Server(("127.0.0.1", 0), Connection) as server:
        sys.stdout.write(json.dumps({"port": server.server_address[1]}) + "\n")
        sys.stdout.flush()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
