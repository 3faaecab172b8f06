"""The examination of the receivers: whether each active endpoint could be reached from here.

Owns which ones are looked at. Nothing is sent to them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

from relay.app.dispatcher import send_limits_of
from relay.app.doctor.findings import Finding, Findings, fault, ok, warning
from relay.app.egress import platforms_of, policy_of, tell_of_bug
from relay.domain import ids
from relay.domain.chat import CHAT_TRANSPORTS, read_chat
from relay.domain.egress import check_url
from relay.domain.refusal import Refusal
from relay.domain.target import read_target
from relay.sender import NoAuthorities
from relay.sender.probe import Probe
from relay.settings import Origin, Settings
from relay.store.database import Database
from relay.store.examination import Examination, Reachable
from relay.store.faults import StoreUnavailable
from relay.transports.chat import Platforms
from relay.transports.prepared import shown_url

LOOK_SECONDS = 4.0
"""How long one may take, whatever deliveries may."""

MOST = 200
"""So many endpoints are looked at, all at once."""


_OF_POLICY = (
    "RELAY_ALLOW_PRIVATE_ENDPOINTS",
    "RELAY_REQUIRE_HTTPS",
    "RELAY_ALLOWED_PORTS",
    "RELAY_EGRESS_ALLOW_CIDRS",
)


async def _nobody() -> bool:
    return False


async def examine_receivers(
    database: Database, settings: Settings, endpoint: str | None, answers: Callable[[], Awaitable[bool]] = _nobody
) -> Findings:
    """Look at the active endpoints, or at the one that is named, by name or id.

    `answers`: whether a Relay runs. It has accepted these endpoints; where it does and this shell sets nothing of the
    egress policy, what that policy refuses is told in one warning, as Relay may well run by other settings.
    """
    examination = Examination(database)
    try:
        if endpoint is None:
            found = await examination.endpoints(MOST + 1)
        else:
            found = await examination.endpoints_called(endpoint, _id(endpoint))
    except StoreUnavailable as away:
        return (fault("endpoints", " ".join(str(away).split())),)
    if not found:
        return (_none(endpoint),)
    judged = found[:MOST]
    refused = await asyncio.to_thread(_refused, judged, settings) if _says_nothing(settings) and await answers() else ()
    looked = await _look(tuple(each for each in judged if each not in refused), settings)
    left = (
        () if len(found) <= MOST else (warning("endpoints", f"only {MOST} were looked at: name others by --endpoint"),)
    )
    return (*_other_settings(refused), *looked, *left)


def _says_nothing(settings: Settings) -> bool:
    return all(settings.origin(name) in (Origin.DEFAULT, Origin.FOLLOWS) for name in _OF_POLICY)


def _refused(endpoints: tuple[Reachable, ...], settings: Settings) -> tuple[Reachable, ...]:
    """Those whose urls the policy of these settings refuses, whatever their names lead to."""
    policy, platforms = policy_of(settings), platforms_of(settings)
    return tuple(each for each in endpoints if isinstance(check_url(policy, _server(each, platforms)), Refusal))


def _other_settings(refused: tuple[Reachable, ...]) -> Findings:
    if not refused:
        return ()
    which = f"{len(refused)} active endpoint{'s' if len(refused) > 1 else ''} ({refused[0].name}"
    text = (
        f"{which}{', …' if len(refused) > 1 else ''}) would be refused by this shell's settings, and the Relay that"
        f" runs has accepted them: if it runs by others (`relay up --dev`, `make run`), set here what it has of"
        f" {', '.join(_OF_POLICY)}; if it runs by these, what they are owed becomes dead letters, `refused`"
    )
    return (warning("egress", text),)


def _none(endpoint: str | None) -> Finding:
    if endpoint is None:
        return ok("endpoints", "none is active")
    return fault("endpoints", f"none is called {endpoint!r}: `relay endpoints list` shows them")


def _id(text: str) -> UUID | None:
    try:
        return ids.parse(ids.ENDPOINT, text)
    except ids.InvalidId:
        return None


async def _look(endpoints: tuple[Reachable, ...], settings: Settings) -> Findings:
    limits = send_limits_of(settings)
    try:
        probe = Probe(
            policy=await asyncio.to_thread(policy_of, settings),
            limits=replace(limits, connect_seconds=min(limits.connect_seconds, LOOK_SECONDS)),
            clock=time.monotonic,
            on_fault=tell_of_bug,
        )
    except NoAuthorities:
        return ()  # told by another check
    try:
        platforms = platforms_of(settings)
        return tuple(await asyncio.gather(*(_judge(probe, each.name, _server(each, platforms)) for each in endpoints)))
    finally:
        probe.close()


def _server(endpoint: Reachable, platforms: Platforms) -> str:
    """Where an endpoint's requests go."""
    if endpoint.transport not in CHAT_TRANSPORTS:
        return endpoint.url
    chat = read_chat(endpoint.transport, endpoint.url)
    return endpoint.url if isinstance(chat, Refusal) else shown_url(chat, platforms)


async def _judge(probe: Probe, name: str, url: str) -> Finding:
    trouble = await probe.look(url)
    check = f"endpoint {name}"
    if trouble is None:
        return ok(check, f"{_place(url)} can be reached")
    return fault(check, f"{_place(url)}: {trouble}")


def _place(url: str) -> str:
    """A url's host and port, which are not secret as its path and query may be. One that cannot be read, which nobody
    would accept any more, is not shown: what stands where is unknown."""
    target = read_target(url)
    if isinstance(target, Refusal):
        return "its url"
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{host}:{target.port}"
