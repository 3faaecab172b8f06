"""Claims about posts that prove whose they are."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest

from relay.domain.credentials import Proof
from relay.domain.signed import read_signature
from relay.loadtest.authenticated import SECRET, SOURCE, prover
from relay.loadtest.backlog import EVENT_TYPE, payload

GIVEN = "whsec_" + "A" * 43 + "="


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, GIVEN)


@pytest.mark.parametrize("proof", [Proof.BEARER, Proof.HMAC])
@pytest.mark.parametrize("size", [40, 500])
def test_a_post_is_an_event_of_the_wanted_size(proof: Proof, size: int) -> None:
    _, body = prover(proof).post(payload(size), 99_999_999)
    assert len(body) == size
    assert json.loads(body)["type"] == EVENT_TYPE


def test_no_two_signed_posts_are_alike_and_each_signature_holds() -> None:
    made = prover(Proof.HMAC)
    posts = [made.post(payload(40), place) for place in range(100)]
    assert all(one[1] != other[1] for one, other in pairwise(posts))
    for headers, body in posts:
        named = dict(headers)
        assert named["Relay-Source"] == SOURCE
        signed = read_signature(SOURCE, named["Relay-Timestamp"], named["Relay-Signature"], time.time())
        assert made.signer is not None
        assert signed.holds(made.signer, body)


def test_a_bearer_is_the_same_each_time_and_so_made_once() -> None:
    made = prover(Proof.BEARER)
    assert made.is_alike
    assert dict(made.post(payload(40), 0)[0]) == {"Authorization": f"Bearer {GIVEN}"}


def test_without_a_proof_nothing_is_added() -> None:
    assert prover(None).post(b"{}", 0) == ((), b"{}")
