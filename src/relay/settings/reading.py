"""From the environment to `Settings`: layers, parsing, and the checks that look at several settings at once.

Owns what is a fault and its words. The layers, strongest first: what the command line says, the environment,
the command's own defaults, the table. A variable that is set to nothing counts as unset, since that is what
a compose file makes of a missing one. A secret may stand in a file that a variable names, `RELAY_API_KEY_FILE`,
which is how containers and systemd hand them over. Invariant: either a whole `Settings` comes back, or one error that
names every fault; a check over several settings is left out only where one of them is itself at fault.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from relay.settings import kinds
from relay.settings.table import DAY, Origin, Row, Settings, rows, variable

LEASE_MARGIN_SECS = 5.0
"""By how much a lease outlives the longest attempt made under it."""

_LEAST_POOL_OF_FLEET = 7
"""Connections of a process that takes part in a fleet: one more than without."""

_WIDEST_PREFIX = {4: 8, 6: 7}
"""Of networks that somebody may own: 10.0.0.0/8 and fc00::/7."""

_PREFIX = "RELAY_"
_BY_NAME = {row.name: row for row in rows()}
_BY_FILE = {f"{row.name}_FILE": row for row in rows() if row.kind.secret}
"""The secrets by the variables that name a file with one."""

_SWITCH = "RELAY_ALLOW_PRIVATE_ENDPOINTS"
_SWITCHED = re.compile(r"_(?:ENABLED?|DISABLED?|ON|OFF|ACTIVE)$")
_MOST_MEANT = 4
_LIST = "unset it; `relay config` lists the settings"
_INJECTED = ("RELAY_SERVICE_", "RELAY_PORT")
"""Kubernetes sets these in every pod beside a service named `relay`."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with one variable, and what to do about it. Holds no secret."""

    name: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name} {self.detail}"


class SettingsError(ValueError):
    """All faults of an environment at once; its text has one line for each."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = faults
        super().__init__("\n".join(str(fault) for fault in faults))


@dataclass(frozen=True, slots=True)
class _Check:
    """A rule over several fields. `says` is told the settings that break it and names what to change."""

    fields: tuple[str, ...]
    holds: Callable[[Settings], bool]
    says: Callable[[Settings], str]


def _shown(settings: Settings, field: str) -> str:
    return f"{variable(field)} = {kinds.number(getattr(settings, field))}"


def _at_most(lesser: str, greater: str) -> _Check:
    """The first of two fields with the same unit is at most the second."""
    return _Check(
        (lesser, greater),
        lambda s: bool(getattr(s, lesser) <= getattr(s, greater)),
        lambda s: (
            f"is {kinds.number(getattr(s, lesser))}, more than {_shown(s, greater)}: "
            f"lower the first or raise the second"
        ),
    )


_CHECKS = (
    _Check(
        ("lease_secs", "total_timeout_secs"),
        lambda s: s.lease_secs >= s.total_timeout_secs + LEASE_MARGIN_SECS,
        lambda s: (
            f"is {kinds.number(s.lease_secs)}, too short for {_shown(s, 'total_timeout_secs')}: an attempt "
            f"could outlive its lease and be made twice; set it to at least "
            f"{kinds.number(s.total_timeout_secs + LEASE_MARGIN_SECS)}"
        ),
    ),
    _Check(
        ("api_pooler_url", "database_url"),
        lambda s: s.api_pooler_url is None or s.database_url is not None,
        lambda _: "leads to a pooler before the database of DATABASE_URL: set that too, or unset this",
    ),
    _at_most("connect_timeout_secs", "total_timeout_secs"),
    _at_most("read_timeout_secs", "total_timeout_secs"),
    _Check(
        ("endpoint_concurrency", "global_concurrency"),
        lambda s: s.endpoint_concurrency * 2 <= s.global_concurrency,
        lambda s: (
            f"is {s.endpoint_concurrency}, more than half of {_shown(s, 'global_concurrency')}: one endpoint "
            f"could own the dispatcher; set it to at most {s.global_concurrency // 2} or raise the other"
        ),
    ),
    _at_most("max_payload_bytes", "max_batch_bytes"),
    _at_most("retry_base_secs", "retry_max_secs"),
    _Check(
        ("retry_window_secs", "retry_base_secs"),
        lambda s: s.retry_base_secs <= s.retry_window_secs,
        lambda s: (
            f"is {kinds.number(s.retry_window_secs)}, shorter than the first delay, {_shown(s, 'retry_base_secs')}: "
            "nothing would ever be tried again; raise the first or lower the second"
        ),
    ),
    _Check(
        ("database_pool", "broker_url"),
        lambda s: s.broker_url is None or s.database_pool >= _LEAST_POOL_OF_FLEET,
        lambda s: (
            f"is {s.database_pool}, and whoever may announce to RELAY_BROKER_URL needs a connection of its own: set it"
            f" to at least {_LEAST_POOL_OF_FLEET}"
        ),
    ),
    _at_most("breaker_cooldown_secs", "breaker_max_cooldown_secs"),
    _Check(
        ("idempotency_retention_secs", "retain_delivered_days"),
        lambda s: s.idempotency_retention_secs <= s.retain_delivered_days * DAY,
        lambda s: (
            f"is {kinds.number(s.idempotency_retention_secs)}, longer than receipts are kept "
            f"({_shown(s, 'retain_delivered_days')}): set it to at most {s.retain_delivered_days * DAY}"
        ),
    ),
    _Check(
        ("retain_attempts_days", "retry_window_secs"),
        lambda s: s.retry_window_secs <= s.retain_attempts_days * DAY,
        lambda s: (
            f"is {s.retain_attempts_days}, shorter than deliveries are retried ({_shown(s, 'retry_window_secs')}):"
            f" attempts would go while more are made; set it to at least {math.ceil(s.retry_window_secs / DAY)}"
        ),
    ),
    _Check(
        ("tls_cert", "tls_key"),
        lambda s: (s.tls_cert is None) == (s.tls_key is None),
        lambda _: "and RELAY_TLS_KEY belong together: set both or neither",
    ),
    _Check(
        ("tls_client_ca", "tls_cert"),
        lambda s: s.tls_client_ca is None or s.tls_cert is not None,
        lambda _: "needs TLS: set RELAY_TLS_CERT and RELAY_TLS_KEY too",
    ),
)


@dataclass(frozen=True, slots=True)
class _Layers:
    """The texts that may decide a setting, with the blank ones taken out."""

    command_line: Mapping[str, str]
    environ: Mapping[str, str]
    files: Mapping[str, str]
    command_defaults: Mapping[str, str]

    def find(self, row: Row) -> tuple[str | None, Origin]:
        """The text that decides this setting (None: unset) and where it stands."""
        for layer, origin in (
            (self.command_line, Origin.COMMAND_LINE),
            (self.environ, Origin.ENVIRONMENT),
            (self.files, Origin.FILE),
            (self.command_defaults, Origin.COMMAND_DEFAULT),
        ):
            if row.name in layer:
                return layer[row.name], origin
        if row.private_default is None:
            return row.default, Origin.DEFAULT
        return (row.private_default if self._private() else row.default), Origin.FOLLOWS

    def _private(self) -> bool:
        """Whether private endpoints are allowed; a fault in the switch itself is reported at the switch."""
        text, _ = self.find(_BY_NAME[_SWITCH])
        try:
            return kinds.BOOLEAN.parse(text or "false")
        except ValueError:
            return False


def read(
    environ: Mapping[str, str],
    *,
    command_defaults: Mapping[str, str] = MappingProxyType({}),
    command_line: Mapping[str, str] = MappingProxyType({}),
    text_of: Callable[[Path], str] = Path.read_text,
) -> Settings:
    """Read every setting. `command_defaults` replace the table's defaults, `command_line` beats the
    environment; both are texts under the variables' names. `text_of` reads a file that holds a secret. Raises
    `SettingsError` with all faults."""
    texts = _set(environ)
    files, faults = _files(texts, text_of)
    layers = _Layers(_set(command_line), texts, files, _set(command_defaults))
    faults += [_unknown(name) for name in sorted(environ) if _is_unknown(name)]
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    faulty: set[str] = set()
    for row in rows():
        text, origins[row.name] = layers.find(row)
        try:
            values[row.field] = None if text is None else row.kind.parse(text)
        except ValueError as wrong:
            faults.append(_malformed(row, text or "", wrong))
            faulty.add(row.field)
            values[row.field] = None if row.default is None else row.kind.parse(row.default)
    settings = Settings(**values, origins=MappingProxyType(origins))
    faults += [
        Fault(variable(check.fields[0]), check.says(settings))
        for check in _CHECKS
        if faulty.isdisjoint(check.fields) and not check.holds(settings)
    ]
    if faults:
        raise SettingsError(tuple(faults))
    return settings


def check_database(settings: Settings) -> None:
    """For commands that open a database: an outside one needs keys from outside, or no two machines could
    read the same secrets. Raises `SettingsError`."""
    if settings.database_url is not None and settings.secret_keys is None:
        raise SettingsError(
            (Fault("RELAY_SECRET_KEYS", "is required with DATABASE_URL: `relay secret-key` prints one"),)
        )


def cautions(settings: Settings) -> tuple[str, ...]:
    """What is set as somebody may want it and hardly ever should, a sentence each."""
    told = []
    if wide := _wide(settings.egress_allow_cidrs):
        told.append(
            f"RELAY_EGRESS_ALLOW_CIDRS opens {wide}, in which nearly every private address lies: whoever may"
            " write an endpoint reaches all of this network; name the networks of the receivers"
        )
    if wide := _wide(settings.trusted_proxies):
        told.append(
            f"RELAY_TRUSTED_PROXIES names {wide}: whoever is in there can show any certificate as its own;"
            " name the addresses of the proxies"
        )
    return tuple(told)


def _wide(networks: Iterable[kinds.Network]) -> str:
    """Those that are wider than any that somebody may own, separated by commas."""
    return ", ".join(str(each) for each in networks if each.prefixlen < _WIDEST_PREFIX[each.version])


def _set(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text.strip() for name, text in texts.items() if text.strip()}


def _files(environ: Mapping[str, str], text_of: Callable[[Path], str]) -> tuple[dict[str, str], list[Fault]]:
    """The secrets that stand in files, by the names of their settings, and what is wrong with those files.

    A file without a secret in it is a fault and no unset secret: whoever names one means that there is one.
    """
    found: dict[str, str] = {}
    faults: list[Fault] = []
    for name, row in _BY_FILE.items():
        if name not in environ:
            continue
        if row.name in environ:
            faults.append(Fault(name, f"and {row.name} say the same: unset one of them"))
            continue
        try:
            found |= _set({row.name: text_of(Path(environ[name]))})
        except OSError as wrong:
            faults.append(Fault(name, f"names a file that cannot be read: {environ[name]}: {wrong.strerror}"))
        except ValueError:
            faults.append(Fault(name, f"names a file that is no text: {environ[name]}"))
        else:
            if row.name not in found:
                faults.append(Fault(name, f"names a file with nothing in it: {environ[name]}"))
    return found, faults


def _is_unknown(name: str) -> bool:
    known = name in _BY_NAME or name in _BY_FILE or name.startswith(_INJECTED)
    return name.startswith(_PREFIX) and not known


def _unknown(name: str) -> Fault:
    """The prefix is left out of the comparison: all names share it, and it would make any two alike."""
    known = {known.removeprefix(_PREFIX): known for known in _BY_NAME}
    nearest = _nearest(name.removeprefix(_PREFIX), known)
    meant = " or ".join(filter(None, (", ".join(nearest[:-1]), *nearest[-1:])))
    return Fault(name, f"is no setting: did you mean {meant}?" if nearest else f"is no setting: {_LIST}")


def _nearest(text: str, known: Mapping[str, str]) -> list[str]:
    """Whose name may have been meant, both without the prefix: a switch written with what switches often end in, or
    names of which only the first word is missing, or that go on behind it; else the one that is spelt most alike."""
    switch = known.get(_SWITCHED.sub("", text), "")
    if switch and _BY_NAME[switch].kind is kinds.BOOLEAN:
        return [switch]
    longer = [full for short, full in known.items() if short.partition("_")[2] == text]
    if 1 <= len(longer) <= _MOST_MEANT:
        return longer
    begun = [full for short, full in known.items() if short.startswith(f"{text}_")]
    if 1 <= len(begun) <= _MOST_MEANT:
        return begun
    return [known[match] for match in get_close_matches(text, known, n=1)]


def _malformed(row: Row, text: str, wrong: ValueError) -> Fault:
    if row.kind.secret or not row.kind.quotable or "@" in text:
        return Fault(row.name, f"must be {row.kind.wants}; its value is not shown here")
    item = f", and {wrong.item!r} in it is none" if isinstance(wrong, kinds.WrongItem) and wrong.item != text else ""
    return Fault(row.name, f"is {text!r}: it must be {row.kind.wants}{item}")
