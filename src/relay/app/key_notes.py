"""What to tell of the keys that stored secrets are under.

Owns the words, for the doctor and for the start of a service.
"""

from __future__ import annotations

import logging

from relay.app.installation import away
from relay.store.database import Database
from relay.store.faults import StoreUnavailable
from relay.store.keys import marked
from relay.store.reencryption import Reencryption, StoredKey
from relay.store.vault import Vault

logger = logging.getLogger("relay")


async def key_notes(database: Database, vault: Vault, *, ask: bool) -> list[str]:
    """What a person should do about the keys, nothing where all is well. Raises `StoreUnavailable`.

    `ask`: secrets of before it was kept which key each is under are opened to find out, 20 µs each.
    """
    reencryption = Reencryption(database, vault)
    sealed = await reencryption.sealed(ask=ask)
    marks = await marked(database, vault)
    notes = []
    if sealed.unreadable and await reencryption.has_users_without_key():
        what = f"{_secrets(sealed.unreadable)} under no key of RELAY_SECRET_KEYS"
        notes.append(f"{what}: `relay keys reencrypt` says whose they are")
    behind = sealed.older + (sealed.unnamed if len(vault.key_ids) > 1 else 0)
    waiting = any(not is_retired for key_id, is_retired in marks.items() if key_id != vault.newest)
    if (behind or waiting) and not marks.get(vault.newest):
        notes.append(
            f"{_secrets(behind)} under an older key of RELAY_SECRET_KEYS: once every gateway and dispatcher was"
            " restarted with the newest in front, run `relay keys reencrypt`; then the older can be removed"
        )
    if (retired := sum(marks.values())) and len(vault.key_ids) > 1:
        names = ", ".join(called(key) for key in await reencryption.keys() if key.is_retired)
        one = retired == 1
        which = f"{retired} of the {len(vault.key_ids)} keys in RELAY_SECRET_KEYS {'is' if one else 'are'} retired"
        notes.append(f"{which} ({names}): nothing needs {'it' if one else 'them'} any more, and it can be removed")
    return notes


def called(key: StoredKey) -> str:
    """A key by its place and by enough of its fingerprint to tell it from the others."""
    return f"key {key.position}, fingerprint {key.fingerprint[:8]}"


async def tell_of_keys(database: Database, vault: Vault) -> None:
    """Log them at the start of a service. Raises `CannotRun`."""
    try:
        notes = await key_notes(database, vault, ask=False)
    except StoreUnavailable as fault:
        raise away(fault) from fault
    for note in notes:
        logger.warning("secret_keys", extra={"fields": {"detail": note}})


def _secrets(count: int) -> str:
    return f"{count:,} stored secret{' is' if count == 1 else 's are'}"
