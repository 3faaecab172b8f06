"""Claims about the policy that both processes build from the same settings."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from relay.app.egress import policy_of
from relay.domain.egress import Refusal, RefusalReason, check_url
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
