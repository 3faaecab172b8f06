"""What an installation permits, and that nothing which cannot be judged is reached."""

import itertools
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.addresses import SPECIAL_IPV4, SPECIAL_IPV6
from relay.domain.egress import (
    NEVER_OPENED,
    OPENED_FOR_DEVELOPMENT,
    EgressPolicy,
    Refusal,
    RefusalReason,
    Target,
    check_url,
    judge_address,
    judge_all,
)

PRODUCTION = EgressPolicy()
DEVELOPMENT = EgressPolicy(allow_private=True, require_https=False, allowed_ports=None)
EVERYTHING_OPENED = EgressPolicy(allow_cidrs=(ip_network("0.0.0.0/0"), ip_network("::/0")))

# Of rows that begin with the same address the first one counts.
FIRST_ADDRESSES = {str(row.network[0]): row.reason for row in reversed(SPECIAL_IPV4 + SPECIAL_IPV6)}


def _reason(judged: Target | Refusal | None) -> RefusalReason | None:
    return judged.reason if isinstance(judged, Refusal) else None


def _address_reason(policy: EgressPolicy, ip: str | bytes) -> RefusalReason | None:
    return _reason(judge_address(policy, ip))


def test_a_public_https_url_on_443_is_a_target() -> None:
    target = check_url(PRODUCTION, "https://example.com/hook")
    assert isinstance(target, Target)
    assert target.url == "https://example.com/hook"


def test_an_unreadable_url_is_refused_before_anything_else() -> None:
    assert _reason(check_url(DEVELOPMENT, "https://user@example.com/")) is RefusalReason.USERINFO


def test_plain_http_is_for_installations_that_do_not_require_https() -> None:
    lenient = EgressPolicy(require_https=False, allowed_ports=frozenset({80}))
    assert _reason(check_url(PRODUCTION, "http://example.com:443/")) is RefusalReason.SCHEME
    assert _reason(check_url(lenient, "http://example.com/")) is None


def test_only_the_allowed_ports_are_reached() -> None:
    two_ports = EgressPolicy(allowed_ports=frozenset({443, 8443}))
    refusal = check_url(two_ports, "https://example.com:6379/")
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, "443, 8443" in refusal.detail) == (RefusalReason.PORT, True)
    assert _reason(check_url(two_ports, "https://example.com:8443/")) is None
    assert _reason(check_url(EgressPolicy(allowed_ports=None), "https://example.com:6379/")) is None
    assert _reason(check_url(EgressPolicy(allowed_ports=frozenset()), "https://example.com/")) is RefusalReason.PORT


def test_an_address_literal_is_judged_without_any_resolver() -> None:
    """C27, C28, C30 to C32; by every way of sending: `test_forbidden_addresses`."""
    expected = {
        "https://127.0.0.1/": RefusalReason.LOOPBACK,
        "https://[::1]/admin": RefusalReason.LOOPBACK,
        "https://[::ffff:127.0.0.1]/": RefusalReason.LOOPBACK,
        "https://[::ffff:7f00:1]/": RefusalReason.LOOPBACK,
        "https://[::ffff:a9fe:a9fe]/": RefusalReason.METADATA,
        "https://[::ffff:100.64.0.1]/": RefusalReason.SHARED,
        "https://[fd00::1]/": RefusalReason.PRIVATE,
        "https://[fe80::1]/": RefusalReason.LINK_LOCAL,
        "https://[::127.0.0.1]/": RefusalReason.TRANSITION,
        "https://[::a9fe:a9fe]/": RefusalReason.TRANSITION,
        "https://[::]/": RefusalReason.UNSPECIFIED,
        "https://[2002:7f00:1::1]/": RefusalReason.TRANSITION,
        "https://[2001:0:4136:e378:8000:63bf:f5ff:fffe]/": RefusalReason.TRANSITION,
        "https://[64:ff9b:1:fffe::1]/": RefusalReason.TRANSITION,
        "https://①②⑦.⓪.⓪.①/": RefusalReason.LOOPBACK,
        "https://169.254.169.254/latest/meta-data/": RefusalReason.METADATA,
        "https://168.63.129.16/": RefusalReason.METADATA,
        "https://[::ffff:8.8.8.8]/": None,
        "https://[2001:4860:4860::8888]/": None,
    }
    assert {url: _reason(check_url(PRODUCTION, url)) for url in expected} == expected


def test_names_under_localhost_are_loopback_whatever_a_resolver_says() -> None:
    hosts = ["localhost", "LOCALHOST", "a.b.localhost", "ⓛocalhost"]
    assert [_reason(check_url(PRODUCTION, f"https://{host}/")) for host in hosts] == [RefusalReason.LOOPBACK] * 4
    assert [_reason(check_url(DEVELOPMENT, f"http://{host}:9099/")) for host in hosts] == [None] * 4
    assert _reason(check_url(PRODUCTION, "https://notlocalhost/")) is None


def test_production_refuses_every_special_range_by_its_own_reason() -> None:
    assert {ip: _address_reason(PRODUCTION, ip) for ip in FIRST_ADDRESSES} == FIRST_ADDRESSES


def test_the_development_switch_opens_the_private_kinds_and_no_other() -> None:
    kept_shut = {ip: reason for ip, reason in FIRST_ADDRESSES.items() if _address_reason(DEVELOPMENT, ip)}
    assert kept_shut == {ip: reason for ip, reason in FIRST_ADDRESSES.items() if reason not in OPENED_FOR_DEVELOPMENT}
    assert RefusalReason.METADATA in kept_shut.values()


def test_allowed_ranges_open_what_one_receiver_can_own_and_never_the_rest() -> None:
    never = NEVER_OPENED | {RefusalReason.METADATA}
    nat64 = {"64:ff9b::": RefusalReason.UNSPECIFIED}
    kept_shut = {ip: reason for ip in FIRST_ADDRESSES if (reason := _address_reason(EVERYTHING_OPENED, ip))}
    assert kept_shut == {ip: reason for ip, reason in FIRST_ADDRESSES.items() if reason in never} | nat64


METADATA = [str(row.network[0]) for row in SPECIAL_IPV4 + SPECIAL_IPV6 if row.reason is RefusalReason.METADATA]


@pytest.mark.parametrize("ip", METADATA)
def test_a_metadata_service_is_opened_by_its_own_address_alone(ip: str) -> None:
    address = ip_address(ip)
    around = [ip_network((ip, prefix), strict=False) for prefix in range(address.max_prefixlen)]
    assert {_address_reason(EgressPolicy(allow_cidrs=(each,)), ip) for each in around} == {RefusalReason.METADATA}
    assert _address_reason(EgressPolicy(allow_cidrs=(*around, ip_network(ip))), ip) is None
    assert len(METADATA) == 9


def test_a_metadata_service_behind_nat64_is_opened_by_its_own_address_and_the_prefix_together() -> None:
    nat64, service = ip_network("64:ff9b::/96"), ip_network("169.254.169.254/32")
    ip = "64:ff9b::169.254.169.254"
    around = EgressPolicy(allow_cidrs=(nat64, ip_network("169.254.0.0/16")))
    assert _address_reason(around, ip) is RefusalReason.METADATA
    assert _address_reason(EgressPolicy(allow_cidrs=(nat64, service)), ip) is None


def test_an_allowed_range_opens_itself_alone() -> None:
    policy = EgressPolicy(allow_cidrs=(ip_network("10.1.0.0/16"), ip_network("fd00:1::/32")))
    ips = ["10.1.2.3", "::ffff:10.1.2.3", "fd00:1::1", "10.2.0.1", "fd00:2::1", "127.0.0.1"]
    private, loopback = RefusalReason.PRIVATE, RefusalReason.LOOPBACK
    assert [_address_reason(policy, ip) for ip in ips] == [None, None, None, private, private, loopback]


def test_opening_nat64_opens_the_public_internet_behind_it_only() -> None:
    policy = EgressPolicy(allow_cidrs=(ip_network("64:ff9b::/96"),))
    assert _address_reason(policy, "64:ff9b::8.8.8.8") is None
    assert _address_reason(policy, "64:ff9b::169.254.169.254") is RefusalReason.METADATA
    assert _address_reason(policy, "64:ff9b::10.0.0.1") is RefusalReason.PRIVATE


def test_relays_own_addresses_are_refused_even_where_they_are_public_or_allowed() -> None:
    own = frozenset({ip_address("198.41.0.4"), ip_address("10.0.0.7")})
    policy = EgressPolicy(own_addresses=own, allow_cidrs=(ip_network("10.0.0.0/8"),))
    refused = [_address_reason(policy, ip) for ip in ("198.41.0.4", "::ffff:198.41.0.4", "10.0.0.7")]
    assert refused == [RefusalReason.OWN_ADDRESS] * 3
    assert _address_reason(policy, "10.0.0.8") is None


def test_relays_own_ports_on_loopback_stay_shut_where_a_network_opens_it() -> None:
    opened = (ip_network("127.0.0.0/8"), ip_network("::1/128"), ip_network("10.0.0.0/8"))
    policy = EgressPolicy(allow_cidrs=opened, own_loopback_ports=frozenset({8080}))
    judged = [judge_address(policy, ip, 8080) for ip in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1")]
    assert [_reason(each) for each in judged] == [RefusalReason.OWN_ADDRESS] * 4
    assert [judge_address(policy, ip, port) for ip, port in (("127.0.0.1", 9099), ("10.0.0.1", 8080))] == [None, None]
    shut = EgressPolicy(own_loopback_ports=frozenset({8080}))
    assert _reason(judge_address(shut, "127.0.0.1", 8080)) is RefusalReason.LOOPBACK


def test_on_a_development_machine_relay_and_its_receivers_may_share_an_address() -> None:
    own = frozenset({ip_address("127.0.0.1")})
    policy = EgressPolicy(allow_private=True, own_addresses=own, own_loopback_ports=frozenset({8080}))
    assert judge_address(policy, "127.0.0.1", 8080) is None


def test_one_refused_address_refuses_all_of_a_name() -> None:
    public, private = "8.8.8.8", "10.0.0.5"
    assert judge_all(PRODUCTION, [public, "2001:4860:4860::8888"]) is None
    for answers in itertools.permutations([public, private, "1.1.1.1"]):
        assert _reason(judge_all(PRODUCTION, answers)) is RefusalReason.PRIVATE


def test_a_name_without_an_address_is_refused() -> None:
    assert _reason(judge_all(DEVELOPMENT, [])) is RefusalReason.NO_ADDRESS


@settings(max_examples=50)
@given(st.one_of(st.text(max_size=20), st.binary(max_size=20)))
def test_whatever_cannot_be_read_as_an_address_is_refused(form: str | bytes) -> None:
    judged = judge_address(EVERYTHING_OPENED, form)
    try:
        ip_address(form)
    except ValueError:
        assert _reason(judged) is RefusalReason.UNREADABLE_ADDRESS


def test_a_refusal_names_the_range_and_not_the_address_that_only_this_network_knows() -> None:
    refusal = judge_address(PRODUCTION, "10.20.30.40")
    assert refusal is not None
    assert "10.0.0.0/8" in refusal.detail
    assert "10.20.30.40" not in refusal.detail
