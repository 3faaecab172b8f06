"""Tenants, sources and keys as JSON: what a client may set, and what it gets to see.

Owns the fields and their forms. Unknown fields are refused, as everywhere. Invariant: no model but those that hand out
a new secret has one in it.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from relay.api.fields import Instant, KeyText, SourceText, document_without_null, refuse_null
from relay.domain import ids
from relay.domain.certificate import LONGEST_SUBJECT, read_subject
from relay.domain.credentials import ADMINISTERING, Proof, Scope
from relay.domain.naming import LONGEST_NAME, SOURCE_NAME, TENANT_ID, check_name, check_source_name, check_tenant_id
from relay.store.issuer import KeyRow, SourceRow, TenantRow
from relay.web import instants

T = TypeVar("T")


def _once_each(values: list[T]) -> list[T]:
    return list(dict.fromkeys(values))


Text = Annotated[str, Field(strict=True)]
Name = Annotated[Text, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(check_name)]
SourceName = Annotated[
    Text,
    Field(min_length=1, max_length=LONGEST_NAME),
    AfterValidator(check_source_name),
    Field(json_schema_extra={"pattern": f"^{SOURCE_NAME}$", "examples": ["billing"]}),
]
TenantId = Annotated[
    Text,
    AfterValidator(check_tenant_id),
    Field(json_schema_extra={"pattern": f"^{TENANT_ID}$", "examples": ["acct_acme"]}),
]
Subject = Annotated[Text, Field(min_length=1, max_length=LONGEST_SUBJECT), AfterValidator(read_subject)]
Scopes = Annotated[list[Scope], Field(min_length=1, max_length=20), AfterValidator(_once_each)]
Auth = Annotated[list[Proof], Field(min_length=1, max_length=20), AfterValidator(_once_each)]

_WHICH_CERTIFICATE = (
    "With `mtls`: a name of its client certificate, as it stands there; host names without regard to case. Or `sha256:`"
    " and the fingerprint of that one certificate."
)
_OF_WHICH_TENANT = "Whose it is; the caller's own tenant if left out. Another one takes the scope `operator`."


class KeyNew(BaseModel):
    """What a new key is to be."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=document_without_null())

    name: Name = Field(description="Unique among the tenant's keys; the actor in records of what was changed.")
    scopes: Scopes = Field(description="`admin` includes `read` and `ingest`; `operator` is that in every tenant.")
    source: SourceName | None = Field(None, description="The source that it proves; else it is a sender of its own.")
    tenant: TenantId | None = Field(None, description=_OF_WHICH_TENANT)

    @field_validator("source", "tenant", mode="before")
    @classmethod
    def _not_null(cls, value: object) -> object:
        return refuse_null(value)

    @model_validator(mode="after")
    def _check_together(self) -> KeyNew:
        if self.source is not None and ADMINISTERING & set(self.scopes):
            raise ValueError("a key of a source has no scope but ingest and read: make another one to administer")
        return self


class KeyShown(BaseModel):
    """A key."""

    id: KeyText
    tenant: str
    name: str
    scopes: list[Scope]
    source: str | None
    created_at: Instant

    @classmethod
    def of(cls, key: KeyRow) -> KeyShown:
        """The key as its tenant sees it."""
        return cls(**_key(key))


class KeyCreated(KeyShown):
    """A new key with its secret, which is shown this once."""

    secret: str


class KeyPage(BaseModel):
    """A page of keys, newest first."""

    data: list[KeyShown]
    next_cursor: str | None


class SourceNew(BaseModel):
    """What a new source is to be."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=document_without_null())

    name: SourceName = Field(description="Unique in the installation.")
    auth: Auth = Field(description="Everything that a request of this source has to prove it by, together.")
    certificate_subject: Subject | None = Field(None, description=_WHICH_CERTIFICATE)
    tenant: TenantId | None = Field(None, description=_OF_WHICH_TENANT)

    @field_validator("certificate_subject", "tenant", mode="before")
    @classmethod
    def _not_null(cls, value: object) -> object:
        return refuse_null(value)

    @model_validator(mode="after")
    def _check_together(self) -> SourceNew:
        if (Proof.MTLS in self.auth) != (self.certificate_subject is not None):
            raise ValueError("certificate_subject belongs to mtls: give both or neither")
        return self


class SourceChange(BaseModel):
    """What is to change of what a source is proved by. What is left out stays as it is."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=document_without_null("certificate_subject"))

    auth: Auth | None = Field(
        None, description="Everything that a request has to prove it by. Without `mtls`, no name."
    )
    certificate_subject: Subject | None = Field(
        None, description=f"{_WHICH_CERTIFICATE} Null takes it off the source; `auth` then has no `mtls` any more."
    )

    @field_validator("auth", mode="before")
    @classmethod
    def _not_null(cls, value: object) -> object:
        return refuse_null(value)


class SourceShown(BaseModel):
    """A source."""

    id: SourceText
    tenant: str
    name: str
    auth: list[Proof]
    certificate_subject: str | None
    previous_secret_expires_at: Instant | None
    created_at: Instant

    @classmethod
    def of(cls, source: SourceRow) -> SourceShown:
        """The source as its tenant sees it."""
        return cls(**_source(source))


class SourceCreated(SourceShown):
    """A new source with its secret, which is shown this once; null where it is proved by a certificate alone."""

    secret: str | None


class SourceChanged(SourceShown):
    """A source as it is now. `secret` is a new one, shown this once, where it is asked for one that it did not have."""

    secret: str | None


class SourceRotated(BaseModel):
    """The new secret, shown this once. Until the instant given, the old one counts as well."""

    id: SourceText
    secret: str
    previous_secret_expires_at: Instant | None


class SourcePage(BaseModel):
    """A page of sources, newest first."""

    data: list[SourceShown]
    next_cursor: str | None


class TenantNew(BaseModel):
    """What a new tenant is to be."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=document_without_null())

    id: TenantId | None = Field(None, description="Made if left out. An id is never given twice.")
    name: Name

    @field_validator("id", mode="before")
    @classmethod
    def _not_null(cls, value: object) -> object:
        return refuse_null(value)


class TenantChange(BaseModel):
    """What is to change of a tenant. What is left out stays as it is."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=document_without_null())

    strict_schemas: Annotated[bool, Field(strict=True)] | None = Field(
        None, description="Whether events of a type without a schema are refused."
    )

    @field_validator("strict_schemas", mode="before")
    @classmethod
    def _not_null(cls, value: object) -> object:
        return refuse_null(value)


class TenantShown(BaseModel):
    """A tenant."""

    id: str
    name: str
    strict_schemas: bool
    created_at: Instant

    @classmethod
    def of(cls, tenant: TenantRow) -> TenantShown:
        """The tenant as it is shown."""
        return cls(
            id=tenant.id,
            name=tenant.name,
            strict_schemas=tenant.strict_schemas,
            created_at=instants.write(tenant.created_at),
        )


class TenantPage(BaseModel):
    """A page of tenants, in the order of their ids."""

    data: list[TenantShown]
    next_cursor: str | None


def created_key(key: KeyRow, secret: str) -> KeyCreated:
    """The answer to a creation."""
    return KeyCreated(**_key(key), secret=secret)


def created_source(source: SourceRow, secret: str | None) -> SourceCreated:
    """The answer to a creation."""
    return SourceCreated(**_source(source), secret=secret)


def changed_source(source: SourceRow, secret: str | None) -> SourceChanged:
    """The answer to a change."""
    return SourceChanged(**_source(source), secret=secret)


def _key(key: KeyRow) -> dict[str, Any]:
    return {
        "id": ids.write(ids.KEY, key.id),
        "tenant": key.tenant,
        "name": key.name,
        "scopes": list(key.scopes),
        "source": key.source,
        "created_at": instants.write(key.created_at),
    }


def _source(source: SourceRow) -> dict[str, Any]:
    return {
        "id": ids.write(ids.SOURCE, source.id),
        "tenant": source.tenant,
        "name": source.name,
        "auth": list(source.auth),
        "certificate_subject": source.certificate_subject,
        "previous_secret_expires_at": instants.write_optional(source.previous_secret_expires_at),
        "created_at": instants.write(source.created_at),
    }
