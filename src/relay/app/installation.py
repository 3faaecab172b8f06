"""Where an installation's database is and which keys open its secrets.

Owns the choice between an outside server and the embedded one, the key file of the embedded one, and what is said when
the database is away or not migrated. Invariant: a key file is complete whenever it exists, only its owner can read it,
and none of its keys is ever taken out."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from relay.app.faults import CannotRun
from relay.domain.secret import Secret
from relay.embedded import EmbeddedFault, running_dsn
from relay.embedded.files import place, settle
from relay.settings import Bind, Settings, check_database
from relay.store.database import Commits, Database
from relay.store.faults import (
    HostUnknown,
    LoginRefused,
    NoSuchDatabase,
    NotMigrated,
    NotPermitted,
    PoolerInBetween,
    QuorumNotPromised,
    StoreFull,
    StoreUnavailable,
)
from relay.store.health import Health
from relay.store.issuer import Issuer
from relay.store.keys import OtherKeys, agree_on_keys
from relay.store.migrate import check_migrated
from relay.store.quorum import Sight
from relay.store.vault import InvalidKey, Vault, new_key

KEY_FILE = "secret-keys"

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES}
"""What file systems without hard links answer (exFAT, some network and FUSE mounts)."""

_LOOK = "check that the server runs and that DATABASE_URL names it"
_ADVICE = (
    (StoreFull, "raise its max_connections, or lower RELAY_WORKERS or RELAY_DATABASE_POOL"),
    (LoginRefused, "put the role and the password that the server knows into DATABASE_URL"),
    (NoSuchDatabase, "create it (`createdb --owner=ROLE NAME`), or name another one in DATABASE_URL"),
    (HostUnknown, "put the right host into DATABASE_URL"),
    (PoolerInBetween, "name the server itself in DATABASE_URL; only RELAY_API_POOLER_URL may name a pooler"),
    (NotPermitted, "make the role of DATABASE_URL the owner: ALTER DATABASE name OWNER TO role"),
)
"""What to do about each kind of trouble; for any other, to look whether the server is there."""


@dataclass(frozen=True, slots=True)
class Installation:
    """The address of the database, with its password, and the keys of its secrets."""

    dsn: Secret
    keys: tuple[Secret, ...]
    pooler: Secret | None = None
    """The address of a pooler for whoever needs no session of his own; None where there is none."""

    def vault(self) -> Vault:
        """What seals and opens secrets with these keys. Raises `CannotRun`."""
        try:
            return Vault(self.keys)
        except InvalidKey as fault:
            raise CannotRun(str(fault)) from fault

    async def open(
        self, name: str, size: int, *, commits: Commits = Commits.HERE, within: float | None = None
    ) -> Database:
        """A pool of at most `size` connections called `name`, and `within` seconds for each work with one.

        Raises `CannotRun` if the database does not answer.
        """
        try:
            return await Database.connect(self.dsn.expose(), name=name, size=size, commits=commits, within=within)
        except StoreUnavailable as fault:
            raise away(fault) from fault

    @asynccontextmanager
    async def pooled(self, name: str, size: int, *, within: float) -> AsyncIterator[Database]:
        """The same through the pooler where there is one, for work that needs no session; closed after the block.

        Raises `CannotRun` if that or its database does not answer, or is not the database of `DATABASE_URL`.
        """
        if self.pooler is None:
            async with self.database(name, size, within=within) as database:
                yield database
            return
        try:
            database = await Database.connect(self.pooler.expose(), name=name, size=size, within=within, pooled=True)
        except StoreUnavailable as fault:
            raise CannotRun(f"{fault}: check the pooler of RELAY_API_POOLER_URL, and where it leads") from fault
        try:
            yield database
        finally:
            await database.close()

    @asynccontextmanager
    async def database(
        self, name: str, size: int, *, commits: Commits = Commits.HERE, within: float | None = None
    ) -> AsyncIterator[Database]:
        """The same pool, closed at the end of the block."""
        database = await self.open(name, size, commits=commits, within=within)
        try:
            yield database
        finally:
            await database.close()


def find(settings: Settings) -> Installation:
    """The database of `DATABASE_URL`, or the embedded server that runs in the data folder now.

    Raises `SettingsError` for an outside database without keys, `CannotRun` if no server runs or its key is missing.
    """
    if settings.database_url is not None:
        check_database(settings)
        return Installation(settings.database_url, settings.secret_keys or (), settings.api_pooler_url)
    folder = settings.data_dir.expanduser().absolute()
    try:
        dsn = running_dsn(folder)
    except EmbeddedFault as fault:
        raise CannotRun(one_line(fault)) from fault
    if dsn is None:
        raise CannotRun(
            f"no database: DATABASE_URL is not set and no embedded server runs in {folder};"
            " set it, start everything with `relay up`, or name the folder of a running one with RELAY_DATA_DIR"
        )
    keys = settings.secret_keys or read_keys(folder)
    if keys is None:
        raise CannotRun(
            f"{folder / KEY_FILE} is missing: put it back from a backup, or give the key as RELAY_SECRET_KEYS"
        )
    return Installation(Secret(dsn), keys)


async def check_ready(database: Database, vault: Vault) -> None:
    """Raises `CannotRun` unless the database is as this version wants it and its secrets are under the vault's keys."""
    try:
        await check_migrated(database)
        await agree_on_keys(database, vault)
    except (NotMigrated, OtherKeys) as fault:
        raise CannotRun(str(fault)) from fault
    except StoreUnavailable as fault:
        raise away(fault) from fault


async def check_pooler(installation: Installation, direct: Database, pooled: Database) -> None:
    """Raises `CannotRun` unless the pooler, if there is one, leads to the same database."""
    if installation.pooler is None:
        return
    try:
        if await Health(direct).identity() != await Health(pooled).identity():
            raise CannotRun("RELAY_API_POOLER_URL leads to another database than DATABASE_URL: put them right")
    except StoreUnavailable as fault:
        raise away(fault) from fault


async def check_quorum(check: Callable[[], Awaitable[object]]) -> None:
    """Raises `CannotRun` if the server is not set to confirm the quorum that is asked for."""
    try:
        await check()
    except QuorumNotPromised as fault:
        raise CannotRun(f"RELAY_JOURNAL_QUORUM cannot be kept: {fault}") from fault
    except StoreUnavailable as fault:
        raise away(fault) from fault


async def check_reach(issuer: Issuer, address: Bind) -> None:
    """Raises `CannotRun` if others than this machine could connect, and nobody has a credential."""
    try:
        if address.is_loopback or not await issuer.is_open():
            return
    except StoreUnavailable as fault:
        raise away(fault) from fault
    raise CannotRun(
        f"RELAY_BIND is {address}, where others can connect, and nobody has a credential yet: make the first one with"
        f" `relay keys create --local`, or set RELAY_BIND to 127.0.0.1:{address.port}"
    )


def unused_standbys(sight: Sight, quorum: int) -> str | None:
    """What to tell whoever has standbys that commits could wait for, and does not ask for it; None if not so."""
    if quorum > 1 or not sight.listed.names:
        return None
    return (
        f"the server's commits can wait for {', '.join(sight.listed.names)}, and with RELAY_JOURNAL_QUORUM at 1 a 202"
        " waits for one disk alone: set it to 2"
    )


def away(fault: StoreUnavailable) -> CannotRun:
    """What to tell of a database that does not answer, or not as it should."""
    advice = next((advice for kind, advice in _ADVICE if isinstance(fault, kind)), _LOOK)
    return CannotRun(f"{one_line(fault)}; {advice}")


def one_line(fault: BaseException) -> str:
    """A fault's text without its line breaks."""
    return " ".join(str(fault).split())


def read_keys(folder: Path) -> tuple[Secret, ...] | None:
    """The keys in the data folder, newest first; None if there is no file. Raises `CannotRun` if it cannot be read."""
    path = folder / KEY_FILE
    try:
        lines = path.read_text(encoding="ascii").split()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as fault:
        raise CannotRun(f"{path} cannot be read: {one_line(fault)}; run Relay as its owner") from fault
    if not lines:
        raise CannotRun(f"{path} is empty: put it back from a backup, or remove it if no endpoint was ever created")
    return tuple(Secret(line) for line in lines)


def keys_of_folder(folder: Path) -> tuple[Secret, ...]:
    """The keys in the data folder, made if there are none yet. Raises `CannotRun`."""
    known = read_keys(folder)
    if known is not None:
        return known
    key = new_key()
    try:
        _place(folder / KEY_FILE, key.expose() + "\n")
    except FileExistsError:  # another process was quicker, and its key is the key
        return keys_of_folder(folder)
    except OSError as fault:
        raise CannotRun(f"{folder} cannot hold the secret key: {fault.strerror}") from fault
    return (key,)


def add_key(folder: Path) -> int:
    """Put a fresh key first in the key file of the data folder; answers how many are there now. Raises `CannotRun`.

    One at a time: of two that add a key at the same moment one may be lost, before anything is sealed with it.
    """
    known = read_keys(folder)
    if known is None:
        raise CannotRun(
            f"{folder / KEY_FILE} is not there: `relay up` makes it with its database; keys for an outside database"
            " stand in RELAY_SECRET_KEYS"
        )
    lines = "".join(f"{key.expose()}\n" for key in (new_key(), *known))
    try:
        owner = (folder / KEY_FILE).stat()
        place(folder / KEY_FILE, lines, owner=(owner.st_uid, owner.st_gid))
    except OSError as fault:
        raise CannotRun(f"{folder / KEY_FILE} cannot be replaced: {fault.strerror}; run this as its owner") from fault
    return len(known) + 1


def _place(path: Path, text: str) -> None:
    """Write a new file, readable by its owner alone, that appears whole or not at all. Raises `OSError`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, aside = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)  # with mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        _name(path, Path(aside))
        settle(path.parent)
    finally:
        Path(aside).unlink(missing_ok=True)


def _name(path: Path, aside: Path) -> None:
    """Give a file its name, unless that is taken (raises `FileExistsError`)."""
    try:
        path.hardlink_to(aside)
    except OSError as fault:
        if fault.errno not in _NO_LINKS:
            raise
        # one step less strict: whoever makes a key holds the lock of the folder's server
        if path.exists():
            raise FileExistsError(path) from fault
        aside.rename(path)
