"""Claims about reading certificates: whatever bytes come, they are a certificate or they are not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from cryptography import x509

from relay.domain.certificate import FINGERPRINT
from relay.web.certificates import Certificate, Unreadable, read_certificate
from tests.support.certificates import ClientAuthority

ROUNDS = 4_000


def read(der: bytes) -> Certificate | None:
    try:
        return read_certificate(der)
    except Unreadable:
        return None


@pytest.fixture
def der(tmp_path: Path) -> bytes:
    names = (x509.UniformResourceIdentifier("spiffe://mesh/a"), x509.RFC822Name("a@example.com"))
    return ClientAuthority(tmp_path).issue("a.example.com", *names, common_names=["a"]).der


def test_a_certificate_has_its_names_and_its_fingerprint(der: bytes) -> None:
    *names, fingerprint = read_certificate(der).names
    assert names == ["a.example.com", "spiffe://mesh/a", "a@example.com"]
    assert fingerprint.startswith(FINGERPRINT)


def test_bytes_that_were_changed_are_another_certificate_or_none(der: bytes) -> None:
    chance, fingerprint = random.Random(155), read_certificate(der).names[-1]
    kept = 0
    for _ in range(ROUNDS):
        altered = bytearray(der)
        for _ in range(chance.randrange(1, 4)):
            altered[chance.randrange(len(altered))] ^= chance.randrange(1, 256)
        found = read(bytes(altered))
        if found is not None and bytes(altered) != der:
            kept += 1
            assert found.names[-1] != fingerprint
            assert all(name.isprintable() for name in found.names)
    assert 0 < kept < ROUNDS


def test_what_was_cut_off_or_made_up_is_none(der: bytes) -> None:
    chance = random.Random(155)
    assert not any(read(der[:length]) for length in range(len(der)))
    assert not any(read(chance.randbytes(chance.randrange(2_000))) for _ in range(500))
