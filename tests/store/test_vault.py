"""The vault: sealed under the newest key, opened by any."""

from __future__ import annotations

import pytest

from relay.domain.secret import Secret
from relay.store.vault import InvalidKey, Vault, VaultLocked, new_key

SECRET = Secret("whsec_é plain")


def test_what_was_sealed_opens_again() -> None:
    vault = Vault([new_key()])
    assert vault.open(vault.seal(SECRET)) == SECRET


def test_sealing_twice_gives_two_texts() -> None:
    vault = Vault([new_key()])
    assert vault.seal(SECRET) != vault.seal(SECRET)


def test_an_older_key_opens_and_the_newest_seals() -> None:
    old, new = new_key(), new_key()
    assert Vault([new, old]).open(Vault([old]).seal(SECRET)) == SECRET
    with pytest.raises(VaultLocked):
        Vault([old]).open(Vault([new, old]).seal(SECRET))


@pytest.mark.parametrize("ciphertext", [b"", b"\x00", b"gAAAAA", b"whsec_plain", "\N{PILE OF POO}".encode()])
def test_what_no_key_sealed_does_not_open(ciphertext: bytes) -> None:
    with pytest.raises(VaultLocked, match="RELAY_SECRET_KEYS"):
        Vault([new_key()]).open(ciphertext)


def test_a_text_that_was_tampered_with_does_not_open() -> None:
    vault = Vault([new_key()])
    sealed = bytearray(vault.seal(SECRET))
    sealed[40] = sealed[40] ^ 1
    with pytest.raises(VaultLocked):
        vault.open(bytes(sealed))


@pytest.mark.parametrize("keys", [[], ["short"], ["not base64 " * 4], ["é" * 44]])
def test_keys_of_another_form_are_refused_without_being_shown(keys: list[str]) -> None:
    with pytest.raises(InvalidKey, match="`relay secret-key`") as refused:
        Vault([Secret(key) for key in keys])
    assert not any(key in str(refused.value) for key in keys)
