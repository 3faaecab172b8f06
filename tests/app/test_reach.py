"""Claims about where Relay listens: open to others only once somebody has a credential."""

from __future__ import annotations

import pytest

from relay.app.faults import CannotRun
from relay.app.installation import check_reach
from relay.settings import Bind
from relay.store.database import Database
from relay.store.vault import Vault, new_key
from tests.support.administration import Administration

OPEN = ["0.0.0.0", "::", "192.0.2.1", "relay.example"]


@pytest.mark.parametrize("host", OPEN)
async def test_without_credentials_an_open_address_is_refused(database: Database, host: str) -> None:
    made = Administration(database, Vault([new_key()]))
    with pytest.raises(CannotRun, match="relay keys create --local"):
        await check_reach(made.issuer, Bind(host, 8080))


@pytest.mark.parametrize("host", OPEN)
async def test_with_a_key_it_is_not(database: Database, host: str) -> None:
    made = Administration(database, Vault([new_key()]))
    await made.key("admin")
    await check_reach(made.issuer, Bind(host, 8080))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
async def test_loopback_needs_no_credentials(database: Database, host: str) -> None:
    await check_reach(Administration(database, Vault([new_key()])).issuer, Bind(host, 8080))
