"""Claims about the machine's own addresses."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from pathlib import Path

import pytest

from relay.app import interfaces
from relay.app.egress import policy_of
from relay.domain.egress import RefusalReason, judge_address
from relay.settings import read

IPV4 = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 93.184.215.0/24 2 0 2
        +-- 93.184.215.0/28 2 0 2
           |-- 93.184.215.0
              /24 link UNICAST
           |-- 93.184.215.14
              /32 host LOCAL
        |-- 93.184.215.255
           /32 link BROADCAST
     |-- 198.41.0.4
        /32 host LOCAL
Local:
  +-- 127.0.0.0/8 2 0 2
     |-- 127.0.0.1
        /32 host LOCAL
"""
IPV6 = """\
2a030000000000000000000000000007 02 40 00 80     eth0
fe8000000000000000fc00fffe000001 02 40 20 80     eth0
00000000000000000000000000000001 01 80 10 80       lo
"""
OURS = {"93.184.215.14", "198.41.0.4", "2a03::7", "fe80::fc:ff:fe00:1"}


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "fib_trie", tmp_path / "if_inet6"
    for path, text in zip(paths, (IPV4, IPV6), strict=True):
        path.write_text(text)
    return paths


def test_every_address_of_the_interfaces_is_known_but_loopback(tables: tuple[Path, Path]) -> None:
    assert {str(each) for each in interfaces.addresses(*tables)} == OURS


@pytest.mark.parametrize("text", ["", "nonsense\n\n|-- \n/32 host LOCAL\n", "\xff"])
def test_a_table_that_reads_otherwise_leads_to_fewer_addresses(tables: tuple[Path, Path], text: str) -> None:
    for path in tables:
        path.write_text(text, encoding="latin-1")
    assert interfaces.addresses(*tables) == frozenset()
    assert interfaces.addresses(tables[0] / "missing", tables[1] / "missing") == frozenset()


def test_the_address_from_which_this_machine_speaks_is_among_them() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as speaker:
        try:
            speaker.connect(("192.0.2.200", 9))  # sends nothing; the kernel chooses the address to send from
        except OSError:
            pytest.skip("this machine has no route for IPv4")
        spoken = ip_address(speaker.getsockname()[0])
    assert spoken.is_loopback or spoken in interfaces.addresses()


@pytest.mark.parametrize("bind", ["0.0.0.0:9091", "[::]:9091"])
def test_a_relay_that_listens_everywhere_sends_to_none_of_its_addresses(
    tables: tuple[Path, Path], bind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = interfaces.addresses(*tables)
    monkeypatch.setattr(interfaces, "addresses", lambda: known)
    policy = policy_of(read({"RELAY_METRICS_BIND": bind}))
    assert policy.own_addresses == known
    refusals = [judge_address(policy, ip) for ip in ("93.184.215.14", "2a03::7")]
    assert [each and each.reason for each in refusals] == [RefusalReason.OWN_ADDRESS] * 2
