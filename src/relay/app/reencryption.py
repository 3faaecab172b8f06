"""Every stored secret brought under the newest key, and the older keys retired.

Owns `relay keys reencrypt`: the walk over the secrets, again until nothing is left to do, and what stands against it.
Invariant: of a key that it calls retired it holds that no process needs it, nor ever will; a key that never sealed
anything is not called so, for it may be the one that is to come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from relay.app.at_hand import at_hand
from relay.app.faults import CannotRun
from relay.app.installation import Installation, away
from relay.app.local_database import Say
from relay.settings import Settings
from relay.store.database import Commits, Database
from relay.store.faults import KeysRetired, NotMigrated, StoreUnavailable
from relay.store.keys import Lacking, Mark, OtherKeys, agree_on_keys, marked
from relay.store.migrate import check_migrated
from relay.store.reencryption import FIRST, Reencryption, StoredKey, User

BATCH = 200
"""Secrets in a transaction: a few milliseconds of locks on rows that nobody else changes."""

SECONDS = 10.0
MOST_WALKS = 20
"""Others may seal under an older key while we walk, each of them once or twice until it is restarted."""

SERVICES = ("relay gateway", "relay dispatcher")
"""How the connections of the services call themselves."""

Tell = Callable[[int, int], None]
"""Is told how many secrets are done, and of how many."""


@dataclass(frozen=True, slots=True)
class Reencrypted:
    """What was done. `unreadable` are those who sign with a secret that no key opens, `unused` such secrets that nobody
    signs with any more. `lost` is the number of keys that secrets were sealed with and that are not given: no process
    starts without them; `given_up` the number of those that stand in nobody's way any more. `keys` are those that are
    given, in their order; the retired of them are not needed any more.
    """

    sealed_anew: int
    unreadable: tuple[User, ...]
    unused: int
    lost: int
    keys: tuple[StoredKey, ...] = ()
    given_up: int = 0

    @property
    def never_used(self) -> tuple[StoredKey, ...]:
        """The keys behind the front one under which nothing was ever sealed."""
        return tuple(key for key in self.keys[1:] if not key.has_sealed)


async def reencrypt(settings: Settings, *, give_up: bool, tell: Tell, say: Say) -> Reencrypted:
    """Bring every secret under the newest key. Raises `CannotRun` and `SettingsError`.

    It may be ended at any moment and run again, and any number may run at once. `give_up`: what no key opens does not
    stand against retiring the keys that are lost.
    """
    async with (
        at_hand(settings, say) as installation,
        # an older key is not needed only once the new ciphertexts are wherever the server's commits have to be
        installation.database("relay keys", 1, commits=Commits.AS_SERVER_SAYS, within=SECONDS) as database,
    ):
        try:
            await check_migrated(database)
            lost = await _agreed(installation, database, give_up=give_up)
            return await Walk(Reencryption(database, installation.vault()), lost, tell).run(give_up=give_up)
        except (NotMigrated, OtherKeys, KeysRetired) as fault:
            raise CannotRun(str(fault)) from fault
        except StoreUnavailable as fault:
            raise away(fault) from fault


async def _agreed(installation: Installation, database: Database, *, give_up: bool) -> list[Mark]:
    """The marks of keys that are lost. Raises `CannotRun` if services run that may not have the newest key."""
    vault = installation.vault()
    if vault.newest not in await marked(database, vault) and await Reencryption(database, vault).sessions(SERVICES):
        raise CannotRun(
            "gateways or dispatchers run, and none was started with this newest key yet: restart all of them with it"
            " first (behind the old one, then in front of it), or they could not open what it seals"
        )
    return await agree_on_keys(database, vault, may_lack=Lacking.ALL if give_up else Lacking.SOME)


class Walk:
    """The walk over one database's secrets, as often as it takes."""

    def __init__(self, store: Reencryption, lost: list[Mark], tell: Tell, batch: int = BATCH) -> None:
        self._store = store
        self._lost = lost
        self._tell = tell
        self._batch = batch
        self._sealed_anew = 0

    async def run(self, *, give_up: bool = False) -> Reencrypted:
        """Walk until nothing is left to do. Raises `CannotRun` if others go on sealing under an older key, and
        `KeysRetired`."""
        total = await self._store.remaining()
        for _ in range(MOST_WALKS):
            unreadable = await self._once(total)
            users = await self._store.users(unreadable) if unreadable else ()
            given_up = self._lost if give_up or not users else []
            if await self._store.retire(unreadable, given_up):
                return Reencrypted(
                    self._sealed_anew,
                    users,
                    len(unreadable) - len(users),
                    lost=len(self._lost) - len(given_up),
                    keys=await self._store.keys(),
                    given_up=len(given_up),
                )
        raise CannotRun(
            "others go on sealing secrets under another key: restart every gateway and dispatcher with the newest key"
            " first in RELAY_SECRET_KEYS, then run this again"
        )

    async def _once(self, total: int) -> list[UUID]:
        """Bring all under the newest key; answers the ids of those that no key opens."""
        unreadable: list[UUID] = []
        last: UUID | None = FIRST
        done = 0
        self._tell(done, total)
        while last is not None:
            batch = await self._store.reseal(last, self._batch)
            last = batch.last
            self._sealed_anew += batch.sealed_anew
            unreadable += batch.unreadable
            done += batch.looked_at
            self._tell(done, max(total, done))
        return unreadable
