"""Settings as people read them: effective values for `relay config`, and the reference table of the
documentation.

Owns the words around a setting, not the setting. Invariant: nothing here returns a byte of a secret.
"""

from __future__ import annotations

from dataclasses import dataclass

from relay.settings.kinds import STARS
from relay.settings.table import Origin, Row, Settings, rows


@dataclass(frozen=True, slots=True)
class Effective:
    """One line of `relay config`: `value` is empty where the setting is unset, and stars where it is
    secret."""

    name: str
    value: str
    origin: Origin
    about: str


def effective(settings: Settings) -> tuple[Effective, ...]:
    """Every setting as it is in force, in the order of the documentation."""
    return tuple(
        Effective(row.name, _show(row, getattr(settings, row.field)), settings.origin(row.name), row.about)
        for row in rows()
    )


def _show(row: Row, value: object) -> str:
    if value is None and row.default is None:
        return ""
    return row.kind.show(value)


_SECTIONS = {
    "DATABASE_URL": "Database",
    "RELAY_BIND": "Listening",
    "RELAY_MAX_PAYLOAD_BYTES": "Accepting events",
    "RELAY_ALLOW_PRIVATE_ENDPOINTS": "Where endpoints may be",
    "RELAY_CLAIM_BATCH": "Sending",
    "RELAY_RETRY_MAX_ATTEMPTS": "Retries, breaker, acks",
    "RELAY_HEARTBEAT_SECS": "Housekeeping",
    "RELAY_BROKER_URL": "Broker and chat services",
    "RELAY_LOG_FORMAT": "Logs, metrics, traces",
    "RELAY_URL": "Client commands and the testkit",
}
"""Headings of the reference, by the first setting under each."""


def reference() -> str:
    """The settings as Markdown tables, for `docs/settings.md`."""
    lines: list[str] = []
    for row in rows():
        if row.name in _SECTIONS:
            lines += [
                "",
                f"### {_SECTIONS[row.name]}",
                "",
                "| setting | default | form | meaning |",
                "|---|---|---|---|",
            ]
        lines.append(f"| `{row.name}` | {_default(row)} | {_form(row)} | {row.about} |")
    return "\n".join(lines).strip() + "\n"


def _default(row: Row) -> str:
    if row.default is None:
        return f"unset: {row.unset}"
    shown = f"`{row.default}`" if row.default else "none"
    if row.private_default is None:
        return shown
    return f"{shown}; `{row.private_default}` while `RELAY_ALLOW_PRIVATE_ENDPOINTS` is true"


def _form(row: Row) -> str:
    return row.kind.wants + (f" (shown as `{STARS}`)" if row.kind.secret else "")
