"""The calls on sources.

Owns the routes. Invariant: a source's secret leaves in exactly one answer, to the call that made it: a creation, a
rotation, or a change that took a new one.
"""

from __future__ import annotations

from fastapi import APIRouter, Depends, Response

from relay.api.credential_changes import CODES, Change
from relay.api.deps import Deps, Tenant, new_id
from relay.api.documentation import operation_id
from relay.api.json_route import JsonRoute
from relay.api.problem_documentation import LISTED, problems
from relay.api.requests import Cursor, Limit, SourceId, no_such, only_known_parameters
from relay.api.sender_models import (
    SourceChange,
    SourceChanged,
    SourceCreated,
    SourceNew,
    SourcePage,
    SourceRotated,
    SourceShown,
    changed_source,
    created_source,
)
from relay.domain import ids
from relay.domain.credentials import Proof, Scope, SourceProof
from relay.domain.signing import SECRET_ENTROPY_BYTES, new_secret
from relay.store.endpoints import NEWEST
from relay.store.faults import NameTaken
from relay.store.issuer import KeysLeft, NoSecret, NoSuchSource, NotForOneTenant, SourceRow
from relay.web import instants, paging
from relay.web.problems import ErrorCode, FieldFault, Problem, Refused, invalid, pointer

router = APIRouter(
    prefix="/v1/sources", tags=["credentials"], route_class=JsonRoute, generate_unique_id_function=operation_id
)

LISTING = paging.Listing("sources", paging.BY_ID)

_KEYS_LEFT = "the source has keys, which prove its bearer: revoke them first"
_FOR_ALL = Problem(
    ErrorCode.SCOPE_MISSING,
    "a certificate's name counts for all tenants: where there are several, only an operator gives one to a source",
    {"scope": str(Scope.OPERATOR)},
)
_BOTH_OR_NEITHER = "certificate_subject belongs to mtls: change both, so that there are both or neither"


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
            SourceProof(tuple(proof for proof in Proof if proof in wanted.auth), wanted.certificate_subject),
            secret=secret,
            secret_id=new_id(deps),
            for_all=Scope.OPERATOR in change.caller.scopes,
            seen=seen,
        )

    try:
        source = await change.make(create)
    except NameTaken as fault:
        raise _taken(fault) from None
    except NotForOneTenant:
        raise Refused(_FOR_ALL) from None
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


@router.patch("/{id}", responses=problems(ErrorCode.NOT_FOUND, *CODES))
async def change_source(source_id: SourceId, wanted: SourceChange, change: Change, deps: Deps) -> SourceChanged:
    """Change what a source is proved by, or take its certificate off it. Its next request is judged by that.

    A bearer or a signature that it was not asked for before takes a new secret, which the answer has, this once; one
    that it had ends at once.
    """
    tenant = change.caller.tenant
    secret = new_secret(deps.ambient.entropy(SECRET_ENTROPY_BYTES))

    async def make(seen: int) -> tuple[SourceRow, bool]:
        return await change.issuer.change_source(
            tenant,
            source_id,
            lambda source: _decide(wanted, source),
            secret=secret,
            secret_id=new_id(deps),
            for_all=Scope.OPERATOR in change.caller.scopes,
            seen=seen,
        )

    try:
        source, is_new = await change.make(make)
    except NoSuchSource:
        raise no_such("source") from None
    except NameTaken as fault:
        raise _taken(fault) from None
    except NotForOneTenant:
        raise Refused(_FOR_ALL) from None
    except KeysLeft:
        raise invalid([FieldFault(pointer("auth"), _KEYS_LEFT)]) from None
    return changed_source(source, secret.expose() if is_new else None)


@router.post(
    "/{id}/rotate",
    responses=problems(ErrorCode.NOT_FOUND, ErrorCode.INVALID, ErrorCode.OVERLOADED, ErrorCode.JOURNAL_QUORUM),
)
async def rotate_source(source_id: SourceId, change: Change, deps: Deps) -> SourceRotated:
    """Rotate a source's secret. Until the old one expires, both count; two are kept, never three."""
    tenant = change.caller.tenant
    secret = new_secret(deps.ambient.entropy(SECRET_ENTROPY_BYTES))

    async def rotate(seen: int) -> SourceRow:
        overlap = deps.secret_overlap_seconds
        return await change.issuer.rotate_source(
            tenant, source_id, secret=secret, secret_id=new_id(deps), overlap_seconds=overlap, seen=seen
        )

    try:
        rotated = await change.make(rotate)
    except NoSuchSource:
        raise no_such("source") from None
    except NoSecret:
        raise invalid([FieldFault("", "the source is proved by its certificate alone: it has no secret")]) from None
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


def _taken(fault: NameTaken) -> Refused:
    taken = "certificate_subject" if "subject" in str(fault) else "name"
    return invalid(
        [
            FieldFault(
                pointer(taken), "it is taken: no two sources of an installation, of whichever tenant, have the same"
            )
        ]
    )


def _decide(wanted: SourceChange, source: SourceRow) -> SourceProof:
    """What the source is to be proved by. Raises `Refused` (`invalid`).

    Who takes `mtls` out of `auth` has no use for the name. The other way nothing follows: a source that is left with
    fewer proofs is left so on purpose.
    """
    auth, subject = source.auth, source.certificate_subject
    if wanted.auth is not None:
        auth = tuple(proof for proof in Proof if proof in wanted.auth)
        subject = subject if Proof.MTLS in auth else None
    if "certificate_subject" in wanted.model_fields_set:
        subject = wanted.certificate_subject
    if (Proof.MTLS in auth) != (subject is not None):
        raise invalid([FieldFault("", _BOTH_OR_NEITHER)])
    return SourceProof(auth, subject)
