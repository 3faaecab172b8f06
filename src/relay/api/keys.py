"""The calls on keys.

Owns the routes. Invariant: a key's secret leaves in one answer, that of its creation, and nobody makes a key that may
more than the caller.
"""

from __future__ import annotations

from fastapi import APIRouter, Depends, Response

from relay.api.credential_changes import CODES, Change
from relay.api.deps import Deps, Tenant, new_id
from relay.api.documentation import operation_id
from relay.api.json_route import JsonRoute
from relay.api.problem_documentation import LISTED, problems
from relay.api.requests import Cursor, KeyId, Limit, no_such, only_known_parameters
from relay.api.sender_models import KeyCreated, KeyNew, KeyPage, KeyShown, created_key
from relay.domain import ids
from relay.domain.credentials import SECRET_ENTROPY_BYTES, Scope, new_key_secret
from relay.store.endpoints import NEWEST
from relay.store.faults import NameTaken
from relay.store.issuer import KeyRow, NoSuchKey, NoSuchSource, NotProvedByBearer
from relay.web import paging
from relay.web.credentials import require
from relay.web.problems import ErrorCode, FieldFault, Refused, invalid, pointer

router = APIRouter(
    prefix="/v1/keys", tags=["credentials"], route_class=JsonRoute, generate_unique_id_function=operation_id
)

LISTING = paging.Listing("keys", paging.BY_ID)


@router.post("", status_code=201, responses=problems(*CODES, ErrorCode.FIRST_KEY))
async def create_key(wanted: KeyNew, change: Change, deps: Deps, response: Response) -> KeyCreated:
    """Create a key. The answer has its secret, this once. The first one ends anonymous access at once."""
    tenant = change.tenant(wanted.tenant)
    if Scope.OPERATOR in wanted.scopes:
        require(change.caller, Scope.OPERATOR)
    secret = new_key_secret(deps.ambient.entropy(SECRET_ENTROPY_BYTES))

    async def create(seen: int) -> KeyRow:
        return await change.issuer.create_key(
            tenant, new_id(deps), wanted.name, wanted.scopes, secret=secret, source=wanted.source, seen=seen
        )

    try:
        key = await change.make(create)
    except NameTaken:
        raise _fault("name", "another key has this name") from None
    except NoSuchSource:
        raise _fault("source", "the tenant has no source of that name") from None
    except NotProvedByBearer:
        raise _fault("source", "the auth of that source has no bearer, so a key would prove nothing") from None
    response.headers["location"] = f"/v1/keys/{ids.write(ids.KEY, key.id)}"
    return created_key(key, secret.expose())


@router.get("", responses=problems(*LISTED), dependencies=[Depends(only_known_parameters)])
async def list_keys(deps: Deps, tenant: Tenant, limit: Limit = paging.DEFAULT_LIMIT, cursor: Cursor = None) -> KeyPage:
    """List the keys, newest first."""
    before = NEWEST if cursor is None else LISTING.read_cursor(cursor)
    rows = await deps.issuer.keys(tenant, before=before, limit=limit + 1)
    shown, following = LISTING.page(rows, limit, lambda key: key.id)
    return KeyPage(data=[KeyShown.of(key) for key in shown], next_cursor=following)


@router.delete(
    "/{id}", status_code=204, responses=problems(ErrorCode.NOT_FOUND, ErrorCode.LAST_KEY, ErrorCode.JOURNAL_QUORUM)
)
async def revoke_key(key_id: KeyId, change: Change) -> Response:
    """Revoke a key. Its next request is refused; what it sent before stays."""
    tenant = change.caller.tenant
    try:
        await change.make(
            lambda seen: change.issuer.revoke_key(tenant, key_id, by_operator=change.by_operator, seen=seen)
        )
    except NoSuchKey:
        raise no_such("key") from None
    return Response(status_code=204)


def _fault(field: str, detail: str) -> Refused:
    return invalid([FieldFault(pointer(field), detail)])
