"""The examination of the database: whether it answers, what it is, our role, its shape, its keys, who works on it.

Owns these checks. Invariant: nothing is written, and what needs an answer of the server is not asked of one that is
away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from relay.app.doctor.clocks import compare
from relay.app.doctor.findings import Finding, Findings, bounded, fault, ok, warning
from relay.app.doctor.sessions import examine_connections, examine_locks
from relay.app.faults import CannotRun
from relay.app.installation import Installation, check_pooler, find, unused_standbys
from relay.app.key_notes import key_notes
from relay.settings import Settings, SettingsError
from relay.store.database import Database
from relay.store.examination import OLDEST_SUPPORTED, Examination
from relay.store.faults import NotMigrated, QuorumNotPromised, StoreUnavailable
from relay.store.health import DISPATCHER, Health
from relay.store.keys import OtherKeys, check_keys
from relay.store.migrate import check_migrated
from relay.store.quorum import examine

CONNECTIONS = 5
CONNECT_SECONDS = 5.0
STATEMENT_SECONDS = 5.0
LOOK_SECONDS = 2.0
"""After how long it is looked who holds up these checks themselves, if they have not ended: before that, too."""

SILENT_SECONDS = 30.0
"""After how long without a report `/readyz` misses the dispatchers."""

_LATE = "look at the server's load and its log, and at the network between"


async def examine_database(
    settings: Settings, elsewhere: Callable[[], Awaitable[bool]], further: Callable[[Database], Awaitable[Findings]]
) -> Findings:
    """All about the database. `elsewhere`: whether a Relay answers that is on another machine; then a database that is
    not named here is no fault. `further` examines what is in a database that is as it should be."""
    try:
        installation = find(settings)
    except (CannotRun, SettingsError) as trouble:
        if settings.database_url is None and await elsewhere():
            return (warning("database", f"not examined, as Relay runs elsewhere ({trouble})"),)
        return (fault("database", str(trouble)),)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            database = await installation.open("relay doctor", CONNECTIONS, within=STATEMENT_SECONDS)
    except TimeoutError:
        return (fault("database", f"no connection within {CONNECT_SECONDS:g} s: {_LATE}"),)
    except CannotRun as trouble:
        return (fault("database", str(trouble)),)
    try:
        return await _examine(database, installation, settings, further)
    finally:
        await database.close(within=1.0)


async def _examine(
    database: Database,
    installation: Installation,
    settings: Settings,
    further: Callable[[Database], Awaitable[Findings]],
) -> Findings:
    asked = [
        bounded("database", _told(_server(database)), _LATE),
        bounded("connections", _told(examine_connections(database, settings)), _LATE),
        bounded("schema", _told(_schema(database)), _LATE),
    ]
    about = [finding for findings in await asyncio.gather(*asked) for finding in findings]
    if any(finding.check == "schema" and finding.level != "ok" for finding in about):
        return tuple(about)
    rest = asyncio.gather(
        bounded("keys", _told(_keys(database, installation)), _LATE),
        bounded("quorum", _told(_quorum(database, settings.journal_quorum)), _LATE),
        bounded("dispatcher", _told(_dispatcher(database)), _LATE),
        bounded("pooler", _pooler(database, installation), _LATE),
        further(database),
    )
    # a lock that Relay waits for is one that these wait for as well
    await asyncio.wait([rest], timeout=LOOK_SECONDS)
    held = await bounded("locks", _told(examine_locks(database)), _LATE)
    return (*about, *held, *(finding for findings in await rest for finding in findings))


async def _told(check: Awaitable[Findings]) -> Findings:
    """What the check finds; a database that went away meanwhile is a finding, too."""
    try:
        return await check
    except StoreUnavailable as away:
        return (fault("database", " ".join(str(away).split())),)


async def _server(database: Database) -> Findings:
    asked = datetime.now(UTC)
    server = await Examination(database).server()
    answered = datetime.now(UTC)
    clock = compare("database", (server.clock, server.clock), asked, answered)
    return (*_version(server.version, server.major), _role(server.role, server.may_create), clock)


def _version(version: str, major: int) -> Findings:
    if major < OLDEST_SUPPORTED:
        return (fault("database", f"PostgreSQL {version} is too old: upgrade it to {OLDEST_SUPPORTED} or newer"),)
    return (ok("database", f"PostgreSQL {version} answers"),)


def _role(role: str, may_create: bool) -> Finding:
    if not may_create:
        return fault("role", f"{role} may create no table: ALTER DATABASE name OWNER TO {role}")
    return ok("role", f"{role} may create tables")


async def _schema(database: Database) -> Findings:
    foreign = await Examination(database).tables_of_others()
    if foreign:
        names = ", ".join(foreign[:3]) + (", …" if len(foreign) > 3 else "")
        return (fault("schema", f"the role does not own {names}: ALTER TABLE … OWNER TO it, or connect as the owner"),)
    try:
        await check_migrated(database)
    except NotMigrated as missing:
        return (fault("schema", str(missing)),)
    return (ok("schema", "the database is as this version wants it"),)


async def _pooler(database: Database, installation: Installation) -> Findings:
    """Only where there is one."""
    if installation.pooler is None:
        return ()
    try:
        async with installation.pooled("relay doctor", 1, within=STATEMENT_SECONDS) as pooled:
            await check_pooler(installation, database, pooled)
    except CannotRun as trouble:
        return (fault("pooler", str(trouble)),)
    return (ok("pooler", "RELAY_API_POOLER_URL leads to the same database"),)


async def _keys(database: Database, installation: Installation) -> Findings:
    try:
        vault = installation.vault()
        sealed = await check_keys(database, vault)
    except (OtherKeys, CannotRun) as other:
        return (fault("keys", str(other)),)
    if notes := await key_notes(database, vault, ask=True):
        return tuple(warning("keys", note) for note in notes)
    return (ok("keys", "the secret keys are the installation's" if sealed else "no secret was sealed yet"),)


async def _quorum(database: Database, quorum: int) -> Findings:
    try:
        sight = await examine(database, quorum)
    except QuorumNotPromised as weaker:
        return (fault("quorum", str(weaker)),)
    unused = unused_standbys(sight, quorum)
    if unused is not None:
        return (warning("quorum", unused),)
    if quorum == 1:
        return (ok("quorum", "a 202 waits for the disk of one server"),)
    if sight.streaming < quorum - 1:
        return (fault("quorum", sight.missing(quorum)),)
    return (ok("quorum", f"a 202 waits for {quorum} of {1 + len(sight.listed.names)} servers"),)


async def _dispatcher(database: Database) -> Findings:
    ago = await Health(database).seconds_since(DISPATCHER)
    if ago is None:
        return (fault("dispatcher", "none has ever reported: start one with `relay dispatcher`"),)
    if ago > SILENT_SECONDS:
        return (fault("dispatcher", f"none has reported for {ago:.0f} s: look at its log, or start one"),)
    return (ok("dispatcher", f"one reported {max(ago, 0.0):.0f} s ago"),)
