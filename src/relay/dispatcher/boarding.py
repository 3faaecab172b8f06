"""Boarding: from claimed deliveries to flights.

Owns the order of what a claimed delivery must pass: its event is on the quorum, and its endpoint can be sent to. What
fails goes back unsent. Invariant: each delivery of a claim boards or is handed back, whatever happens here.
"""

from __future__ import annotations

from collections.abc import Sequence

from relay.dispatcher.directory import Address, Directory
from relay.dispatcher.flights import Flight
from relay.dispatcher.launcher import LOCAL_DELAY_SECONDS, Launcher
from relay.dispatcher.proof import Proofs
from relay.dispatcher.recorder import Recorder
from relay.domain.ambient import Ambient
from relay.domain.delivery import ClaimedDelivery
from relay.domain.outcome import HandBackReason
from relay.store.queue import Claim

UNPROVEN_DELAY_SECONDS = 0.5
"""How long a delivery waits whose event is not on the quorum yet."""

UNUSABLE_DELAY_SECONDS = 30.0
"""How long a delivery waits whose endpoint cannot be sent to at present."""


class Boarding:
    """Boards for one process."""

    def __init__(
        self,
        *,
        proofs: Proofs,
        directory: Directory,
        launcher: Launcher,
        recorder: Recorder,
        lease_seconds: float,
        ambient: Ambient,
    ) -> None:
        self._proofs = proofs
        self._directory = directory
        self._launcher = launcher
        self._recorder = recorder
        self._lease_seconds = lease_seconds
        self._ambient = ambient
        self._timeline: int | None = None

    async def board(self, claim: Claim, asked_at: float) -> None:
        """Board a claim that was asked for at that moment (monotonic), and launch what can be. Raises
        `StoreUnavailable`."""
        claimed_at = self._ambient.monotonic()
        if claim.numbering.timeline != self._timeline:
            # what is known of endpoints may be what only a lost server had
            self._timeline = claim.numbering.timeline
            self._directory.forget()
        try:
            sendable = await self._proofs.sendable(claim, asked_at)
            addresses = await self._directory.addresses(sendable)
        except Exception:
            self._hand_back(claim.deliveries, HandBackReason.LOCAL, LOCAL_DELAY_SECONDS)
            raise
        except BaseException:
            self.give_up(claim)
            raise
        flights: list[Flight] = []
        unusable: list[ClaimedDelivery] = []
        for delivery in sendable:
            address = addresses[delivery.endpoint_id]
            if isinstance(address, Address):
                flights.append(
                    Flight(
                        delivery, address, asked_at=asked_at, claimed_at=claimed_at, lease_seconds=self._lease_seconds
                    )
                )
            else:
                unusable.append(delivery)
        self._launcher.flights.board(flights, claimed_at)
        self._launcher.flights.lanes.doubt(claim.doubtful)
        self._hand_back(_others(claim, sendable), HandBackReason.QUORUM, UNPROVEN_DELAY_SECONDS)
        self._hand_back(unusable, HandBackReason.LOCAL, UNUSABLE_DELAY_SECONDS)
        self._launcher.launch()

    async def look_ahead(self) -> None:
        """Nothing was there to board: find out what may board later. Raises `StoreUnavailable`."""
        await self._proofs.look_ahead()

    def give_up(self, claim: Claim) -> None:
        """Hand a whole claim back, because this process stops."""
        self._hand_back(claim.deliveries, HandBackReason.DRAINING, 0.0)

    def _hand_back(self, deliveries: Sequence[ClaimedDelivery], reason: HandBackReason, delay_seconds: float) -> None:
        leases = [(delivery.id, delivery.lease_token) for delivery in deliveries]
        if leases:
            self._recorder.hand_back(leases, reason, delay_seconds)


def _others(claim: Claim, sendable: Sequence[ClaimedDelivery]) -> Sequence[ClaimedDelivery]:
    if len(sendable) == len(claim.deliveries):
        return ()
    chosen = {delivery.id for delivery in sendable}
    return [delivery for delivery in claim.deliveries if delivery.id not in chosen]
