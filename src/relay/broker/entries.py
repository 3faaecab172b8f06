"""Messages as entries of a stream, and what servers answer about them.

Pure. An entry has one field, whose value is the ids of its deliveries, 16 bytes each and nothing else. Whatever looks
different was not written by Relay, or was torn; it is told apart here, not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from relay.broker.broker import MESSAGE_DELIVERIES, Message

FIELD = b"ids"
_ID_BYTES = 16

Entry = tuple[bytes, Sequence[bytes] | None] | None
"""As the server writes it (RESP 2): its id and its fields with their values in turn. The fields are nil where the entry
was deleted from the stream and is still pending, and so is, before 7.0, the whole of it."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries as read: messages, and the ids of those that are none."""

    messages: tuple[Message, ...] = ()
    alien: tuple[str, ...] = ()


def written(deliveries: Sequence[UUID]) -> bytes:
    """The value of a message's field. Raises `ValueError` for no delivery or too many."""
    if not 0 < len(deliveries) <= MESSAGE_DELIVERIES:
        raise ValueError(f"a message carries 1 to {MESSAGE_DELIVERIES} ids, not {len(deliveries)}")
    return b"".join(delivery.bytes for delivery in deliveries)


def read_new(reply: Sequence[tuple[bytes, Sequence[Entry]]] | None) -> Entries:
    """What XREADGROUP answered for one stream; nil where nothing came in time."""
    return _told_apart(reply[0][1]) if reply else Entries()


def read_all(reply: Sequence[Entry]) -> Entries:
    """What XRANGE answered."""
    return _told_apart(reply)


def read_claimed(reply: tuple[bytes, Sequence[Entry]] | tuple[bytes, Sequence[Entry], object]) -> tuple[bytes, Entries]:
    """What XAUTOCLAIM answered: where to go on, and the entries. A third element (from 7.0 on) names deleted entries,
    which the server has made nobody's already; before, they stand among the others as nil."""
    return reply[0], _told_apart(reply[1])


def _told_apart(entries: Sequence[Entry]) -> Entries:
    messages, alien = [], []
    for entry in entries:
        if entry is None:
            continue
        name = entry[0].decode()
        deliveries = _deliveries(entry[1])
        if deliveries:
            messages.append(Message(name, deliveries))
        else:
            alien.append(name)
    return Entries(tuple(messages), tuple(alien))


def _deliveries(fields: Sequence[bytes] | None) -> tuple[UUID, ...]:
    """The ids that an entry carries; none where it is not one of Relay's."""
    if fields is None or len(fields) != 2 or fields[0] != FIELD:
        return ()
    value = fields[1]
    if not 0 < len(value) <= MESSAGE_DELIVERIES * _ID_BYTES or len(value) % _ID_BYTES:
        return ()
    return tuple(UUID(bytes=value[at : at + _ID_BYTES]) for at in range(0, len(value), _ID_BYTES))
