"""The statement of ``docs/operations.md`` that says who waits for whom, asked while a dispatcher is held up."""

from __future__ import annotations

import asyncpg

from tests.support.installation import Installation, eventually
from tests.support.pages import block

STATEMENT = block("docs/operations.md", "select waiter.pid as waits").text
DEADLINE = 30.0


async def test_the_statement_of_the_page_names_who_holds_a_dispatcher_up(installation: Installation) -> None:
    holder = await asyncpg.connect(installation.dsn, server_settings={"application_name": "somebody"})
    pid = holder.get_server_pid()
    installation.dispatcher()
    await holder.execute("begin; lock table endpoint_state in access exclusive mode")

    async def pairs() -> set[tuple[str, str, int]]:
        rows = await installation.fetch(STATEMENT)
        return {(row["application_name"].split()[0], row["called"], row["blocked_by"]) for row in rows}

    found = await eventually(pairs, DEADLINE, "a dispatcher waits for the table")
    await holder.close()
    assert ("relay", "somebody", pid) in found
