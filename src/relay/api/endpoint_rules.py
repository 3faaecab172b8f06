"""From what a client wrote about an endpoint to a configuration, or to what is wrong with it.

Owns the checks that need more than the field itself: the egress policy, the installation's limits, the profile of the
secret. All faults of a body are told at once, but for the url's, which has a code of its own and comes last.
Invariant: a configuration that is returned can be stored, routed to and sent to as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from relay.api import chat_rules
from relay.api.deps import ApiDeps
from relay.api.endpoint_models import LONGEST_NAME, EndpointChange, EndpointNew, RetryRule, SecretGiven
from relay.domain.backoff import RetryPolicy
from relay.domain.chat import CHAT_TRANSPORTS
from relay.domain.egress import EgressPolicy, Refusal, Target, check_url
from relay.domain.endpoint import Endpoint, EndpointConfig, SignatureProfile, Transport
from relay.domain.headers import InvalidHeaders, check_custom_headers, restored_headers
from relay.domain.secret import Secret
from relay.domain.signing import InvalidSecret, check_secret
from relay.store.endpoints import ConfigChange
from relay.web.problems import ErrorCode, FieldFault, invalid, pointer, refuse

_SUFFIX_BYTES = 3


def read_new(deps: ApiDeps, wanted: EndpointNew) -> EndpointConfig:
    """The configuration of a new endpoint, with a name drawn for it where none was wanted. Raises `Refused`."""
    transport = chat_rules.transport_wanted(wanted)
    if faults := [*_limit_faults(deps, wanted), *chat_rules.faults(transport, wanted)]:
        raise invalid(faults)
    wanted = chat_rules.with_defaults(transport, wanted)
    url, place = _place(deps, transport, wanted.url)
    return EndpointConfig(
        name=wanted.name or _name_for(place, deps.ambient.entropy(_SUFFIX_BYTES)),
        url=url,
        transport=transport,
        event_types=tuple(wanted.event_types),
        rate_per_second=wanted.rate_per_second,
        burst=wanted.burst,
        max_in_flight=wanted.max_in_flight or deps.limits.in_flight,
        timeout_seconds=wanted.timeout_seconds,
        retry=wanted.retry.model_dump(exclude_unset=True) if wanted.retry else None,
        ack=wanted.ack,
        signature=wanted.signature,
        headers=_restored(wanted.headers, {}),
    )


def read_secret(wanted: EndpointNew) -> Secret | None:
    """The client's own secret, None if it wants one made. Raises `Refused`."""
    transport = chat_rules.transport_wanted(wanted)
    if transport in CHAT_TRANSPORTS:
        return chat_rules.read_token(transport, wanted.secret)
    if wanted.secret is None:
        return None
    try:
        return check_secret(wanted.signature, wanted.secret.get_secret_value())
    except InvalidSecret as fault:
        raise invalid([FieldFault(pointer("secret"), str(fault))]) from None


def read_rotation(endpoint: Endpoint, given: SecretGiven) -> Secret | None:
    """The new token of a chat, None where the new secret is to be made. Raises `Refused`."""
    transport = endpoint.config.transport
    if transport in CHAT_TRANSPORTS:
        return chat_rules.read_token(transport, given.secret)
    if given.secret is not None:
        detail = "the new secret is made here: leave it out; only a chat's token is given"
        raise invalid([FieldFault(pointer("secret"), detail)])
    return None


def check_change(deps: ApiDeps, wanted: EndpointChange) -> None:
    """Raises `Refused` for what is wrong whatever endpoint is meant."""
    if faults := list(_limit_faults(deps, wanted)):
        raise invalid(faults)


def read_change(deps: ApiDeps, transport: Transport, wanted: EndpointChange) -> ConfigChange:
    """What to do to the newest configuration of an endpoint of that transport. Raises `Refused`."""
    if faults := [*chat_rules.faults(transport, wanted)]:
        raise invalid(faults)
    changed: dict[str, Any] = {field: getattr(wanted, field) for field in wanted.model_fields_set}
    if wanted.url is not None:
        changed["url"], _ = _place(deps, transport, wanted.url)
    if wanted.event_types is not None:
        changed["event_types"] = tuple(wanted.event_types)
    if wanted.retry is not None:
        changed["retry"] = wanted.retry.model_dump(exclude_unset=True)
    return partial(_changed, changed=changed)


def _changed(newest: EndpointConfig, changed: Mapping[str, Any]) -> EndpointConfig:
    if "headers" in changed:
        changed = {**changed, "headers": _restored(changed["headers"], newest.headers)}
    return replace(newest, **changed)


def _restored(wanted: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    try:
        return dict(check_custom_headers(restored_headers(wanted, known)))
    except InvalidHeaders as fault:
        raise invalid([FieldFault(pointer("headers"), each) for each in fault.faults]) from None


def _place(deps: ApiDeps, transport: Transport, url: str) -> tuple[str, str]:
    """The url in its normal form, and what to name an endpoint after. Raises `Refused`."""
    if transport in CHAT_TRANSPORTS:
        return chat_rules.judge_chat(deps, transport, url).url, transport
    target = judge_url(deps.egress, url)
    chat_rules.check_no_token(deps, target)
    return target.url, target.host


def check_profile(profile: SignatureProfile, secrets: Iterable[Secret]) -> None:
    """Raises `Refused` unless these secrets suit the profile; a secret of `stripe` need not be one for `standard`."""
    for secret in secrets:
        try:
            check_secret(profile, secret.expose())
        except InvalidSecret:
            detail = f"the endpoint's secret does not suit {profile}; rotate it first, what is made here suits them all"
            raise invalid([FieldFault(pointer("signature"), detail)]) from None


def judge_url(policy: EgressPolicy, url: str) -> Target:
    """The url taken apart. Raises `Refused` (`url_refused`). A name is not resolved: what it answers may change."""
    judged = check_url(policy, url)
    if isinstance(judged, Refusal):
        raise refuse(ErrorCode.URL_REFUSED, judged.detail, reason=str(judged.reason))
    return judged


def _name_for(place: str, chance: bytes) -> str:
    suffix = f"-{chance.hex()}"
    return place[: LONGEST_NAME - len(suffix)] + suffix


def _limit_faults(deps: ApiDeps, wanted: EndpointNew | EndpointChange) -> Iterator[FieldFault]:
    max_in_flight, timeout_seconds = wanted.max_in_flight, wanted.timeout_seconds
    limits = deps.limits
    if max_in_flight is not None and max_in_flight > limits.most_in_flight:
        detail = f"at most {limits.most_in_flight}, half of RELAY_GLOBAL_CONCURRENCY"
        yield FieldFault(pointer("max_in_flight"), detail)
    if timeout_seconds is not None and timeout_seconds > limits.most_timeout_seconds:
        detail = f"at most {limits.most_timeout_seconds:g} seconds, what RELAY_LEASE_SECS leaves"
        yield FieldFault(pointer("timeout_seconds"), detail)
    if wanted.retry is not None and (detail := _contradiction(limits.retry, wanted.retry)):
        yield FieldFault(pointer("retry"), detail)


def _contradiction(installation: RetryPolicy, wanted: RetryRule) -> str:
    """What a rule of one's own says against itself once it is laid over the installation's; empty where all is well."""
    policy = installation.overridden(wanted.model_dump(exclude_unset=True))
    if policy.schedule:
        return ""
    if policy.base_seconds > policy.max_seconds:
        return (
            f"max_seconds is shorter than the first delay, which is {policy.base_seconds:g} seconds here"
            " (RELAY_RETRY_BASE_SECS): name a base_seconds too"
        )
    if policy.base_seconds > policy.window_seconds:
        return (
            f"the first delay, {policy.base_seconds:g} seconds, is longer than the window of {policy.window_seconds:g},"
            " so nothing would ever be tried again: lower base_seconds or raise window_seconds"
        )
    return ""
