"""Posts with a credential: the source made for a measurement, and the headers that prove each post is its own.

Owns how a load authenticates. Invariant: no two signed posts are alike, since a gateway takes the second for a replay.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relay.domain.credentials import Proof
from relay.domain.endpoint import SignatureProfile
from relay.domain.secret import Secret
from relay.domain.signing import Headers, Signer, prepare
from relay.loadtest import backlog

SOURCE = "bench"
SECRET = "RELAY_LOADTEST_SECRET"  # noqa: S105 - the variable's name
"""Where the generator's process finds the source's secret: other users can read arguments, but not that."""

_TIMEOUT_SECONDS = 10.0


def make_source(url: str, proof: Proof) -> str:
    """End anonymous access at the gateway of this base url, and make a source with that proof; answers its secret.

    Raises `RuntimeError` if the gateway refuses.
    """
    admin = _post(f"{url}/v1/keys", {"name": "bench-admin", "scopes": ["admin"]}, {})["secret"]
    made = _post(f"{url}/v1/sources", {"name": SOURCE, "auth": [proof]}, {"Authorization": f"Bearer {admin}"})
    return str(made["secret"])


def _post(url: str, document: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    body = json.dumps(document).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **headers})  # noqa: S310 - our own address
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310 - our own address
            answer: dict[str, Any] = json.load(response)
    except OSError as fault:
        raise RuntimeError(f"the gateway made no credential: {fault}") from fault
    return answer


@dataclass(frozen=True, slots=True)
class Prover:
    """Makes a post's headers and body from the plain body; `secret` is None where nothing is to be proved."""

    proof: Proof | None
    secret: Secret | None
    signer: Signer | None

    @property
    def is_alike(self) -> bool:
        """Whether all posts of one body are the same, so that one can be made ahead."""
        return self.signer is None

    def post(self, body: bytes, place: int) -> tuple[Headers, bytes]:
        """Headers and body of the post in this place."""
        if self.secret is None:
            return (), body
        if self.signer is None:
            return (("Authorization", f"Bearer {self.secret.expose()}"),), body
        numbered = backlog.numbered(body, place)
        signed = self.signer.headers(int(time.time()), backlog.new_id(), backlog.EVENT_TYPE, numbered)
        return (("Relay-Source", SOURCE), *signed), numbered


def prover(proof: Proof | None) -> Prover:
    """What proves posts in this way, with the secret of the environment. Raises `KeyError` where that is missing."""
    if proof is None:
        return Prover(None, None, None)
    secret = Secret(os.environ[SECRET])
    signer = prepare(SignatureProfile.RELAY, (secret,)) if proof is Proof.HMAC else None
    return Prover(proof, secret, signer)
