"""What the egress policy refuses, as a table for the documentation, made from the policy's own tables.

Owns the table only, in Markdown. Invariant: every reason stands in exactly one row, with every range that has it.
"""

from __future__ import annotations

from collections.abc import Iterator

from relay.domain.addresses import SPECIAL_IPV4, SPECIAL_IPV6
from relay.domain.egress import NEVER_OPENED, OPENED_FOR_DEVELOPMENT
from relay.domain.refusal import RefusalReason

_SAID = {
    RefusalReason.MALFORMED: "white space, control characters, backslashes, bare percent signs,"
    " `.` and `..` in the path",
    RefusalReason.TOO_LONG: "a url of more than 2,048 characters",
    RefusalReason.SCHEME: "every scheme but `https` and, where `RELAY_REQUIRE_HTTPS` is false, `http`",
    RefusalReason.USERINFO: "anything before an `@`; a header is the place for credentials",
    RefusalReason.FRAGMENT: "a `#` and what follows",
    RefusalReason.HOST: "every spelling of an address but the plain one (`127.1`, `0x7f000001`, `2130706433`,"
    " zone ids), and names that are none",
    RefusalReason.PORT: "a port that is not in `RELAY_ALLOWED_PORTS`, or is no plain number",
    RefusalReason.CREDENTIAL: "a Discord webhook's or a Telegram bot's url with its token inside, when it is written;"
    " see [chats](receivers.md#chats)",
    RefusalReason.NO_ADDRESS: "a name that leads to no address",
    RefusalReason.UNREADABLE_ADDRESS: "what a name leads to and cannot be read, or was not judged before",
    RefusalReason.OWN_ADDRESS: "an address that Relay itself listens on; on an opened loopback, its ports",
}
"""What is refused for its form, or for whose it is. All other reasons are those of ranges."""

FOR_DEVELOPMENT = "`RELAY_ALLOW_PRIVATE_ENDPOINTS`, `RELAY_EGRESS_ALLOW_CIDRS`"
BY_RANGE = "`RELAY_EGRESS_ALLOW_CIDRS`"
_OPENED_BY = {
    RefusalReason.SCHEME: "`RELAY_REQUIRE_HTTPS`",
    RefusalReason.PORT: "`RELAY_ALLOWED_PORTS`",
    RefusalReason.OWN_ADDRESS: "`RELAY_ALLOW_PRIVATE_ENDPOINTS`",
    RefusalReason.METADATA: f"{BY_RANGE} that names the address alone",
}


def reference() -> str:
    """The table as Markdown, in the order in which a url is judged."""
    return "\n".join(
        [
            "| reason | what is refused | opened by |",
            "|---|---|---|",
            *(f"| `{reason}` | {_what(reason)} | {_opened_by(reason)} |" for reason in RefusalReason),
            "",
        ]
    )


def _what(reason: RefusalReason) -> str:
    return _SAID.get(reason) or ", ".join(f"`{text}`" for text in _ranges(reason))


def _ranges(reason: RefusalReason) -> Iterator[str]:
    for row in (*SPECIAL_IPV4, *SPECIAL_IPV6):
        if row.reason is reason:
            single = row.network.prefixlen == row.network.max_prefixlen
            yield str(row.network[0]) if single else str(row.network)


def _opened_by(reason: RefusalReason) -> str:
    if reason in _OPENED_BY:
        return _OPENED_BY[reason]
    if reason in _SAID or reason in NEVER_OPENED:
        return "nothing"
    return FOR_DEVELOPMENT if reason in OPENED_FOR_DEVELOPMENT else BY_RANGE
