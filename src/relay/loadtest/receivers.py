"""What the receivers of a load do: how many of them fail, how often, and how.

Owns the shares and what the sink is told of them. Invariant: without any share the sink is the plain one, which says
200 to everything and costs next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """A share (0 to 1) of all requests, and the seconds that go with what becomes of them."""

    share: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Receivers:
    """Of all requests, `failing` get a 500, `throttled` a 429 that asks to wait so long, `slow` a 200 after so long; of
    all endpoints, `dead` refuse connections. Chance has a seed, so that a run can be repeated."""

    failing: float = 0.0
    throttled: Share = Share()
    slow: Share = Share()
    dead: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises `ValueError` for shares that are none."""
        shares = (self.failing, self.throttled.share, self.slow.share)
        if min(shares) < 0 or sum(shares) > 1:
            raise ValueError("of all requests so large a share cannot fail, be throttled or slow")
        if not 0 <= self.dead < 1:
            raise ValueError("at least one endpoint must live")

    @property
    def answer_alike(self) -> bool:
        """Whether every request gets a 200 at once."""
        return not (self.failing or self.throttled.share or self.slow.share)

    def arguments(self) -> tuple[str, ...]:
        """What a sink that stands for them is started with."""
        if self.answer_alike:
            return ()
        return (
            *("--fail", str(self.failing), "--seed", str(self.seed)),
            *("--throttle", f"{self.throttled.share}:{self.throttled.seconds}"),
            *("--slow", f"{self.slow.share}:{self.slow.seconds}"),
        )

    def is_dead(self, place: int) -> bool:
        """Whether the endpoint in this place refuses connections: spread evenly, and never the first one."""
        return int((place + 1) * self.dead) > int(place * self.dead)

    def told(self) -> str:
        """The same for a person; nothing for those that only say 200."""
        parts = [
            (self.failing, f"{self.failing:.1%} of requests get a 500"),
            (self.throttled.share, f"{self.throttled.share:.1%} a 429 for {self.throttled.seconds:g} s"),
            (self.slow.share, f"{self.slow.share:.1%} an answer after {self.slow.seconds:g} s"),
            (self.dead, f"{self.dead:.1%} of endpoints refuse connections"),
        ]
        return ", ".join(text for share, text in parts if share)


ALL_WELL = Receivers()


def read_share(text: str) -> Share:
    """Read `SHARE:SECONDS`. Raises `ValueError`."""
    share, colon, seconds = text.partition(":")
    if not colon:
        raise ValueError(f"{text!r} is not of the form SHARE:SECONDS, as 0.05:2")
    return Share(float(share), float(seconds))
