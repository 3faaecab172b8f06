"""Claims about what the receivers of a load do."""

from __future__ import annotations

import pytest

from relay.loadtest.receivers import ALL_WELL, Receivers, Share, read_share


def test_receivers_that_are_well_ask_for_the_plain_sink() -> None:
    assert (ALL_WELL.arguments(), ALL_WELL.told()) == ((), "")


def test_dead_endpoints_alone_leave_the_sink_plain() -> None:
    assert Receivers(dead=0.5).arguments() == ()


@pytest.mark.parametrize(("share", "number"), [(0.0, 0), (0.1, 10), (0.25, 25), (0.99, 99)])
def test_the_wanted_share_of_endpoints_is_dead_and_never_the_first(share: float, number: int) -> None:
    receivers = Receivers(dead=share)
    dead = [place for place in range(100) if receivers.is_dead(place)]
    assert len(dead) == number
    assert 0 not in dead


@pytest.mark.parametrize(
    "shares",
    [
        {"failing": -0.1},
        {"failing": 0.6, "slow": Share(0.5, 1)},
        {"throttled": Share(1.1, 1)},
        {"dead": 1.0},
        {"dead": -0.1},
    ],
)
def test_shares_that_cannot_be_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"cannot|must live"):
        Receivers(**shares)  # type: ignore[arg-type]  # each name has its own type


def test_a_share_is_read_with_its_seconds() -> None:
    assert read_share("0.05:2") == Share(0.05, 2)


@pytest.mark.parametrize("text", ["0.05", "", "a:b", "0.05:"])
def test_a_share_without_seconds_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"SHARE:SECONDS|convert"):
        read_share(text)
