"""The broker of these settings, if they name one.

Owns the step from `RELAY_BROKER_URL` to an address. Invariant: a url that no broker could be reached by is refused at
the start, by its own words and without its credentials.
"""

from __future__ import annotations

from relay.broker import Address, AddressRefused, read_address
from relay.settings import Settings, SettingsError
from relay.settings.reading import Fault

NAME = "RELAY_BROKER_URL"


def broker_address(settings: Settings) -> Address | None:
    """Where the broker is, None without one. Raises `SettingsError`."""
    if settings.broker_url is None:
        return None
    try:
        return read_address(settings.broker_url.expose())
    except AddressRefused as fault:
        raise SettingsError((Fault(NAME, f"cannot be used: {fault}"),)) from None
