"""Whether an endpoint could be reached: its name, its addresses, a connection and its certificate.

Owns the look, which ends before a request would begin: not a byte of HTTP is sent. It judges as sending does, by the
same policy, resolver and authorities. Invariant: an address that was not judged is not dialled.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial

from relay.domain.egress import EgressPolicy, Refusal, Target, check_url, judge_address, judge_all
from relay.sender.authorities import find
from relay.sender.limits import SendLimits
from relay.sender.resolver import Answer, Resolver
from relay.sender.wire import OnFault

CLOSING_SECONDS = 0.5
"""How long an endpoint may take to say goodbye; nothing depends on it."""


class Probe:
    """Looks at endpoints. All of it belongs to the running loop; `close` it at the end. Raises `NoAuthorities`."""

    def __init__(
        self, *, policy: EgressPolicy, limits: SendLimits, clock: Callable[[], float], on_fault: OnFault
    ) -> None:
        self._policy = policy
        self._limits = limits
        self._tls = ssl.create_default_context(cafile=str(find(limits.ca_file)))
        self._resolver = Resolver(
            asyncio.get_running_loop(),
            limits=limits.resolver,
            judge=partial(judge_all, policy),
            clock=clock,
            on_fault=on_fault,
        )

    async def look(self, url: str) -> str | None:
        """Why the endpoint at that url cannot be reached, in words; None if it can."""
        target = check_url(self._policy, url)
        if isinstance(target, Refusal):
            return target.detail
        try:
            async with asyncio.timeout(self._limits.connect_seconds):
                if target.address is not None:
                    return await self._connect(target, str(target.address))
                answer = await self._resolve(target.host)
                if answer.refusal is not None:
                    return answer.refusal.detail
                if answer.error is not None:
                    return answer.detail or str(answer.error)
                return await self._connect(target, *answer.addresses)
        except TimeoutError:
            return f"no connection within {self._limits.connect_seconds:g} s"

    def close(self) -> None:
        """Stop looking names up."""
        self._resolver.close()

    async def _resolve(self, name: str) -> Answer:
        known = self._resolver.known(name)
        if known is not None:
            return known
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def take(answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._resolver.resolve(name, take, self._limits.connect_seconds)
        return await answered

    async def _connect(self, target: Target, *addresses: str) -> str | None:
        """Connect to the first address that answers; why none did, otherwise."""
        fault = "there is no address"
        for address in addresses:
            refusal = judge_address(self._policy, address, target.port)
            if refusal is not None:
                return refusal.detail
            try:
                _, writer = await asyncio.open_connection(
                    address,
                    target.port,
                    ssl=self._tls if target.scheme == "https" else None,
                    server_hostname=target.host if target.scheme == "https" else None,
                )
            except ssl.SSLCertVerificationError as refused:
                fault = f"its certificate is not accepted: {refused.verify_message}"
            except ssl.SSLError as refused:
                fault = f"no TLS with it: {refused.reason or refused}"
            except OSError as refused:
                fault = f"no connection to port {target.port}: {refused.strerror or refused}"
            else:
                await _leave(writer)
                return None
        return fault


async def _leave(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        async with asyncio.timeout(CLOSING_SECONDS):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()
