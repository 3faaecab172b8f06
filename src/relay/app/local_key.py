"""A key written straight into the database, without a gateway.

Owns `relay keys create --local`: the one way to a first key where a gateway listens openly and so does not start
without one, and to a new one where all others are lost. Whoever can do this has the database anyway.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from relay.app.at_hand import at_hand
from relay.app.faults import CannotRun
from relay.app.installation import away, check_ready
from relay.app.local_database import Say
from relay.domain import ids
from relay.domain.audit import LOCAL_ACTOR, Author
from relay.domain.credentials import SECRET_ENTROPY_BYTES, Scope, new_key_secret
from relay.domain.secret import Secret
from relay.settings import Settings
from relay.store.database import Commits
from relay.store.faults import NameTaken, NoSuchTenant, StoreUnavailable
from relay.store.issuer import Issuer, KeyRow, NoKeyYet

SECONDS = 10.0


async def create_local_key(
    settings: Settings, *, name: str, scopes: Collection[Scope], tenant: str, say: Say
) -> tuple[KeyRow, Secret]:
    """Make a key; answers it with its secret. Raises `CannotRun` and `SettingsError`. `say` is told what takes time."""
    secret = new_key_secret(os.urandom(SECRET_ENTROPY_BYTES))
    key_id = ids.uuid7(time.time_ns() // 1_000_000, os.urandom(ids.ENTROPY_BYTES))
    async with (
        at_hand(settings, say) as installation,
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
        except NoKeyYet as fault:
            raise CannotRun(
                "nobody has a credential yet, and the first key has to be one that may make others:"
                " run `relay keys create --local` first (it makes an admin key)"
            ) from fault
        except StoreUnavailable as fault:
            raise away(fault) from fault
    return key, secret
