"""What a client may want of a chat endpoint: its url, its token, and nothing that only signed requests have.

Owns the checks that hold for `telegram` and `discord` alone. Invariant: a chat endpoint that is stored has a chat's
url, a token in its platform's form, no signature and no headers, and its platform's address was judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import SecretStr

from relay.api.deps import ApiDeps
from relay.api.endpoint_models import EndpointChange, EndpointNew, RetryRule
from relay.domain.backoff import FOR_A_DAY
from relay.domain.chat import CHAT_TRANSPORTS, Chat, check_token, read_chat, refuse_token_in_url, transport_of
from relay.domain.egress import Refusal, Target, check_url
from relay.domain.endpoint import AckMode, SignatureProfile, Transport
from relay.domain.secret import Secret
from relay.domain.signing import InvalidSecret
from relay.transports.prepared import shown_url
from relay.web.problems import ErrorCode, FieldFault, invalid, pointer, refuse

_DEFAULTS: Mapping[str, object] = {
    "max_in_flight": 1,
    "rate_per_second": 2.0,
    "burst": 3,
    "retry": RetryRule.model_validate(FOR_A_DAY),
    "signature": SignatureProfile.NONE,
}
"""What counts for a chat where nothing else is wanted. One message at a time has a platform that has had enough say so
once instead of to all of them; messages appear as they are sent then, but one that waits for its retry is overtaken.
The rate is a little below what Discord takes of one webhook: each 429 counts towards a ban of the machine. It may say
so for hours on end while a backlog is worked off, so retries are planned for a day."""

_SETTINGS = {Transport.TELEGRAM: "RELAY_TELEGRAM_URL", Transport.DISCORD: "RELAY_DISCORD_URL"}


def transport_wanted(wanted: EndpointNew) -> Transport:
    """The transport that is named, else the one that the url's scheme asks for."""
    return wanted.transport if "transport" in wanted.model_fields_set else transport_of(wanted.url)


def with_defaults(transport: Transport, wanted: EndpointNew) -> EndpointNew:
    """What is wanted, with a chat's own defaults for what is not named."""
    if transport not in CHAT_TRANSPORTS:
        return wanted
    unnamed = {name: value for name, value in _DEFAULTS.items() if name not in wanted.model_fields_set}
    return wanted.model_copy(update=unnamed)


def faults(transport: Transport, wanted: EndpointNew | EndpointChange) -> Iterator[FieldFault]:
    """What is wanted that no chat has; nothing for `http`."""
    if transport not in CHAT_TRANSPORTS:
        return
    named = wanted.model_fields_set
    if "signature" in named and wanted.signature is not SignatureProfile.NONE:
        yield FieldFault(pointer("signature"), f"messages to {transport} are not signed: leave it out")
    if wanted.headers:
        yield FieldFault(pointer("headers"), f"{transport} takes no headers of yours: leave them out")
    if "ack" in named and wanted.ack is not AckMode.RESPONSE:
        yield FieldFault(pointer("ack"), f"nobody at {transport} can call back: use response")


def read_token(transport: Transport, given: SecretStr | None) -> Secret:
    """The token of a chat endpoint. Raises `Refused`."""
    try:
        return check_token(transport, "" if given is None else given.get_secret_value())
    except InvalidSecret as fault:
        raise invalid([FieldFault(pointer("secret"), str(fault))]) from None


def check_no_token(deps: ApiDeps, target: Target) -> None:
    """Raises `Refused` (`url_refused`) for an http url that is a chat platform's, with a token in it."""
    bases = {Transport.TELEGRAM: deps.platforms.telegram, Transport.DISCORD: deps.platforms.discord}
    refusal = refuse_token_in_url(target, bases)
    if refusal is not None:
        raise refuse(ErrorCode.URL_REFUSED, refusal.detail, reason=str(refusal.reason))


def judge_chat(deps: ApiDeps, transport: Transport, url: str) -> Chat:
    """The chat, whose platform's address may be sent to. Raises `Refused` (`url_refused`)."""
    chat = read_chat(transport, url)
    if isinstance(chat, Refusal):
        raise refuse(ErrorCode.URL_REFUSED, chat.detail, reason=str(chat.reason))
    judged = check_url(deps.egress, shown_url(chat, deps.platforms))
    if isinstance(judged, Refusal):
        detail = f"{_SETTINGS[transport]} leads where no endpoint may be: {judged.detail}"
        raise refuse(ErrorCode.URL_REFUSED, detail, reason=str(judged.reason))
    return chat
