"""Where Relay may send: the policy, and its two judgements, of a url and of the addresses behind its name.

Owns the decision and nothing of how names are resolved or sockets opened. The url is judged when an endpoint is written
and again before each send; the address is judged after each resolution and once more when the socket is opened, so the
address that was approved is the one that is dialled. Invariant: whatever cannot be read or classified is refused, and
no setting re-opens multicast, broadcast or the unspecified address. The reasons for each choice: decision 0004.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relay.domain.addresses import (
    Address,
    Network,
    SpecialRange,
    classify,
    read_address,
    translated_by_nat64,
)
from relay.domain.refusal import Refusal, RefusalReason
from relay.domain.target import Target, read_target

__all__ = [
    "Address",
    "EgressPolicy",
    "Network",
    "Refusal",
    "RefusalReason",
    "Target",
    "check_url",
    "judge_address",
    "judge_all",
]

OPENED_FOR_DEVELOPMENT = frozenset(
    {RefusalReason.LOOPBACK, RefusalReason.PRIVATE, RefusalReason.SHARED, RefusalReason.LINK_LOCAL}
)
"""What `allow_private` opens. Metadata services are not part of it: a laptop has none, a cloud machine has secrets."""

NEVER_OPENED = frozenset({RefusalReason.UNSPECIFIED, RefusalReason.MULTICAST, RefusalReason.BROADCAST})
"""What even `allow_cidrs` does not open: none of these is the address of one receiver."""

_LOCALHOST = "127.0.0.1"

_OWN = Refusal(RefusalReason.OWN_ADDRESS, "the address is Relay's own; an endpoint must be another server")


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """What an installation permits; the default is what production needs.

    `allow_private` is the development switch: loopback, private, carrier-shared and link-local addresses, and Relay's
    own. `allowed_ports` None means any port. `allow_cidrs` re-opens ranges for good (a receiver in the own network); a
    metadata service only if a network names its address alone.
    `own_addresses` are Relay's own, refused wherever they lie, `allow_cidrs` included. Mapped addresses are judged as
    IPv4, so both are to be written as IPv4. Loopback is shared with whatever else runs on the machine, so where a
    network opens it, only `own_loopback_ports` are Relay's.
    """

    allow_private: bool = False
    require_https: bool = True
    allowed_ports: frozenset[int] | None = frozenset({443})
    allow_cidrs: tuple[Network, ...] = ()
    own_addresses: frozenset[Address] = frozenset()
    own_loopback_ports: frozenset[int] = frozenset()


def check_url(policy: EgressPolicy, url: str) -> Target | Refusal:
    """Judge a url before its name is resolved: form, scheme, port and, for an address literal, the address.

    Never raises. A target's `url` is the normal form: store it, and request exactly it. Names under `localhost` are
    loopback by RFC 6761, 6.3, whatever a resolver says, and are judged here as well.
    """
    target = read_target(url)
    if isinstance(target, Refusal):
        return target
    return _judge_scheme_and_port(policy, target) or _judge_host(policy, target) or target


def judge_address(policy: EgressPolicy, ip: str | bytes, port: int | None = None) -> Refusal | None:
    """Judge an address, given as text or as its 4 or 16 bytes in network order. None means that it may be dialled.

    Without a `port`, as when a name is looked up, it is not told whether the address is Relay's own at that port; who
    dials judges once more, with it.
    """
    address = read_address(ip)
    if address is None:
        return Refusal(RefusalReason.UNREADABLE_ADDRESS, "the name's address cannot be read; correct its DNS records")
    return _judge(policy, address, port)


def judge_all(policy: EgressPolicy, addresses: Iterable[str | bytes]) -> Refusal | None:
    """Judge every address that a name resolved to; the first refusal stands for all, so mixed answers are refused.

    No address at all is refused too: nothing that was not judged is dialled.
    """
    refusal: Refusal | None = Refusal(RefusalReason.NO_ADDRESS, "the name has no address; give it an A or AAAA record")
    for ip in addresses:
        refusal = judge_address(policy, ip)
        if refusal is not None:
            return refusal
    return refusal


def _judge_scheme_and_port(policy: EgressPolicy, target: Target) -> Refusal | None:
    if policy.require_https and target.scheme != "https":
        return Refusal(
            RefusalReason.SCHEME, "the url must start with https://; RELAY_REQUIRE_HTTPS=false allows http:// too"
        )
    if policy.allowed_ports is not None and target.port not in policy.allowed_ports:
        allowed = ", ".join(map(str, sorted(policy.allowed_ports))) or "none"
        detail = f"port {target.port} is not allowed; allowed (RELAY_ALLOWED_PORTS): {allowed}"
        return Refusal(RefusalReason.PORT, detail)
    return None


def _judge_host(policy: EgressPolicy, target: Target) -> Refusal | None:
    if target.address is not None:
        return _judge(policy, target.address, target.port)
    if target.host == "localhost" or target.host.endswith(".localhost"):
        return judge_address(policy, _LOCALHOST, target.port)
    return None


def _judge(policy: EgressPolicy, address: Address, port: int | None) -> Refusal | None:
    special = classify(address)
    if special is not None and special.reason in NEVER_OPENED:
        return _refuse(special)
    if address in policy.own_addresses and not policy.allow_private:
        return _OWN
    if special is None or (policy.allow_private and special.reason in OPENED_FOR_DEVELOPMENT):
        return None
    if not any(_opens(network, special, address) for network in policy.allow_cidrs):
        return _refuse(special)
    if special.reason is RefusalReason.LOOPBACK and port in policy.own_loopback_ports:
        return _OWN
    # Opening the NAT64 prefix opens the public IPv4 internet behind it, not what is private there.
    translated = translated_by_nat64(address)
    return None if translated is None else _judge(policy, translated, port)


def _opens(network: Network, special: SpecialRange, address: Address) -> bool:
    """Whether an allowed network opens the address: metadata services lie inside of ranges with honest receivers."""
    return address in network and (special.reason is not RefusalReason.METADATA or network.num_addresses == 1)


def _refuse(special: SpecialRange) -> Refusal:
    # The range is named, not the address: what a name resolves to inside this network is not for its tenants.
    detail = f"the address is in {special.network} ({special.name}); use a public address"
    if special.reason not in NEVER_OPENED:
        detail += ", or have the operator open it with RELAY_EGRESS_ALLOW_CIDRS"
    if special.reason is RefusalReason.METADATA:
        detail += ", which has to name this address alone"
    if special.reason in OPENED_FOR_DEVELOPMENT:
        detail += ", or on a development machine with RELAY_ALLOW_PRIVATE_ENDPOINTS=true"
    return Refusal(special.reason, detail)
