"""Several servers by their names, each of which is asked as its superuser."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import asyncpg

ANSWER_SECONDS = 120.0
DATABASE = "postgres"


class Servers(ABC):
    """What those who run several have in common: `superuser_dsn` is theirs."""

    @abstractmethod
    def superuser_dsn(self, name: str, database: str = DATABASE) -> str:
        """The address of one server alone, for its superuser."""

    async def fetch(self, name: str, sql: str, *arguments: object, database: str = DATABASE) -> list[asyncpg.Record]:
        """Run one statement on one server as its superuser, outside of a transaction."""
        connection = await asyncpg.connect(self.superuser_dsn(name, database), timeout=ANSWER_SECONDS)
        try:
            return list(await connection.fetch(sql, *arguments, timeout=ANSWER_SECONDS))
        finally:
            connection.terminate()

    async def value(self, name: str, sql: str, *arguments: object) -> Any:
        """The first column of the first row."""
        return (await self.fetch(name, sql, *arguments))[0][0]
