"""Credentials taken out of text that other people's code wrote: exceptions, warnings, a server's messages.

Owns the forms in which a credential is recognised. Relay's own lines do not need it (secrets travel as
`Secret`, urls as `display_url`); it is the net below. Invariant: redacting twice changes nothing more.
"""

from __future__ import annotations

import re

STARS = "***"

_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("://", re.compile(r"""(?P<kept>://)[^\s/?#"'<>\\]*(?=@)""")),  # user and password of a url
    (":", re.compile(r"(?P<kept>:(?<=[0-9]{5}:))[A-Za-z0-9_-]{25,}")),  # a Telegram bot's token, after its number
    ("/webhooks/", re.compile(r"(?P<kept>/webhooks/[0-9]+/)[A-Za-z0-9._~-]+")),  # a Discord webhook's token
    ("whsec_", re.compile(r"(?P<kept>whsec_)[A-Za-z0-9+/=_-]+")),  # a signing secret
    ("rlk_", re.compile(r"(?P<kept>\brlk_)[A-Za-z0-9_-]{8,}")),  # a key of Relay's own
    ("bearer", re.compile(r"(?P<kept>\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)),
    ("basic", re.compile(r"(?P<kept>\bbasic\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)),
    (
        "=",  # a parameter of a url that is named like a credential
        re.compile(
            r"""(?P<kept>[?&][^\s=&"']*(?:password|secret|token|key|sig)[^\s=&"']*=)[^\s&"'<>\\]+""", re.IGNORECASE
        ),
    ),
)
"""Each form with the text that it cannot do without: looking for that first costs little, and most lines have
none of it."""


def redact(text: str) -> str:
    """The text with whatever looks like a credential as stars, and what says of which kind it was left standing."""
    lower = text.lower()
    for needed, form in _FORMS:
        if needed in lower:
            text = form.sub(rf"\g<kept>{STARS}", text)
    return text
