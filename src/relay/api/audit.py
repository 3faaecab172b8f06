"""The call that tells who changed what.

Owns the route, its filter, and an entry's shape. What is entered is the store's and the domain's. Invariant: nobody
reads another tenant's entries but an operator who asks for them.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field

from relay.api.deps import Calling, Deps
from relay.api.documentation import operation_id
from relay.api.fields import EntryText
from relay.api.fields import Instant as InstantText
from relay.api.filters import Instant, Words
from relay.api.problem_documentation import LISTED, problems
from relay.api.requests import Cursor, Limit, contradicts_header, only_known_parameters
from relay.domain import ids
from relay.domain.audit import AuditAction
from relay.domain.credentials import Scope
from relay.store.audit import AUDIT_NEWEST, AuditEntry, AuditFilter, AuditPlace
from relay.web import instants, paging
from relay.web.credentials import Caller, require
from relay.web.problems import ErrorCode, refuse

router = APIRouter(prefix="/v1", tags=["credentials"], generate_unique_id_function=operation_id)

ALL_TENANTS = "*"

_BY_INSTANT = paging.by_instant(AuditPlace)

_ACTOR = "What this credential asked for: `key:ops`, `source:billing`, `anonymous`, `local`."
_SUBJECT = "What was done to the thing of this id: an endpoint's, a delivery's, `invoice.paid/v3`, `acct_acme`."
_TENANT = "For operators: this tenant's entries, also of one that was removed; `*` for those of all tenants."


class AuditChange(BaseModel):
    """A field that was changed."""

    field: str
    hidden: bool = Field(description="Whether its values may hold a secret: they are not kept then.")
    old: Any
    new: Any


class AuditShown(BaseModel):
    """Who changed what, or sent again or gave up what."""

    id: EntryText
    at: InstantText
    tenant: str = Field(description="Whose the changed thing is.")
    actor: str = Field(description="The credential that asked for it.")
    actor_tenant: str = Field(description="The tenant that this credential is of.")
    action: AuditAction
    subject: str | None = Field(description="The id of the changed thing; null for dead letters in bulk.")
    name: str | None = Field(description="The name that it had.")
    changes: list[AuditChange]
    details: dict[str, Any] = Field(description="What else was said of it: what was given, asked for, or counted.")

    @classmethod
    def of(cls, entry: AuditEntry) -> AuditShown:
        """An entry as it is shown."""
        return cls(
            id=ids.write(ids.AUDIT, entry.id),
            at=instants.write(entry.at),
            tenant=entry.tenant,
            actor=entry.actor,
            actor_tenant=entry.actor_tenant,
            action=entry.action,
            subject=entry.subject,
            name=entry.name,
            changes=[AuditChange(field=c.field, hidden=c.hidden, old=c.old, new=c.new) for c in entry.changes],
            details=dict(entry.details),
        )


class AuditPage(BaseModel):
    """A page of the audit, newest first."""

    data: list[AuditShown]
    next_cursor: str | None


def _filter(
    actor: Annotated[Words | None, Query(description=_ACTOR)] = None,
    action: Annotated[AuditAction | None, Query(description="What was done.")] = None,
    subject: Annotated[Words | None, Query(description=_SUBJECT)] = None,
    since: Annotated[Instant | None, Query(description="Done at this instant (RFC 3339) or later.")] = None,
    until: Annotated[Instant | None, Query(description="Done before this instant (RFC 3339).")] = None,
) -> AuditFilter:
    return AuditFilter(actor=actor, action=action, subject=subject, since=since, until=until)


@router.get("/audit", responses=problems(*LISTED), dependencies=[Depends(only_known_parameters)])
async def list_audit(
    request: Request,
    deps: Deps,
    caller: Calling,
    wanted: Annotated[AuditFilter, Depends(_filter)],
    tenant: Annotated[Words | None, Query(description=_TENANT)] = None,
    limit: Limit = paging.DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> AuditPage:
    """List who changed what and who sent again or gave up what, newest first. Entries are never changed nor
    removed, and hold no secret.
    """
    of = _tenant(caller, tenant)
    if contradicts_header(request, tenant):
        raise refuse(ErrorCode.BAD_FILTER, "tenant: the header Relay-Tenant names another one; name one tenant")
    listing = _listing(of, wanted)
    before = AUDIT_NEWEST if cursor is None else listing.read_cursor(cursor)
    page = await deps.audit.list(of, wanted, before=before, limit=limit)
    return AuditPage(
        data=[AuditShown.of(entry) for entry in page.items],
        next_cursor=None if page.next is None else listing.write_cursor(page.next),
    )


def _tenant(caller: Caller, wanted: str | None) -> str | None:
    """Whose entries are asked for, None for all. Raises `Refused` (`scope_missing`)."""
    if wanted is None or wanted == caller.tenant:
        return caller.tenant
    require(caller, Scope.OPERATOR)
    return None if wanted == ALL_TENANTS else wanted


def _listing(tenant: str | None, wanted: AuditFilter) -> paging.Listing[AuditPlace]:
    since, until = (None if each is None else each.isoformat() for each in (wanted.since, wanted.until))
    return paging.Listing("audit", _BY_INSTANT, (tenant, wanted.actor, wanted.action, wanted.subject, since, until))
