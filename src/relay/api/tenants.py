"""The calls on tenants.

Owns the routes. Invariant: whoever is no operator sees no tenant but its own.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from relay.api.credential_changes import CODES, Change
from relay.api.deps import By, Calling, Deps, new_id
from relay.api.documentation import operation_id
from relay.api.fields import A_TENANT
from relay.api.json_route import JsonRoute
from relay.api.problem_documentation import LISTED, problems
from relay.api.requests import Cursor, Limit, no_such, only_known_parameters
from relay.api.sender_models import TenantChange, TenantNew, TenantPage, TenantShown
from relay.domain.credentials import Scope
from relay.domain.naming import InvalidName, check_tenant_id
from relay.store.faults import NameTaken, NoSuchTenant
from relay.store.issuer import Issuer
from relay.web import paging
from relay.web.problems import ErrorCode, FieldFault, invalid, pointer

router = APIRouter(
    prefix="/v1/tenants", tags=["credentials"], route_class=JsonRoute, generate_unique_id_function=operation_id
)

BY_TENANT = paging.Places(str.encode, lambda raw: check_tenant_id(raw.decode()))
LISTING = paging.Listing("tenants", BY_TENANT)


def _read_tenant(
    text: Annotated[str, Path(alias="id", description="The tenant's id.", json_schema_extra={"examples": [A_TENANT]})],
) -> str:
    try:
        return check_tenant_id(text)
    except InvalidName:
        raise no_such("tenant") from None


TenantInPath = Annotated[str, Depends(_read_tenant)]


@router.post("", status_code=201, responses=problems(*CODES))
async def create_tenant(wanted: TenantNew, change: Change, deps: Deps) -> TenantShown:
    """Create a tenant. Keys are then made for it by naming it in `tenant`."""
    tenant = wanted.id or f"acct_{new_id(deps).hex}"
    try:
        made = await change.make(lambda seen: change.issuer.create_tenant(tenant, wanted.name, seen=seen))
    except NameTaken:
        raise invalid([FieldFault(pointer("id"), "a tenant has this id, or had it")]) from None
    return TenantShown.of(made)


@router.get("", responses=problems(*LISTED), dependencies=[Depends(only_known_parameters)])
async def list_tenants(
    deps: Deps, caller: Calling, limit: Limit = paging.DEFAULT_LIMIT, cursor: Cursor = None
) -> TenantPage:
    """List the tenants, in the order of their ids. Whoever is no operator sees its own alone."""
    only = None if Scope.OPERATOR in caller.scopes else caller.tenant
    after = "" if cursor is None else LISTING.read_cursor(cursor)
    rows = await deps.issuer.tenants(only, after=after, limit=limit + 1)
    shown, following = LISTING.page(rows, limit, lambda tenant: tenant.id)
    return TenantPage(data=[TenantShown.of(tenant) for tenant in shown], next_cursor=following)


@router.patch("/{id}", responses=problems(ErrorCode.NOT_FOUND, *CODES))
async def change_tenant(tenant: TenantInPath, wanted: TenantChange, deps: Deps, author: By) -> TenantShown:
    """Change a tenant. What is left out stays as it is."""
    if wanted.strict_schemas is not None:
        await deps.schemas.by(author).set_strict(tenant, strict=wanted.strict_schemas)
    found = await deps.issuer.tenants(tenant, after="", limit=1)
    if not found:
        raise no_such("tenant")
    return TenantShown.of(found[0])


@router.delete(
    "/{id}", status_code=204, responses=problems(ErrorCode.NOT_FOUND, ErrorCode.TENANT_IN_USE, ErrorCode.JOURNAL_QUORUM)
)
async def remove_tenant(tenant: TenantInPath, change: Change) -> Response:
    """Remove a tenant that has no endpoints, sources and keys any more. Its events stay as long as any."""
    try:
        await change.make(lambda seen: _remove(change.issuer, tenant, seen))
    except _Gone:
        raise no_such("tenant") from None
    return Response(status_code=204)


class _Gone(Exception):
    """There is no such tenant."""


async def _remove(issuer: Issuer, tenant: str, seen: int) -> None:
    try:
        await issuer.remove_tenant(tenant, seen=seen)
    except NoSuchTenant:
        raise _Gone from None
