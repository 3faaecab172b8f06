"""The examination of the gateway: whether a Relay answers at RELAY_URL, and what it says of itself.

Owns this one call.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import httpx

from relay.app.doctor.clocks import compare
from relay.app.doctor.findings import Finding, Findings, fault, ok, warning

ANSWER_SECONDS = 4.0
"""Less than a check may take: `/readyz` itself answers within two."""

_GRAIN = timedelta(seconds=2)
"""A `Date` header has whole seconds, and is renewed once a second."""


@dataclass(frozen=True, slots=True)
class GatewayFound:
    """The findings, and whether it is a Relay that answered."""

    findings: Findings
    answered: bool


async def examine_gateway(url: str, *, trust_env: bool, verify: ssl.SSLContext | bool = True) -> GatewayFound:
    """Ask the gateway whether it is ready. A proxy of the environment is used if `trust_env`; its certificate is to be
    one that `verify` believes."""
    asked = datetime.now(UTC)
    try:
        async with httpx.AsyncClient(
            timeout=ANSWER_SECONDS, trust_env=trust_env, verify=verify, follow_redirects=False
        ) as http:
            response = await http.get(f"{url.rstrip('/')}/readyz")
    except httpx.TimeoutException:
        return _failed(f"nothing answers at {url} within {ANSWER_SECONDS:g} s: look at its log")
    except httpx.HTTPError as trouble:
        if (distrust := _distrust(trouble)) is not None:
            return _failed(
                f"the certificate that {url} shows is not believed ({distrust}): set SSL_CERT_FILE to a file with that"
                " of its authority, or RELAY_URL to a name that it has"
            )
        why = " ".join(str(trouble).split()) or type(trouble).__name__
        return _failed(
            f"nothing answers at {url} ({why}): start it with `relay up` or `relay gateway`, or set RELAY_URL"
        )
    answered = datetime.now(UTC)
    checks = _checks(response)
    if checks is None:
        return _failed(f"what answers at {url} is no Relay (it says {response.status_code}): set RELAY_URL")
    return GatewayFound((*_told(url, checks), *_clock(response, asked, answered)), answered=True)


def _distrust(trouble: BaseException | None) -> str | None:
    """Why a certificate is not believed; None if something else is the matter."""
    while trouble is not None:
        if isinstance(trouble, ssl.SSLCertVerificationError):
            return str(trouble.verify_message).rstrip(".")
        trouble = trouble.__cause__ or trouble.__context__
    return None


def _failed(text: str) -> GatewayFound:
    return GatewayFound((fault("gateway", text),), answered=False)


def _checks(response: httpx.Response) -> Mapping[str, str] | None:
    """The checks of `/readyz`; None if it is something else that answered."""
    try:
        document = response.json()
    except ValueError:
        return None
    checks = document.get("checks") if isinstance(document, dict) and "ready" in document else None
    return checks if isinstance(checks, dict) else None


def _told(url: str, checks: Mapping[str, str]) -> Findings:
    bad = {name: said for name, said in checks.items() if said != "ok"}
    if not bad:
        return (ok("gateway", f"Relay at {url} is ready"),)
    if "database" in bad:  # whatever else is told follows from it
        return (fault("gateway", f"its database: {bad['database']}"),)
    return tuple(fault("gateway", f"{name}: {said}") for name, said in bad.items())


def _clock(response: httpx.Response, asked: datetime, answered: datetime) -> tuple[Finding, ...]:
    try:
        theirs = parsedate_to_datetime(response.headers["date"])
    except (KeyError, ValueError):
        return (warning("gateway clock", "the gateway's answer has no date: something between removed it"),)
    return (compare("gateway", (theirs, theirs + _GRAIN), asked, answered),)
