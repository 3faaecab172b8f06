"""`relay doctor`: what is wrong here, and what to do.

Owns the showing. Invariant: the exit code is 1 if anything does not work, and 0 if there are warnings at most.
"""

from __future__ import annotations

import asyncio
import os

import click

from relay.app.doctor import Findings, Level, examine, fault
from relay.cli.client import is_this_machine, trusted
from relay.cli.failures import DONE, FAILED, CommandFailed
from relay.cli.options import example, json_option
from relay.cli.rendering import show, words
from relay.cli.streams import Streams
from relay.settings import SettingsError, read

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.FAULT: "bold red"}


@click.command("doctor", epilog=example("relay doctor --endpoint ledger"))
@click.option("--endpoint", metavar="ID|NAME", help="Look at this endpoint, and not at all that are active.")
@json_option
@click.pass_obj
def command(streams: Streams, endpoint: str | None) -> int:
    """Look for the usual faults, and say what to do about each: settings, ports, disk, certificates, the gateway,
    the database with its role, shape, keys and dispatchers, clocks, and whether the endpoints can be reached.

    Nothing is changed, and nothing is sent to an endpoint. Exit code 1 if there is a fault.
    """
    findings = _findings(endpoint)
    faulty = any(finding.level is Level.FAULT for finding in findings)
    if streams.json:
        checks = [{"check": each.check, "level": each.level, "text": each.text} for each in findings]
        streams.document({"ok": not faulty, "checks": checks})
    else:
        width = max(len(finding.check) for finding in findings)
        for finding in findings:
            level = words(f"{finding.level:<9}", _STYLES[finding.level])
            show(streams, level + words(f"{finding.check:<{width}}  ", "bold") + words(finding.text))
    return FAILED if faulty else DONE


def _findings(endpoint: str | None) -> Findings:
    try:
        settings = read(os.environ)
    except SettingsError as faults:
        told = tuple(fault("settings", line) for line in str(faults).splitlines())
        return (*told, fault("settings", "nothing else can be looked at before these are mended"))
    is_here = is_this_machine(settings.url)
    try:
        verify = trusted(settings.url)
    except CommandFailed as unreadable:
        named = (fault("authorities", str(unreadable)),)
        return (*named, *asyncio.run(examine(settings, endpoint=endpoint, is_here=is_here)))
    return asyncio.run(examine(settings, endpoint=endpoint, is_here=is_here, verify=verify))
