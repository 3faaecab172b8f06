"""Claims about the policy that both processes build from the same settings."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from relay.app.egress import policy_of
from relay.domain.egress import Refusal, RefusalReason, Target, check_url
from relay.settings import read


def test_production_takes_public_https_on_its_port_alone() -> None:
    policy = policy_of(read({}))
    assert (policy.allow_private, policy.require_https, policy.allowed_ports) == (False, True, frozenset({443}))


def test_the_development_switch_opens_private_addresses_http_and_every_port() -> None:
    policy = policy_of(read({"RELAY_ALLOW_PRIVATE_ENDPOINTS": "true"}))
    assert (policy.allow_private, policy.require_https, policy.allowed_ports) == (True, False, None)


def test_networks_are_opened_as_the_setting_says() -> None:
    policy = policy_of(read({"RELAY_EGRESS_ALLOW_CIDRS": "10.1.0.0/16"}))
    assert policy.allow_cidrs == (ip_network("10.1.0.0/16"),)


def test_an_address_that_relay_listens_on_is_no_endpoint() -> None:
    policy = policy_of(read({"RELAY_METRICS_BIND": "93.184.215.14:9091"}))
    assert policy.own_addresses == {ip_address("93.184.215.14")}
    judged = check_url(policy, "https://93.184.215.14/hooks")
    assert isinstance(judged, Refusal)
    assert judged.reason is RefusalReason.OWN_ADDRESS


@pytest.mark.parametrize("bind", ["127.0.0.1:9091", "[::1]:9091", "0.0.0.0:9091", "localhost:9091"])
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "[::ffff:127.0.0.1]"])
def test_relays_own_port_is_no_endpoint_even_where_loopback_is_opened(bind: str, host: str) -> None:
    opened = {"RELAY_EGRESS_ALLOW_CIDRS": "127.0.0.0/8,::1/128", "RELAY_ALLOWED_PORTS": "*"}
    policy = policy_of(read({"RELAY_BIND": "127.0.0.1:8080", "RELAY_METRICS_BIND": bind, **opened}))
    ours = [check_url(policy, f"https://{host}:{port}/") for port in (8080, 9091)]
    assert [each.reason for each in ours if isinstance(each, Refusal)] == [RefusalReason.OWN_ADDRESS] * 2
    assert isinstance(check_url(policy, f"https://{host}:9092/"), Target)


def test_a_port_that_relay_has_on_another_address_is_free_on_loopback() -> None:
    opened = {"RELAY_EGRESS_ALLOW_CIDRS": "127.0.0.0/8", "RELAY_ALLOWED_PORTS": "*"}
    policy = policy_of(read({"RELAY_BIND": "127.0.0.1:0", "RELAY_METRICS_BIND": "93.184.215.14:9091", **opened}))
    assert policy.own_loopback_ports == frozenset()
    assert isinstance(check_url(policy, "https://127.0.0.1:9091/"), Target)
