"""Destinations made ready: what every transport gives the dispatcher, and which transport makes it.

Owns the Protocol and the choice. Invariant: past `prepare` nothing asks which transport a delivery goes by.
"""

from __future__ import annotations

from typing import Protocol, assert_never

from relay.domain.chat import Chat
from relay.domain.delivery import ClaimedDelivery
from relay.domain.endpoint import Destination, Transport
from relay.domain.sending import OutboundRequest, SendFacts
from relay.transports import discord, http, telegram
from relay.transports.chat import Platforms


class Prepared(Protocol):
    """A destination with everything of its requests that no single delivery decides."""

    @property
    def display_url(self) -> str:
        """What may be stored and shown of the url."""
        ...

    @property
    def timeout_seconds(self) -> float:
        """What bounds each attempt."""
        ...

    def request(self, claimed: ClaimedDelivery, *, timestamp: int, entropy: bytes) -> OutboundRequest:
        """The request of one attempt: `timestamp` in Unix seconds, `entropy` as `next_traceparent` takes it."""
        ...

    def read(self, facts: SendFacts) -> SendFacts:
        """What came of an attempt in the terms that the judge knows; of a credential it holds nothing."""
        ...


def prepare(
    destination: Destination, *, user_agent: str, timeout_seconds: float, platforms: Platforms, traces: bool = False
) -> Prepared:
    """Make a destination ready; keep the result until its revision changes.

    `timeout_seconds` is the installation's total timeout, for a destination that has none of its own; with `traces` a
    trace that begins with an attempt is sampled. Raises `ValueError` if the destination's url or secret does not suit
    its transport.
    """
    match destination.transport:
        case Transport.HTTP:
            return http.prepare(destination, user_agent=user_agent, timeout_seconds=timeout_seconds, traces=traces)
        case Transport.TELEGRAM:
            prepare_chat: _PrepareChat = telegram.prepare
        case Transport.DISCORD:
            prepare_chat = discord.prepare
        case transport:
            assert_never(transport)
    return prepare_chat(destination, user_agent=user_agent, timeout_seconds=timeout_seconds, platforms=platforms)


def shown_url(chat: Chat, platforms: Platforms) -> str:
    """The url that messages to a chat are sent to, with stars for the token; it leads where the real one does."""
    if chat.transport is Transport.TELEGRAM:
        return telegram.display_url(platforms)
    return discord.display_url(platforms, chat)


class _PrepareChat(Protocol):
    def __call__(
        self, destination: Destination, *, user_agent: str, timeout_seconds: float, platforms: Platforms
    ) -> Prepared: ...
