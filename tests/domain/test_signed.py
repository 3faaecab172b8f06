"""Claims about requests that come in signed."""

from __future__ import annotations

import hashlib
import hmac
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.domain.endpoint import SignatureProfile
from relay.domain.secret import Secret
from relay.domain.signed import WINDOW_SECONDS, InvalidSignature, Signed, fingerprint, name_of, read_signature
from relay.domain.signing import Signer, prepare

SECRET = "whsec_" + "k" * 44
NOW = 1_800_000_000.0
AT = str(int(NOW))


def code(body: bytes, *, secret: str = SECRET, at: str = AT) -> str:
    """The signature by the standard library alone."""
    return hmac.new(secret.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()


def signer(secret: str = SECRET) -> Signer:
    return prepare(SignatureProfile.RELAY, (Secret(secret),))


def read(signature: str, *, at: str = AT, now: float = NOW) -> Signed:
    return read_signature("billing", at, signature, now)


@given(st.binary())
def test_a_body_that_was_signed_holds_and_no_other_does(body: bytes) -> None:
    signed = read(f"v1={code(body)}")
    assert signed.holds(signer(), body)
    assert not signed.holds(signer(), body + b"\n")
    assert not signed.holds(signer(SECRET + "x"), body)


def test_what_relay_signs_holds() -> None:
    sent = dict(signer().headers(int(NOW), UUID(int=7), "a", b"{}"))
    assert read_signature("billing", sent["Relay-Timestamp"], sent["Relay-Signature"], NOW).holds(signer(), b"{}")


@given(st.binary(min_size=1), st.integers(min_value=0), st.integers(0, 7))
def test_one_flipped_bit_is_another_body(body: bytes, place: int, bit: int) -> None:
    place %= len(body)
    flipped = body[:place] + bytes([body[place] ^ 1 << bit]) + body[place + 1 :]
    assert not read(f"v1={code(body)}").holds(signer(), flipped)


@pytest.mark.parametrize("signature", ["v1={c},v1={o}", "v1={o},v1={c}", "v1={o}, v1={c}", "v2=x,v1={c}", "v1={C}"])
def test_one_of_several_signatures_is_enough(signature: str) -> None:
    right, other = code(b"{}"), code(b"[]")
    assert read(signature.format(c=right, o=other, C=right.upper())).holds(signer(), b"{}")


@pytest.mark.parametrize("off", [-WINDOW_SECONDS, 0, WINDOW_SECONDS])
def test_a_timestamp_inside_the_window_is_fresh(off: int) -> None:
    assert read(f"v1={code(b'')}", now=NOW + off).source == "billing"


@pytest.mark.parametrize("off", [-WINDOW_SECONDS - 1, WINDOW_SECONDS + 1, -1e9, 1e9])
def test_a_timestamp_outside_of_the_window_is_refused(off: float) -> None:
    with pytest.raises(InvalidSignature, match="300 s away"):
        read(f"v1={code(b'')}", now=NOW + off)


@pytest.mark.parametrize("at", ["", "0", "-5", "1.8e9", "0" + AT, f" {AT}", f"{AT} ", f"{AT}, {AT}", "1" * 13, "١٢٣"])
def test_a_timestamp_has_one_spelling(at: str) -> None:
    with pytest.raises(InvalidSignature, match="whole Unix seconds"):
        read("v1=" + "0" * 64, at=at)


NO_SIGNATURES = ["", "v1=", "v1=" + "0" * 63, "v1=" + "0" * 65, "0" * 64, "v2=" + "0" * 64, "v1=é"]


@pytest.mark.parametrize("signature", NO_SIGNATURES)
def test_what_is_no_signature_is_refused(signature: str) -> None:
    with pytest.raises(InvalidSignature, match="64 hexadecimal digits"):
        read(signature)


def test_only_so_many_signatures_are_looked_at() -> None:
    many = ",".join(["v1=" + "0" * 64] * 1000)
    assert len(read(many).codes) == 8


@given(st.binary(), st.binary())
def test_requests_that_are_signed_alike_have_one_digest(one: bytes, other: bytes) -> None:
    signed, again = read(f"v1={code(one)}"), read(f"v1={code(one)},v1={code(other)}")
    assert signed.digest(one) == again.digest(one)
    assert (signed.digest(one) == signed.digest(other)) == (one == other)
    assert signed.digest(one) != read("v1=" + "0" * 64, at=str(int(AT) + 1)).digest(one)


PARTS = st.text(st.characters(codec="ascii", exclude_characters="\0"))


@given(st.tuples(PARTS, PARTS, PARTS), st.tuples(PARTS, PARTS, PARTS))
def test_another_path_name_or_type_is_another_request(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (fingerprint(*one) == fingerprint(*other)) == (one == other)


def test_the_name_of_a_signed_request_is_none_that_a_sender_can_write() -> None:
    names = [name_of(b"\x01"), name_of(b"\x01", 0), name_of(b"\x01", 1), name_of(b"\x02")]
    assert len(set(names)) == 4
    assert all(" " in name for name in names)
