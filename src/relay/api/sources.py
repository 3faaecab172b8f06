"""The calls on sources.

Owns the routes. Invariant: a source's secret leaves in exactly two answers, that of its creation and that of its
rotation.
"""

from __future__ import annotations

from fastapi import APIRouter, Depends, Response

from relay.api.credential_changes import CODES, Change
from relay.api.deps import Deps, Tenant, new_id
from relay.api.documentation import operation_id
from relay.api.json_route import JsonRoute
from relay.api.problem_documentation import LISTED, problems
from relay.api.requests import Cursor, Limit, SourceId, no_such, only_known_parameters
from relay.api.sender_models import SourceCreated, SourceNew, SourcePage, SourceRotated, SourceShown, created_source
from relay.domain import ids
from relay.domain.credentials import Proof
from relay.domain.signing import SECRET_ENTROPY_BYTES, new_secret
from relay.store.endpoints import NEWEST
from relay.store.faults import NameTaken
from relay.store.issuer import NoSuchSource, SourceRow
from relay.web import instants, paging
from relay.web.problems import ErrorCode, FieldFault, invalid, pointer

router = APIRouter(
    prefix="/v1/sources", tags=["credentials"], route_class=JsonRoute, generate_unique_id_function=operation_id
)

LISTING = paging.Listing("sources", paging.BY_ID)


@router.post("", status_code=201, responses=problems(*CODES, ErrorCode.FIRST_KEY))
async def create_source(wanted: SourceNew, change: Change, deps: Deps, response: Response) -> SourceCreated:
    """Create a source. The answer has its secret, this once.

    The secret comes as a bearer, signs, or both, as `auth` says; where it has both, make a key for the bearer's half,
    and from then on the secret does nothing but sign.
    """
    tenant = change.tenant(wanted.tenant)
    has_secret = Proof.BEARER in wanted.auth or Proof.HMAC in wanted.auth
    secret = new_secret(deps.ambient.entropy(SECRET_ENTROPY_BYTES)) if has_secret else None

    async def create(seen: int) -> SourceRow:
        return await change.issuer.create_source(
            tenant,
            new_id(deps),
            wanted.name,
            wanted.auth,
            certificate_subject=wanted.certificate_subject,
            secret=secret,
            secret_id=new_id(deps),
            seen=seen,
        )

    try:
        source = await change.make(create)
    except NameTaken as fault:
        taken = "certificate_subject" if "subject" in str(fault) else "name"
        raise invalid([FieldFault(pointer(taken), "another source has it")]) from None
    response.headers["location"] = f"/v1/sources/{ids.write(ids.SOURCE, source.id)}"
    return created_source(source, None if secret is None else secret.expose())


@router.get("", responses=problems(*LISTED), dependencies=[Depends(only_known_parameters)])
async def list_sources(
    deps: Deps, tenant: Tenant, limit: Limit = paging.DEFAULT_LIMIT, cursor: Cursor = None
) -> SourcePage:
    """List the sources, newest first."""
    before = NEWEST if cursor is None else LISTING.read_cursor(cursor)
    rows = await deps.issuer.sources(tenant, before=before, limit=limit + 1)
    shown, following = LISTING.page(rows, limit, lambda source: source.id)
    return SourcePage(data=[SourceShown.of(source) for source in shown], next_cursor=following)


@router.post(
    "/{id}/rotate",
    responses=problems(ErrorCode.NOT_FOUND, ErrorCode.INVALID, ErrorCode.OVERLOADED, ErrorCode.JOURNAL_QUORUM),
)
async def rotate_source(source_id: SourceId, change: Change, deps: Deps) -> SourceRotated:
    """Rotate a source's secret. Until the old one expires, both count; two are kept, never three."""
    tenant = change.caller.tenant
    source = await deps.issuer.source(tenant, source_id)
    if source is None:
        raise no_such("source")
    if not source.has_secret:
        raise invalid([FieldFault("", "the source is proved by its certificate alone: it has no secret")])
    secret = new_secret(deps.ambient.entropy(SECRET_ENTROPY_BYTES))

    async def rotate(seen: int) -> SourceRow:
        overlap = deps.secret_overlap_seconds
        return await change.issuer.rotate_source(
            tenant, source, secret=secret, secret_id=new_id(deps), overlap_seconds=overlap, seen=seen
        )

    try:
        rotated = await change.make(rotate)
    except NoSuchSource:
        raise no_such("source") from None
    return SourceRotated(
        id=ids.write(ids.SOURCE, rotated.id),
        secret=secret.expose(),
        previous_secret_expires_at=instants.write_optional(rotated.previous_secret_expires_at),
    )


@router.delete("/{id}", status_code=204, responses=problems(ErrorCode.NOT_FOUND, ErrorCode.JOURNAL_QUORUM))
async def remove_source(source_id: SourceId, change: Change) -> Response:
    """Remove a source, with the keys that prove it. Its next request is refused; what it sent before stays."""
    tenant = change.caller.tenant
    try:
        await change.make(lambda seen: change.issuer.remove_source(tenant, source_id, seen=seen))
    except NoSuchSource:
        raise no_such("source") from None
    return Response(status_code=204)
