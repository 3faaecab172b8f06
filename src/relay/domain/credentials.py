"""Credentials: what each is good for, and whether a request's proofs make it somebody's.

Owns the scopes, what a source may ask to be proved by, the credentials in force as one value, and the judgement.
Signatures are checked in `signed`, certificates where connections are; what comes here is what they prove. Invariants:
a scope that is not held, by itself or inside another one, permits nothing; a source is proved by everything that it
asks for, or not at all; a certificate that names two sources proves neither; and the same proofs by the same
credentials are always the same sender.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from uuid import UUID

from relay.domain.secret import Secret

SECRET_ENTROPY_BYTES = 32
"""Random bytes of a bearer secret: nobody finds one by trying, so its plain SHA-256 may be stored and looked up."""

KEY_PREFIX = "rlk_"

KEY_ACTOR = "key:"
"""How the names of keys begin in records; no source has such a name."""

OPERATOR_SOURCE = "operator:"
"""How the source of what an operator's key sends into another tenant begins: a key of that one may have its name."""


class Scope(StrEnum):
    """What a credential may do: the first three inside its tenant, `operator` across tenants."""

    INGEST = "ingest"
    READ = "read"
    ADMIN = "admin"
    OPERATOR = "operator"


ADMINISTERING = frozenset({Scope.ADMIN, Scope.OPERATOR})
"""Whoever holds one of these may make credentials."""

_INCLUDED = {
    Scope.INGEST: frozenset({Scope.INGEST}),
    Scope.READ: frozenset({Scope.READ}),
    # whoever makes keys could make one for each of these
    Scope.ADMIN: frozenset({Scope.INGEST, Scope.READ, Scope.ADMIN}),
    Scope.OPERATOR: frozenset(Scope),
}


def held(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """The scopes with all that they include."""
    return frozenset().union(*(_INCLUDED[scope] for scope in scopes))


class Proof(StrEnum):
    """What a source can ask to be proved by, in the words of its `auth`."""

    BEARER = "bearer"
    HMAC = "hmac"
    MTLS = "mtls"


def new_key_secret(entropy: bytes) -> Secret:
    """The secret of a key, from `SECRET_ENTROPY_BYTES` random bytes."""
    if len(entropy) != SECRET_ENTROPY_BYTES:
        raise ValueError(f"a key's secret is made from {SECRET_ENTROPY_BYTES} random bytes")
    return Secret(KEY_PREFIX + urlsafe_b64encode(entropy).rstrip(b"=").decode())


def digest_of(secret: str | bytes) -> bytes:
    """What a bearer secret is stored and looked up as: the SHA-256 of its text in UTF-8."""
    return hashlib.sha256(secret.encode() if isinstance(secret, str) else secret).digest()


@dataclass(frozen=True, slots=True)
class SourceProof:
    """What a source is proved by, all of it together: `auth` in the order of `Proof`."""

    auth: tuple[Proof, ...]
    certificate_subject: str | None

    def takes_new_secret(self, before: SourceProof) -> bool:
        """Whether it takes a secret in a form in which none was stored before."""
        return bool({Proof.BEARER, Proof.HMAC} & (set(self.auth) - set(before.auth)))


@dataclass(frozen=True, slots=True)
class SourceSecret:
    """One secret of a source, as far as it is needed: its hash where it proves as a bearer, its id where it signs.

    `until` is when it goes out of force, in seconds of the process's monotonic clock; None for the one of now.
    """

    sha256: bytes | None
    secret_id: UUID | None
    until: float | None = None

    def is_in_force(self, now: float) -> bool:
        """Whether it still counts."""
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class Source:
    """A sender that is proved by everything in `auth`; the newest of its one or two secrets stands first.

    `keyed` says that a key was ever made for it.
    """

    tenant: str
    name: str
    auth: frozenset[Proof]
    certificate_subject: str | None
    secrets: tuple[SourceSecret, ...]
    keyed: bool = False

    @property
    def proves_itself_by_bearer(self) -> bool:
        """Whether its own secret may come as a bearer.

        Where a signature is asked for as well, only until the source has a key: from then on the two are two secrets,
        of which one never travels.
        """
        return Proof.BEARER in self.auth and not (Proof.HMAC in self.auth and self.keyed)


@dataclass(frozen=True, slots=True)
class Key:
    """A bearer key: of a source, or (without one) a sender of its own."""

    tenant: str
    name: str
    scopes: frozenset[Scope]
    source: str | None

    @property
    def actor(self) -> str:
        """Its name in records."""
        return f"{KEY_ACTOR}{self.name}"


@dataclass(frozen=True, slots=True)
class Proofs:
    """What a request proves: that it knows the secret of that SHA-256; that it was signed, in the name of that source,
    with the secret of that id; and all names of its client's certificate, none where none was shown.
    """

    bearer: bytes | None = None
    signed: tuple[str, UUID] | None = None
    subjects: tuple[str, ...] = ()


NOTHING = Proofs()


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose a request is. `actor` names the credential in words."""

    tenant: str
    source: str
    actor: str
    scopes: frozenset[Scope]


class CredentialFault(Enum):
    """Why a request is nobody's."""

    MISSING = auto()
    INVALID = auto()
    UNSIGNED = auto()
    """What it was signed with is not in force."""


@dataclass(frozen=True, slots=True)
class Unproven:
    """A request that is nobody's. `lacking` is what its source asks for besides; empty if no source is known."""

    fault: CredentialFault
    lacking: frozenset[Proof] = frozenset()


_MISSING = Unproven(CredentialFault.MISSING)
_INVALID = Unproven(CredentialFault.INVALID)
_UNSIGNED = Unproven(CredentialFault.UNSIGNED)


class Credentials:
    """The credentials in force, of all tenants, as of one version."""

    def __init__(self, version: int, tenants: Iterable[str], keys: Mapping[bytes, Key], sources: Iterable[Source]):
        self.version = version
        self.tenants = frozenset(tenants)
        self._keys = keys
        self._sources = {source.name: source for source in sources}
        self._by_subject = {
            source.certificate_subject: source for source in self._sources.values() if Proof.MTLS in source.auth
        }
        self._by_secret = {
            secret.sha256: (source, secret)
            for source in self._sources.values()
            for secret in source.secrets
            if secret.sha256 is not None
        }

    @property
    def is_empty(self) -> bool:
        """Whether nobody has a credential."""
        return not self._keys and not self._sources

    def source(self, name: str) -> Source | None:
        """The source of that name."""
        return self._sources.get(name)

    def judge(self, proofs: Proofs, now: float) -> Identity | Unproven:
        """Whose the request is that proves this; `now` in seconds of the process's monotonic clock."""
        if proofs.bearer is not None:
            return self._judge_bearer(proofs.bearer, proofs, now)
        if proofs.signed is not None:
            source, otherwise = self._sources.get(proofs.signed[0]), _UNSIGNED
        else:
            source, otherwise = self._only_named(proofs.subjects), _INVALID if proofs.subjects else _MISSING
        return otherwise if source is None else self._judge_source(source, None, proofs, now, bearer=False)

    def _only_named(self, subjects: Iterable[str]) -> Source | None:
        """The source that a certificate with these names is of; None where it is of none, or might be of several."""
        named = [self._by_subject[subject] for subject in subjects if subject in self._by_subject]
        return named[0] if len(named) == 1 else None

    def _judge_bearer(self, bearer: bytes, proofs: Proofs, now: float) -> Identity | Unproven:
        key = self._keys.get(bearer)
        if key is None:
            source, secret = self._by_secret.get(bearer, (None, None))
            if source is None or secret is None or not secret.is_in_force(now) or not source.proves_itself_by_bearer:
                return _INVALID
            return self._judge_source(source, None, proofs, now, bearer=True)
        if key.source is None:
            # whoever signs as a source has no key of another sender
            return _INVALID if proofs.signed else Identity(key.tenant, key.actor, key.actor, held(key.scopes))
        source = self._sources.get(key.source)
        return _INVALID if source is None else self._judge_source(source, key, proofs, now, bearer=True)

    def _judge_source(
        self, source: Source, key: Key | None, proofs: Proofs, now: float, *, bearer: bool
    ) -> Identity | Unproven:
        proved = {Proof.BEARER} if bearer else set()
        if proofs.signed is not None:
            name, secret_id = proofs.signed
            signers = {each.secret_id for each in source.secrets if each.is_in_force(now)}
            if name != source.name:
                return _INVALID
            if secret_id not in signers:
                return _UNSIGNED
            proved.add(Proof.HMAC)
        if Proof.MTLS in source.auth and proofs.subjects:
            # whose else it may be is no matter: a subject that another tenant made up must lock nobody out
            if source.certificate_subject not in proofs.subjects:
                return _INVALID
            proved.add(Proof.MTLS)
        lacking = source.auth - proved
        if lacking:
            return Unproven(CredentialFault.MISSING, lacking)
        actor, scopes = (f"source:{source.name}", {Scope.INGEST}) if key is None else (key.actor, key.scopes)
        return Identity(source.tenant, source.name, actor, held(scopes))
