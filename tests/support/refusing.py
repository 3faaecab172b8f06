"""A database that refuses the records of attempts, as a broken constraint or another's trigger would."""

from __future__ import annotations

from relay.store.database import Database

_FUNCTION = """
create or replace function refuse_record() returns trigger language plpgsql as $$
begin
    raise exception 'refused by a test' using errcode = tg_argv[0];
end $$
"""
UNIQUE_VIOLATION, DISK_FULL, READ_ONLY = "23505", "53100", "25006"


async def refuse_records(database: Database, *, code: str = UNIQUE_VIOLATION, where: str = "true") -> None:
    """From now on the record of an attempt (`new`) for which the condition holds is refused with that error."""
    async with database.transaction() as connection:
        await connection.execute(_FUNCTION)
        await connection.execute(
            f"create trigger refuse_record before insert on delivery_attempts for each row when ({where})"
            f" execute function refuse_record('{code}')"
        )


async def accept_records(database: Database) -> None:
    """Take the refusal back."""
    async with database.connection() as connection:
        await connection.execute("drop trigger refuse_record on delivery_attempts")
