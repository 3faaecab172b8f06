"""Claims about addresses: what can be bound, what is refused, and in which words."""

from __future__ import annotations

import socket

import pytest

from relay.app.faults import CannotRun
from relay.app.listening import address_of, listen, url_of
from relay.settings import Bind


def test_port_0_takes_a_free_port_and_the_address_says_which() -> None:
    with listen(Bind("127.0.0.1", 0), "RELAY_BIND") as listener:
        address = address_of(listener)
        assert address.host == "127.0.0.1"
        with socket.create_connection((address.host, address.port), timeout=5):
            pass


def test_a_port_that_is_taken_names_the_setting_to_change() -> None:
    with listen(Bind("127.0.0.1", 0), "RELAY_BIND") as listener:
        taken = address_of(listener)
        with pytest.raises(
            CannotRun, match=rf"^127\.0\.0\.1:{taken.port} is in use by another process.*RELAY_METRICS_BIND"
        ):
            listen(taken, "RELAY_METRICS_BIND")


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_refused_in_words(host: str) -> None:
    with pytest.raises(CannotRun, match="set RELAY_BIND to an address of this machine"):
        listen(Bind(host, 0), "RELAY_BIND")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
    ],
)
def test_a_url_leads_this_machines_own_programs_to_the_address(host: str, url: str) -> None:
    assert url_of(Bind(host, 80)) == url
