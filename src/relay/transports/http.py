"""The `http` transport: the exact payload, signed, with headers that say which delivery and which attempt it is.

Owns the headers of the contract. What does not change between two deliveries to one endpoint (the url to show, the
keys, the customer's own headers) is worked out once by `prepare` and kept with the endpoint's revision. Invariant:
every name in a request stands there once, but for what the event's sender repeated, and no value holds a line break or
a byte outside of visible ASCII, spaces and tabs.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import unquote

from relay.domain import ids
from relay.domain.delivery import ClaimedDelivery
from relay.domain.endpoint import Destination
from relay.domain.headers import wire_id, wire_value
from relay.domain.sending import OutboundRequest, SendFacts
from relay.domain.signing import Signer
from relay.domain.signing import prepare as prepare_signer
from relay.domain.trace import next_traceparent, read_traceparent
from relay.transports.hiding import Hidden

Headers = tuple[tuple[str, str], ...]

LEAST_HIDDEN = 8
"""Characters of a value that is looked for in answers. A shorter one is no good credential, and often a word."""

_TOKEN_IN_PATH = re.compile(r"(?P<kept>/(?:bot[0-9]+:|webhooks/[0-9]+/|services/T[^/]*/B[^/]*/))(?P<token>[^/]+)")
"""The token in a url of Telegram's, Discord's or Slack's, which many send to as to any other receiver."""

_SIGNATURE = re.compile(
    rb"(?P<kept>\b(?:v1[=,]|sha256=))(?:[0-9a-f]{64}|[0-9A-Za-z+/]{43}=|[0-9a-f]{8,63}\Z|[0-9A-Za-z+/]{8,43}\Z)"
)
"""A signature of any profile: whoever has it can repeat the request, with some profiles for ever. Cut at the end of the
snippet it may lack no more than can be guessed."""


@dataclass(frozen=True, slots=True)
class HttpDestination:
    """A destination made ready: everything of its requests that no single delivery decides.

    `overlap_signer` signs with the previous secret as well; it is `signer` itself where there is none. `hidden` is what
    no answer may show that repeats it. `traces` has traces that begin here sampled.
    """

    revision: int
    url: str = field(repr=False)
    display_url: str
    own_headers: Headers = field(repr=False)
    signer: Signer
    overlap_signer: Signer
    timeout_seconds: float
    silence_seconds: float
    hidden: Hidden = field(repr=False)
    traces: bool = False

    def request(self, claimed: ClaimedDelivery, *, timestamp: int, entropy: bytes) -> OutboundRequest:
        """The request of one attempt; see `Prepared`."""
        return build(claimed, self, timestamp=timestamp, entropy=entropy)

    def read(self, facts: SendFacts) -> SendFacts:
        """Over http the facts say it themselves; only what a receiver repeats of our credentials is taken out."""
        facts = self.hidden.taken_out_of(facts)
        snippet = facts.snippet
        if b"v1" not in snippet and b"sha256=" not in snippet:
            return facts
        unsigned = _SIGNATURE.sub(rb"\g<kept>***", snippet)
        return facts if unsigned == snippet else facts._replace(snippet=unsigned)


def prepare(
    destination: Destination, *, user_agent: str, timeout_seconds: float, traces: bool = False
) -> HttpDestination:
    """Make a destination ready; keep the result until its revision changes.

    `timeout_seconds` is the installation's total timeout, for a destination that has none of its own; with `traces` a
    trace that begins with an attempt is sampled. Raises `InvalidSecret` or `ValueError` if the destination's secret
    does not suit its signature profile.
    """
    secrets = (destination.secret,)
    signer = prepare_signer(destination.signature, secrets)
    overlap_signer = signer
    if destination.previous_secret is not None:
        overlap_signer = prepare_signer(destination.signature, (*secrets, destination.previous_secret))
    return HttpDestination(
        revision=destination.revision,
        url=destination.url,
        display_url=display_url(destination.url),
        own_headers=(("User-Agent", user_agent), *destination.headers),
        signer=signer,
        overlap_signer=overlap_signer,
        timeout_seconds=timeout_seconds if destination.timeout_seconds is None else destination.timeout_seconds,
        silence_seconds=destination.timeout_seconds or 0.0,
        hidden=_hidden(destination),
        traces=traces,
    )


def build(claimed: ClaimedDelivery, ready: HttpDestination, *, timestamp: int, entropy: bytes) -> OutboundRequest:
    """Build the request of one attempt: `timestamp` in Unix seconds, `entropy` as `next_traceparent` takes it."""
    # what was claimed before a rotation that is known here by now knows nothing of the secret that it made the previous
    rotating = claimed.sign_with_previous or claimed.endpoint_revision < ready.revision
    signer = ready.overlap_signer if rotating else ready.signer
    return OutboundRequest(
        url=ready.url,
        display_url=ready.display_url,
        headers=(
            ("Content-Type", wire_value(claimed.content_type)),
            *signer.headers(timestamp, claimed.id, claimed.type, claimed.payload),
            ("Relay-Delivery-Id", str(claimed.id)),
            ("Relay-Receipt-Id", ids.write(ids.RECEIPT, claimed.receipt_id)),
            ("Relay-Event-Id", wire_id(claimed.event_id)),
            ("Relay-Event-Type", claimed.type),
            ("Relay-Received-At", _rfc3339(claimed.received_at)),
            ("Relay-Journal-Position", str(claimed.position)),
            ("Relay-Attempt", str(claimed.attempt)),
            ("Relay-Generation", str(claimed.generation)),
            ("Relay-Hops", str(claimed.hops + 1)),
            ("Content-Digest", f"sha-256=:{b64encode(claimed.payload_sha256).decode()}:"),
            *_forwarded(claimed.forwarded, entropy, ready.traces),
            *ready.own_headers,
        ),
        body=claimed.payload,
        timeout_seconds=ready.timeout_seconds,
        silence_seconds=ready.silence_seconds,
    )


def _hidden(destination: Destination) -> Hidden:
    """What is, or may be, a credential: the secrets, the values of the customer's headers and of the url's query, and a
    token in the path."""
    values = [destination.secret.expose()]
    if destination.previous_secret is not None:
        values.append(destination.previous_secret.expose())
    for _, value in destination.headers:
        values += [value, value.partition(" ")[2]]  # `Bearer …`, and what stands behind the scheme
    path, _, query = destination.url.partition("?")
    values += [found["token"] for found in _TOKEN_IN_PATH.finditer(path)]
    for parameter in query.split("&"):
        name, equals, value = parameter.partition("=")
        values += [value, unquote(value)] if equals else [name]
    return Hidden(each for each in values if len(each) >= LEAST_HIDDEN)


def display_url(url: str) -> str:
    """The url as it may be shown: values in its query become stars, since tokens travel there, and so do the tokens
    that well-known services have in their paths.

    A parameter without `=` is replaced as a whole. Credentials before an `@` need no care: such urls are refused.
    """
    path, mark, query = url.partition("?")
    base = _TOKEN_IN_PATH.sub(r"\g<kept>***", path)
    if not query:
        return base + mark
    return base + mark + "&".join([_starred(parameter) for parameter in query.split("&")])


def _starred(parameter: str) -> str:
    name, equals, _ = parameter.partition("=")
    return f"{name}=***" if equals else "***"


def _rfc3339(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _forwarded(forwarded: Headers, entropy: bytes, traces: bool) -> Headers:
    """The event's own headers: trace context continued with this attempt's parent id, CloudEvents' as they came."""
    if not forwarded:
        return (("traceparent", next_traceparent(None, entropy, roots_sampled=traces)),)
    sent = dict(forwarded)
    parent = read_traceparent(sent.get("traceparent", ""))
    headers = [("traceparent", next_traceparent(parent, entropy, roots_sampled=traces))]
    for name, value in forwarded:
        if name.startswith("ce-") or (name == "tracestate" and parent is not None):
            headers.append((name, wire_value(value)))
    return tuple(headers)
