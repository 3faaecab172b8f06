"""A key written straight into the database, without a gateway.

Owns `relay keys create --local`: the one way to a first key where a gateway listens openly and so does not start
without one, and to a new one where all others are lost. Whoever can do this has the database anyway. Invariant: a
database of its own that was not running is stopped again.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from relay.app.faults import CannotRun
from relay.app.installation import Installation, away, check_ready, find
from relay.app.local_database import Say, local_database
from relay.app.migration import migrate_database
from relay.domain import ids
from relay.domain.audit import LOCAL_ACTOR, Author
from relay.domain.credentials import SECRET_ENTROPY_BYTES, Scope, new_key_secret
from relay.domain.secret import Secret
from relay.embedded import EmbeddedFault, running_dsn
from relay.settings import Settings
from relay.store.database import Commits
from relay.store.faults import NameTaken, StoreUnavailable
from relay.store.issuer import Issuer, KeyRow, NoSuchTenant

SECONDS = 10.0

_REPLICA = re.compile(r"r[1-9]")


async def create_local_key(
    settings: Settings, *, name: str, scopes: Collection[Scope], tenant: str, say: Say
) -> tuple[KeyRow, Secret]:
    """Make a key; answers it with its secret. Raises `CannotRun` and `SettingsError`. `say` is told what takes time."""
    secret = new_key_secret(os.urandom(SECRET_ENTROPY_BYTES))
    key_id = ids.uuid7(time.time_ns() // 1_000_000, os.urandom(ids.ENTROPY_BYTES))
    async with (
        _installation(settings, say) as installation,
        # it counts only once it is wherever the server's commits have to be
        installation.database("relay keys", 1, commits=Commits.AS_SERVER_SAYS, within=SECONDS) as database,
    ):
        vault = installation.vault()
        await check_ready(database, vault)
        try:
            author = Author(LOCAL_ACTOR, tenant, ids.uuid7(time.time_ns() // 1_000_000, os.urandom(ids.ENTROPY_BYTES)))
            issuer = Issuer(database, vault).by(author)
            key = await issuer.create_key(tenant, key_id, name, scopes, secret=secret, seen=None)
        except NameTaken as fault:
            raise CannotRun(f"another key of {tenant} is called {name!r}: choose another name") from fault
        except NoSuchTenant as fault:
            raise CannotRun(f"there is no tenant {tenant}: leave --tenant out for acct_default") from fault
        except StoreUnavailable as fault:
            raise away(fault) from fault
    return key, secret


@asynccontextmanager
async def _installation(settings: Settings, say: Say) -> AsyncIterator[Installation]:
    """The installation, with its own database running inside the block."""
    folder = settings.data_dir.expanduser().absolute()
    try:
        is_running = settings.database_url is not None or running_dsn(folder) is not None
    except EmbeddedFault as fault:
        raise CannotRun(str(fault)) from fault
    if is_running:
        yield find(settings)
        return
    async with local_database(settings, _replicas(folder), say=say, notice=say):
        installation = find(settings)
        await migrate_database(installation, say)
        yield installation


def _replicas(folder: Path) -> int:
    """How many servers the data folder has, one where there are none yet."""
    home = folder / "pg"
    return max(1, sum(1 for each in home.iterdir() if _REPLICA.fullmatch(each.name))) if home.is_dir() else 1
