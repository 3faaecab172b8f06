"""The pruner as one of a dispatcher's loops."""

from __future__ import annotations

from relay.domain.telemetry import Loop, LoopSucceeded
from tests.support.dispatching import House


async def test_a_dispatcher_removes_the_names_whose_time_is_over(house: House) -> None:
    await house.execute(
        "insert into idempotency_keys (tenant, source, key, fingerprint, receipt_id, journal_day, answer_head,"
        " answer_tail, expires_at) select 'acct_default', 'anonymous', 'k' || n, '', gen_random_uuid(), current_date,"
        " '', '', now() - interval '1 second' from generate_series(1, 1500) as n"
    )
    await house.execute(
        "insert into request_keys (tenant, key, fingerprint, expires_at) values ('acct_default', 'k', '', now())"
    )
    await house.execute(
        "insert into signed_requests (tenant, source, digest, fingerprint, expires_at)"
        " values ('acct_default', 'billing', '', '', now())"
    )
    async with house.dispatching():
        await house.until(
            lambda: sum(each.handled for each in house.heard(LoopSucceeded) if each.loop is Loop.PRUNER) == 1502
        )
