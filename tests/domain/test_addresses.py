"""Every special range is refused from its first address to its last, in whatever form the address comes."""

from ipaddress import IPv4Address, IPv6Address, ip_address

from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.addresses import SPECIAL_IPV4, SPECIAL_IPV6, SpecialRange, classify, read_address, translated_by_nat64
from relay.domain.refusal import RefusalReason
from tests.support.forbidden import REFUSED_IPV4, REFUSED_IPV6, samples

METADATA = """
    169.254.169.254 169.254.170.2 169.254.170.23 100.100.100.200 192.0.0.192 168.63.129.16
    fd00:ec2::254 fd00:ec2::23 fd20:ce::254
"""

# The last address before a range and the first after it, and well-known public servers.
PUBLIC = """
    1.0.0.0 1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 168.63.129.15
    168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0 192.0.3.0
    192.31.195.255 192.31.197.0 192.52.192.255 192.52.194.0 192.88.98.255 192.88.100.0 192.167.255.255 192.169.0.0
    192.175.47.255 192.175.49.0 198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0
    223.255.255.255 2000:: 2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff 2001:200:: 2001:4860:4860::8888 2001:db7:ffff::1
    2001:db9:: 2001:ffff::1 2003:: 2606:4700:4700::1111 2620:4f:7fff::1 2620:4f:8001:: 3ffe:ffff::1 3fff:1000::
"""


def _judged(text: str) -> SpecialRange | None:
    address = read_address(text)
    assert address is not None
    return classify(address)


def test_first_middle_and_last_address_of_every_refused_range_are_special() -> None:
    """C30."""
    passed = [ip for network in (*REFUSED_IPV4, *REFUSED_IPV6) for ip in samples(network) if _judged(ip) is None]
    assert passed == []


def test_the_mapped_form_of_every_refused_ipv4_address_is_judged_like_the_address() -> None:
    ips = [ip for network in REFUSED_IPV4 for ip in samples(network)]
    assert [ip for ip in ips if _judged(f"::ffff:{ip}") != _judged(ip)] == []


def test_addresses_around_the_refused_ranges_stay_public() -> None:
    assert [ip for ip in PUBLIC.split() if _judged(ip) is not None] == []


def test_every_row_of_the_tables_answers_for_its_range() -> None:
    rows = SPECIAL_IPV4 + SPECIAL_IPV6
    passed = [ip for row in rows for ip in samples(str(row.network)) if classify(ip_address(ip)) is None]
    assert passed == []


def test_a_row_is_not_hidden_by_an_earlier_one_with_the_same_range_or_a_wider_one() -> None:
    hidden = [
        (row.network, wider.network)
        for table in (SPECIAL_IPV4, SPECIAL_IPV6)
        for at, row in enumerate(table)
        for wider in table[:at]
        if int(wider.network[0]) <= int(row.network[0]) and int(row.network[-1]) <= int(wider.network[-1])
    ]
    assert hidden == []


def test_metadata_services_are_told_apart_from_the_ranges_around_them() -> None:
    reasons = {ip: special.reason for ip in METADATA.split() if (special := _judged(ip))}
    assert reasons == dict.fromkeys(METADATA.split(), RefusalReason.METADATA)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_an_ipv4_address_reads_the_same_as_text_as_bytes_and_mapped(number: int) -> None:
    address = IPv4Address(number)
    mapped = IPv6Address(0xFFFF_0000_0000 | number)
    read = [
        read_address(form) for form in (str(address), address.packed, str(mapped), mapped.packed, f"::ffff:{address}")
    ]
    assert read == [address] * 5


@settings(max_examples=40)
@given(st.integers(0, 2**128 - 1).filter(lambda number: number >> 125 != 1 and number >> 32 != 0xFFFF))
def test_no_ipv6_address_outside_of_2000_3_is_public(number: int) -> None:
    assert classify(IPv6Address(number)) is not None


def test_what_is_not_exactly_an_address_is_not_read() -> None:
    spellings = """
        127.1 0177.0.0.1 127.0.0.01 2130706433 0x7f000001 0 127.0.0.1. 1.2.3.4.5 256.1.1.1 1.2.3.4/32 ::1%lo [::1]
        fe80::1%25eth0 ::ffff:127.0.0.1%1 ::1::2 12345::1 localhost \uff11\uff12\uff17.0.0.1 1.2.3.\u0664
    """
    texts = [*spellings.split(), "", " 127.0.0.1", "127.0.0.1\n", "1.2.3.4\0", "\ud800"]
    packed = [b"", b"\x7f\x00\x00", b"\x00" * 5, b"\x00" * 17, b"127.0.0.1"]
    assert [text for text in texts if read_address(text) is not None] == []
    assert [form for form in packed if read_address(form) is not None] == []


def test_the_nat64_prefix_gives_up_the_address_it_carries() -> None:
    assert translated_by_nat64(IPv6Address("64:ff9b::a9fe:a9fe")) == IPv4Address("169.254.169.254")
    assert translated_by_nat64(IPv6Address("64:ff9b:1::a9fe:a9fe")) is None
    assert translated_by_nat64(IPv4Address("8.8.8.8")) is None
