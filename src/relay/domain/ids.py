"""Identity: UUID version 7 inside, a prefixed text form outside.

Owns how an id is made and written. Every id starts with the Unix milliseconds of its making, so ids of one kind sort
by age. `rcp_`, `evt_`, `ep_`, `key_`, `src_` and `aud_` carry the UUID's 32 hexadecimal digits: what stands on the wire
is what the database shows without its dashes. Invariant: `parse(prefix, write(prefix, uuid)) == uuid`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

RECEIPT = "rcp_"
EVENT = "evt_"
ENDPOINT = "ep_"
KEY = "key_"
SOURCE = "src_"
AUDIT = "aud_"

ENTROPY_BYTES = 10
"""How many random bytes `uuid7` takes (74 bits of them are kept)."""

SIBLING_BYTES = 4
"""How many random bytes set a delivery id apart from its siblings."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_EPOCH_DAY = EPOCH.toordinal()
_LAST_DAY = date.max.toordinal()
_DAY_MS = 86_400_000
_LAST = (1 << 128) - 1

_HEX = re.compile(r"[0-9a-f]{32}")


class InvalidId(ValueError):
    """The text is not an id of the wanted kind."""


def uuid7(unix_ms: int, entropy: bytes) -> UUID:
    """Make a version 7 UUID (RFC 9562, 5.7) from milliseconds since 1970 and ten random bytes."""
    drawn = int.from_bytes(entropy, "big")
    rand_a = (drawn >> 68) & 0xFFF
    rand_b = drawn & 0x3FFF_FFFF_FFFF_FFFF
    return UUID(int=unix_ms << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b)


def delivery_id(receipt: UUID, entropy: bytes) -> UUID:
    """Make the id of one of the receipt's deliveries from four random bytes.

    It shares the receipt's first 96 bits, so all deliveries of a receipt are one range of the deliveries' primary key
    (`delivery_range`) and no second index has to be kept for them.
    """
    return UUID(int=(receipt.int >> 32) << 32 | int.from_bytes(entropy, "big"))


def delivery_ids(receipt: UUID, count: int, entropy: Callable[[int], bytes]) -> Sequence[UUID]:
    """So many different delivery ids of a receipt. Four random bytes set each apart, so one may have to be redrawn."""
    if count == 1:
        return (delivery_id(receipt, entropy(SIBLING_BYTES)),)
    drawn: dict[UUID, None] = {}
    while len(drawn) < count:
        chance = entropy((count - len(drawn)) * SIBLING_BYTES)
        for start in range(0, len(chance), SIBLING_BYTES):
            drawn[delivery_id(receipt, chance[start : start + SIBLING_BYTES])] = None
    return tuple(drawn)


def delivery_range(receipt: UUID) -> tuple[UUID, UUID]:
    """The first and the last delivery id that the receipt can have, both inclusive."""
    first = (receipt.int >> 32) << 32
    return UUID(int=first), UUID(int=first | 0xFFFF_FFFF)


def first_at(instant: datetime) -> UUID:
    """The first id that can be made at the instant or later: the bound of a search by time.

    Ids know whole milliseconds, from 1970 on.
    """
    ms = -((EPOCH - instant) // timedelta(milliseconds=1))
    return UUID(int=max(ms, 0) << 80)


def unix_ms(uuid: UUID) -> int:
    """Milliseconds since 1970 at which this version 7 UUID was made."""
    return uuid.int >> 80


def day_of(uuid: UUID) -> date:
    """The UTC day in which this version 7 UUID was made; a receipt's is its journal day.

    What no calendar here reaches, since it is no id of ours, is of the last day that there is.
    """
    return date.fromordinal(min(_EPOCH_DAY + unix_ms(uuid) // _DAY_MS, _LAST_DAY))


def first_of(day: date) -> UUID:
    """The first id that can be made in the UTC day; the first of all for a day before 1970, in which none could."""
    return UUID(int=max(day.toordinal() - _EPOCH_DAY, 0) * _DAY_MS << 80)


def last_of(day: date) -> UUID:
    """The last id that can be made in the UTC day, or (of the last day that there is) the last of all."""
    if day == date.max:
        return UUID(int=_LAST)
    return UUID(int=max(first_of(day + timedelta(days=1)).int - 1, 0))


def write(prefix: str, uuid: UUID) -> str:
    """The id as users see it, for example `rcp_0197c0de…` (32 lower-case hexadecimal digits)."""
    return prefix + uuid.hex


def parse(prefix: str, text: str) -> UUID:
    """Read an id that `write` wrote. Raises `InvalidId` for anything else."""
    digits = text.removeprefix(prefix)
    if len(digits) == len(text) or not _HEX.fullmatch(digits):
        raise InvalidId(f"not an id of the form {prefix}<32 hexadecimal digits>")
    return UUID(hex=digits)
