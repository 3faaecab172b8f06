"""The examination of this machine: its ports, its disk, the files that TLS needs.

Owns these checks. They need nobody's answer but the kernel's, and that of whatever holds a port.
"""

from __future__ import annotations

import errno
import shutil
import ssl
import time
from pathlib import Path

import httpx

from relay.app.brokerage import broker_address
from relay.app.doctor.findings import Finding, Findings, fault, ok, warning
from relay.app.faults import CannotRun
from relay.app.listening import listen, url_of
from relay.app.tls import tls_of
from relay.sender import NoAuthorities
from relay.sender.authorities import find
from relay.settings import Bind, Settings, SettingsError, cautions

PORT_SECONDS = 2.0

NEARLY_FULL, FULL = 0.10, 0.02
"""Shares of the disk that are free. PostgreSQL needs room for its log of writes before anything else fails."""

GIB = 1 << 30
ENOUGH_BYTES = 20 * GIB
"""Free room that is no worry, however small a share of the disk it is."""


def examine_settings(settings: Settings) -> Findings:
    """Settings that cannot be used as they are, or hardly should."""
    try:
        broker_address(settings)
    except SettingsError as refused:
        return tuple(fault("settings", line) for line in str(refused).splitlines())
    told = [warning("settings", each) for each in cautions(settings)]
    return tuple(told) or (ok("settings", "all can be read; `relay config` shows them"),)


def examine_authorities() -> Findings:
    """The certificate authorities by which endpoints are trusted."""
    try:
        bundle = find(None)
    except NoAuthorities as nowhere:
        return (fault("authorities", f"{nowhere}: install the system's (package ca-certificates)"),)
    try:
        count = len(ssl.create_default_context(cafile=str(bundle)).get_ca_certs())
    except (OSError, ssl.SSLError) as unreadable:
        return (fault("authorities", f"{bundle} cannot be read ({unreadable}): install the package ca-certificates"),)
    if not count:
        return (fault("authorities", f"{bundle} holds no certificate: install the package ca-certificates"),)
    return (ok("authorities", f"{count} in {bundle}"),)


def examine_certificate(settings: Settings) -> Findings:
    """The gateway's own certificate, if it is to show one, and whose it takes from clients."""
    try:
        tls = tls_of(settings)
    except CannotRun as trouble:
        return (fault("certificate", str(trouble)),)
    if tls is None:
        return ()
    fits = ok("certificate", f"{tls.certificate} and its key fit")
    return (fits,) if tls.client_ca is None else (fits, _client_authorities(tls.context(), tls.client_ca))


def _client_authorities(context: ssl.SSLContext, path: Path) -> Finding:
    """The authorities of client certificates, which `context` trusts."""
    count, now = context.cert_store_stats()["x509"], time.time()
    over = sum(ssl.cert_time_to_seconds(str(each["notAfter"])) < now for each in context.get_ca_certs())
    if over:
        return warning("client authorities", f"{over} of {count} in {path} have expired: nobody they signed gets in")
    return ok("client authorities", f"{count} in {path}")


def examine_disk(settings: Settings) -> Findings:
    """Room for the embedded server's data; an outside server's disk is not ours to see."""
    if settings.database_url is not None:
        return ()
    folder = settings.data_dir.expanduser().absolute()
    try:
        usage = shutil.disk_usage(_there(folder))
    except OSError as trouble:
        return (fault("disk", f"{folder} cannot be looked at: {trouble.strerror}"),)
    share = usage.free / usage.total if usage.total else 0.0
    text = f"{usage.free / GIB:.1f} GiB free for {folder}, {share:.0%} of the disk"
    if share < FULL and usage.free < ENOUGH_BYTES:
        return (fault("disk", f"{text}: make room, or the database stops"),)
    if share < NEARLY_FULL and usage.free < ENOUGH_BYTES:
        return (warning("disk", f"{text}: make room soon"),)
    return (ok("disk", text),)


def _there(folder: Path) -> Path:
    """The folder, or the nearest above it that exists."""
    return next(each for each in (folder, *folder.parents) if each.exists())


def examine_port(bind: Bind, setting: str, *, scheme: str = "http", needed: bool = True) -> Findings:
    """Whether a service could listen there, or Relay does already."""
    check = f"port {bind.port}"
    try:
        listen(bind, setting).close()
    except CannotRun as trouble:
        if isinstance(trouble.__cause__, OSError) and trouble.__cause__.errno == errno.EADDRINUSE:
            return (_holder(check, bind, str(trouble), scheme, needed=needed),)
        return (fault(check, str(trouble)),)
    return (ok(check, f"{bind} is free ({setting})"),)


def _holder(check: str, bind: Bind, text: str, scheme: str, *, needed: bool) -> Finding:
    """Who holds a port cannot be known; whether it speaks like Relay can."""
    url = url_of(bind, scheme)
    try:
        answer = httpx.get(
            f"{url}/healthz",
            timeout=PORT_SECONDS,
            trust_env=False,
            verify=False,  # noqa: S501 - a look at who is there, which is told nothing
        )
        is_ours = "status" in answer.json()
    except (httpx.HTTPError, ValueError, TypeError):
        is_ours = False
    if is_ours:
        return ok(check, f"Relay answers at {url}")  # whether it does on all that `bind` means cannot be known
    text = f"{text} (whose it is cannot be known from here; it does not answer like Relay)"
    return fault(check, text) if needed else warning(check, text)
