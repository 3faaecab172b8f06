"""Claims about what credentials are good for, and whose a request is that proves something."""

from __future__ import annotations

import re
from itertools import chain, combinations
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.domain.credentials import (
    ADMINISTERING,
    NOTHING,
    CredentialFault,
    Credentials,
    Identity,
    Key,
    Proof,
    Proofs,
    Scope,
    Source,
    SourceProof,
    SourceSecret,
    Unproven,
    digest_of,
    held,
    new_key_secret,
)

A, B = "acct_a", "acct_b"
NEW, OLD = UUID(int=1), UUID(int=2)
SUBJECT = "CN=billing"


@pytest.mark.parametrize(
    ("scopes", "permits"),
    [
        ([], set()),
        (["ingest"], {"ingest"}),
        (["read"], {"read"}),
        (["ingest", "read"], {"ingest", "read"}),
        (["admin"], {"ingest", "read", "admin"}),
        (["operator"], {"ingest", "read", "admin", "operator"}),
    ],
)
def test_a_scope_permits_what_it_includes_and_nothing_else(scopes: list[str], permits: set[str]) -> None:
    assert held(map(Scope, scopes)) == permits


def test_only_who_may_make_credentials_administers() -> None:
    assert {scope for scope in Scope if Scope.ADMIN in held([scope])} == ADMINISTERING


def source(*auth: Proof, name: str = "billing", keyed: bool = False, tenant: str = A) -> Source:
    """A source in the middle of a rotation; its old secret counts until 100."""
    secrets = (SourceSecret(digest_of("new"), NEW), SourceSecret(digest_of("old"), OLD, until=100.0))
    return Source(tenant, name, frozenset(auth), SUBJECT, secrets, keyed)


def book(*sources: Source, **keys: Key) -> Credentials:
    """The credentials in force; a key's secret is the name it is given by here."""
    return Credentials(7, {A, B}, {digest_of(secret): key for secret, key in keys.items()}, sources)


def bearing(secret: str, *, signed: tuple[str, UUID] | None = None, subjects: tuple[str, ...] = ()) -> Proofs:
    return Proofs(digest_of(secret), signed, subjects)


READER = Key(A, "reader", frozenset({Scope.READ}), None)
FOR_BILLING = Key(A, "deploy", frozenset({Scope.INGEST, Scope.READ}), "billing")
SIGNED = ("billing", NEW)


def test_a_key_of_its_own_is_a_sender_of_its_own() -> None:
    judged = book(k=READER).judge(bearing("k"), 0.0)
    assert judged == Identity(A, "key:reader", "key:reader", frozenset({Scope.READ}))


def test_a_source_that_proves_itself_may_send_and_nothing_else() -> None:
    judged = book(source(Proof.BEARER)).judge(bearing("new"), 0.0)
    assert judged == Identity(A, "billing", "source:billing", frozenset({Scope.INGEST}))


def test_a_key_of_a_source_sends_as_the_source_with_its_own_scopes() -> None:
    judged = book(source(Proof.BEARER), k=FOR_BILLING).judge(bearing("k"), 0.0)
    assert judged == Identity(A, "billing", "key:deploy", frozenset({Scope.INGEST, Scope.READ}))


INVALID = Unproven(CredentialFault.INVALID)
UNSIGNED = Unproven(CredentialFault.UNSIGNED)
MISSING = Unproven(CredentialFault.MISSING)


@pytest.mark.parametrize(
    ("proofs", "expected"),
    [
        (NOTHING, MISSING),
        (Proofs(subjects=("somebody",)), INVALID),
        (bearing("nobody's"), INVALID),
        (bearing("old"), INVALID),  # it signs, but is no bearer
        (Proofs(signed=("nobody", NEW)), UNSIGNED),
        (Proofs(signed=("billing", UUID(int=9))), UNSIGNED),
        (bearing("of_another", signed=SIGNED), INVALID),
        (bearing("of_none", signed=SIGNED), INVALID),
        (bearing("orphan"), INVALID),
    ],
)
def test_a_request_that_proves_too_little_or_too_much_is_nobodys(proofs: Proofs, expected: Unproven) -> None:
    credentials = book(
        source(Proof.HMAC),
        Source(A, "other", frozenset({Proof.BEARER}), None, ()),
        of_another=Key(A, "k", frozenset({Scope.INGEST}), "other"),
        of_none=READER,
        orphan=Key(A, "o", frozenset({Scope.INGEST}), "removed"),
    )
    assert credentials.judge(proofs, 0.0) == expected


ALL_OF_THEM = [frozenset(some) for n in range(1, 4) for some in combinations(Proof, n)]
GIVEN = [frozenset(some) for some in chain.from_iterable(combinations(Proof, n) for n in range(4))]


@pytest.mark.parametrize("given_proofs", GIVEN, ids=lambda some: "+".join(sorted(some)) or "nothing")
@pytest.mark.parametrize("asked", ALL_OF_THEM, ids=lambda some: "+".join(sorted(some)))
def test_a_source_is_proved_by_everything_that_it_asks_for_or_not_at_all(
    asked: frozenset[Proof], given_proofs: frozenset[Proof]
) -> None:
    proofs = Proofs(
        digest_of("k") if Proof.BEARER in given_proofs else None,
        SIGNED if Proof.HMAC in given_proofs else None,
        (SUBJECT,) if Proof.MTLS in given_proofs else (),
    )
    judged = book(source(*asked, keyed=True), k=FOR_BILLING).judge(proofs, 0.0)
    assert isinstance(judged, Identity) == (asked <= given_proofs)
    if isinstance(judged, Unproven) and given_proofs:
        # a certificate that no source asks for is nobody's
        nobodys = given_proofs == {Proof.MTLS} and Proof.MTLS not in asked
        assert judged == (INVALID if nobodys else Unproven(CredentialFault.MISSING, asked - given_proofs))


def test_a_certificate_that_is_nobodys_does_not_spoil_another_proof() -> None:
    judged = book(source(Proof.BEARER)).judge(bearing("new", subjects=("CN=mesh",)), 0.0)
    assert isinstance(judged, Identity)


OTHERS = Source(B, "theirs", frozenset({Proof.MTLS}), "theirs.example.com", ())


@pytest.mark.parametrize("auth", [{Proof.MTLS}, {Proof.MTLS, Proof.HMAC}, {Proof.MTLS, Proof.BEARER}])
@pytest.mark.parametrize("subjects", [("nobodys",), ("theirs.example.com",), ("nobodys", "theirs.example.com")])
def test_a_certificate_that_is_not_this_sources_is_refused_whatever_else_is_proved(
    auth: set[Proof], subjects: tuple[str, ...]
) -> None:
    proofs = Proofs(digest_of("k") if Proof.BEARER in auth else None, SIGNED if Proof.HMAC in auth else None, subjects)
    judged = book(source(*auth, keyed=True), OTHERS, k=FOR_BILLING).judge(proofs, 0.0)
    if auth == {Proof.MTLS} and "theirs.example.com" in subjects:
        assert isinstance(judged, Identity)
        assert (judged.tenant, judged.source) == (B, "theirs")
    else:
        assert judged == INVALID


@pytest.mark.parametrize("auth", [{Proof.MTLS}, {Proof.MTLS, Proof.HMAC}, {Proof.MTLS, Proof.BEARER}])
def test_a_certificate_of_two_sources_is_the_ones_that_something_else_names_and_alone_it_is_nobodys(
    auth: set[Proof],
) -> None:
    """Else whoever has a source named like another name of somebody's certificate had locked that somebody out."""
    both = (SUBJECT, "theirs.example.com")
    proofs = Proofs(digest_of("k") if Proof.BEARER in auth else None, SIGNED if Proof.HMAC in auth else None, both)
    judged = book(source(*auth, keyed=True), OTHERS, k=FOR_BILLING).judge(proofs, 0.0)
    if auth == {Proof.MTLS}:
        assert judged == INVALID
    else:
        assert isinstance(judged, Identity)
        assert (judged.tenant, judged.source) == (A, "billing")


@pytest.mark.parametrize(("now", "counts"), [(99.9, True), (100.0, False), (1e9, False)])
@pytest.mark.parametrize("proofs", [bearing("old"), Proofs(signed=("billing", OLD))], ids=["bearer", "hmac"])
def test_a_previous_secret_counts_until_its_time_is_over(proofs: Proofs, now: float, counts: bool) -> None:
    auth = Proof.BEARER if proofs.bearer else Proof.HMAC
    assert isinstance(book(source(auth)).judge(proofs, now), Identity) == counts


@pytest.mark.parametrize(("keyed", "counts"), [(False, True), (True, False)])
def test_where_a_signature_is_asked_for_too_a_secret_is_no_bearer_once_there_is_a_key(
    keyed: bool, counts: bool
) -> None:
    """Else whoever has the secret that signs would need no other one."""
    credentials = book(source(Proof.BEARER, Proof.HMAC, keyed=keyed))
    assert isinstance(credentials.judge(bearing("new", signed=SIGNED), 0.0), Identity) == counts


def test_without_keys_and_sources_it_is_empty() -> None:
    assert book().is_empty
    assert not book(k=READER).is_empty
    assert not book(source(Proof.HMAC)).is_empty


def test_a_source_is_found_by_its_name() -> None:
    billing = source(Proof.HMAC)
    assert book(billing).source("billing") is billing
    assert book(billing).source("nobody") is None


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_a_new_secret_holds_all_of_its_chance_and_can_stand_in_a_header(one: bytes, other: bytes) -> None:
    secret = new_key_secret(one).expose()
    assert re.fullmatch(r"rlk_[A-Za-z0-9_-]{43}", secret)
    assert (secret == new_key_secret(other).expose()) == (one == other)


def test_a_secret_of_less_chance_is_not_made() -> None:
    with pytest.raises(ValueError, match="32 random bytes"):
        new_key_secret(b"short")


@given(st.text(), st.text())
def test_two_secrets_have_two_digests(one: str, other: str) -> None:
    assert (digest_of(one) == digest_of(other)) == (one == other)


@given(
    st.builds(
        Proofs,
        st.none() | st.sampled_from([digest_of(secret) for secret in ("k", "b", "new", "old", "wrong")]),
        st.none() | st.tuples(st.sampled_from(["billing", "other", "nobody"]), st.sampled_from([NEW, OLD])),
        st.lists(st.sampled_from([SUBJECT, "CN=other"]), max_size=2).map(tuple),
    ),
    st.sampled_from(ALL_OF_THEM),
)
def test_whoever_is_somebody_belongs_to_the_tenant_of_what_was_proved(proofs: Proofs, asked: frozenset[Proof]) -> None:
    credentials = book(source(*asked), k=FOR_BILLING, b=Key(B, "b", frozenset({Scope.ADMIN}), None))
    judged = credentials.judge(proofs, 0.0)
    if isinstance(judged, Identity):
        assert judged.tenant == (B if proofs.bearer == digest_of("b") else A)


@pytest.mark.parametrize(
    ("before", "after", "takes"),
    [
        ({Proof.MTLS}, {Proof.BEARER}, True),
        ({Proof.BEARER}, {Proof.HMAC}, True),
        ({Proof.BEARER}, {Proof.BEARER, Proof.HMAC}, True),
        ({Proof.BEARER, Proof.HMAC}, {Proof.HMAC}, False),
        ({Proof.HMAC}, {Proof.HMAC, Proof.MTLS}, False),
        ({Proof.HMAC}, {Proof.MTLS}, False),
    ],
)
def test_a_secret_is_new_where_none_was_stored_in_its_form(before: set[Proof], after: set[Proof], takes: bool) -> None:
    assert SourceProof(tuple(after), None).takes_new_secret(SourceProof(tuple(before), None)) == takes
