"""Claims about what the audit tells of a change: every field that differs, and no value that may hold a secret."""

from __future__ import annotations

from dataclasses import fields, replace

from relay.domain.audit import FieldChange, config_changes, config_details, proof_changes
from relay.domain.credentials import Proof, SourceProof
from relay.domain.endpoint import AckMode, EndpointConfig, SignatureProfile, Transport

OLD = EndpointConfig(name="ledger", url="https://example.com/old-token", headers={"X-Api-Key": "old-token"})
NEW = EndpointConfig(
    name="books",
    url="https://example.com/new-token",
    transport=Transport.TELEGRAM,
    event_types=("invoice.*",),
    rate_per_second=1.0,
    burst=1,
    max_in_flight=1,
    timeout_seconds=1.0,
    retry={"preset": "patient"},
    ack=AckMode.EXPLICIT,
    signature=SignatureProfile.NONE,
    headers={"X-Api-Key": "new-token"},
)


def test_every_field_that_differs_is_named() -> None:
    assert [each.field for each in config_changes(OLD, NEW)] == [each.name for each in fields(EndpointConfig)]


def test_what_stays_as_it_was_is_not_named() -> None:
    assert config_changes(OLD, replace(OLD, burst=7)) == (FieldChange("burst", False, OLD.burst, 7),)
    assert config_changes(OLD, replace(OLD)) == ()


def test_values_that_may_hold_a_secret_are_not_told() -> None:
    assert [each.field for each in config_changes(OLD, NEW) if each.hidden] == ["url", "headers"]
    assert "token" not in repr(config_changes(OLD, NEW))
    assert "token" not in repr(config_details(NEW))


def test_of_what_a_source_is_proved_by_the_fields_that_differ_are_told() -> None:
    old = SourceProof((Proof.MTLS,), "a")
    assert proof_changes(old, old) == ()
    assert proof_changes(old, SourceProof((Proof.MTLS,), "b")) == (FieldChange("certificate_subject", False, "a", "b"),)
    both = proof_changes(old, SourceProof((Proof.HMAC,), None))
    assert both == (
        FieldChange("auth", False, (Proof.MTLS,), (Proof.HMAC,)),
        FieldChange("certificate_subject", False, "a", None),
    )
