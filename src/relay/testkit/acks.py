"""Explicit acks, sent some time after the 2xx.

Owns the calls back to Relay that `/ack-later` promises. Invariant: the work in the background is bounded (so
many acks waiting, so many calls at once, so long for each), every ack ends as sent or as failed with its
cause, and none outlives `close`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from relay.domain.secret import Secret

WAITING = 10_000
AT_ONCE = 8
CALL_SECONDS = 5.0
PAUSES_SECONDS = (0.2, 1.0, 5.0)
"""Before the second, third and fourth try of an ack that Relay could not take."""


@dataclass(frozen=True, slots=True)
class AckCounts:
    """What became of the promised acks."""

    waiting: int
    sent: int
    failed: int
    last_failure: str | None


class Acknowledger:
    """Sends acks to `POST {relay_url}/v1/receipts/{id}/acks`, with the key if one is given."""

    def __init__(
        self,
        relay_url: str,
        api_key: Secret | None = None,
        *,
        waiting: int = WAITING,
        pauses: Sequence[float] = PAUSES_SECONDS,
    ) -> None:
        self._relay_url = relay_url.rstrip("/")
        self._authorization = {} if api_key is None else {"authorization": f"Bearer {api_key.expose()}"}
        self._most = waiting
        self._pauses = pauses
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls = asyncio.Semaphore(AT_ONCE)
        self._client: httpx.AsyncClient | None = None
        self._sent = 0
        self._failed = 0
        self._last_failure: str | None = None

    def promise(self, receipt_id: str, delivery_id: str, seconds: float) -> bool:
        """Ack the delivery after so many seconds. False, and no ack, where too many are waiting already."""
        if len(self._tasks) >= self._most:
            return False
        task = asyncio.create_task(self._keep_promise(receipt_id, delivery_id, seconds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    def counts(self) -> AckCounts:
        """How many acks wait, were taken by Relay, and failed for good."""
        return AckCounts(len(self._tasks), self._sent, self._failed, self._last_failure)

    async def settle(self) -> None:
        """Wait until every ack that was promised is sent or has failed."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Give up the acks that still wait, and close the connections."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    async def _keep_promise(self, receipt_id: str, delivery_id: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        for pause in (*self._pauses, None):
            async with self._calls:
                trouble, is_worth_retrying = await self._call(receipt_id, delivery_id)
            if trouble is None:
                self._sent += 1
                return
            self._last_failure = trouble
            if pause is None or not is_worth_retrying:
                break
            await asyncio.sleep(pause)
        self._failed += 1

    async def _call(self, receipt_id: str, delivery_id: str) -> tuple[str | None, bool]:
        """One call: its trouble (None if Relay took the ack), and whether another try may end better."""
        if self._client is None:
            # Environment proxies have no say in where an ack goes.
            self._client = httpx.AsyncClient(timeout=CALL_SECONDS, trust_env=False, headers=self._authorization)
        url = f"{self._relay_url}/v1/receipts/{receipt_id}/acks"
        try:
            response = await self._client.post(url, json={"delivery_id": delivery_id})
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}", True
        if response.is_success:
            return None, False
        return f"status {response.status_code}: {response.text[:200]}", response.status_code >= 500
