"""The retry rule of the installation, from the environment to what an endpoint sees."""

from __future__ import annotations

from tests.support.installation import Installation, add_endpoint, eventually
from tests.support.producer import Producer, numbered
from tests.support.receiver import Receiver

DEADLINE = 60.0


async def test_the_settings_rule_for_endpoints_without_a_rule_of_their_own(
    installation: Installation, receiver: Receiver
) -> None:
    gateway = installation.gateway()
    installation.dispatcher(
        retry_max_attempts="3", retry_base_secs="0.4", retry_max_secs="0.8", retry_window_secs="60", retry_jitter="0"
    )
    add_endpoint(gateway, receiver.url("/always500/plain"), name="plain")
    add_endpoint(gateway, receiver.url("/always500/own"), name="own", retry={"max_attempts": 2})
    await Producer([gateway.url]).post(numbered(1), DEADLINE)

    async def both_dead() -> bool:
        return bool(await installation.value("select count(*) = 2 from deliveries where status = 'dead'"))

    await eventually(both_dead, DEADLINE, "both endpoints have had all their attempts")
    tried = await installation.fetch(
        "select e.name, a.at from delivery_attempts a join deliveries d on d.id = a.delivery_id"
        " join endpoints e on e.id = d.endpoint_id order by a.at"
    )
    plain = [row["at"] for row in tried if row["name"] == "plain"]
    own = [row["at"] for row in tried if row["name"] == "own"]
    assert (len(plain), len(own)) == (3, 2)
    for gap, planned in ((plain[1] - plain[0], 0.4), (plain[2] - plain[1], 0.8), (own[1] - own[0], 0.4)):
        assert planned <= gap.total_seconds() < planned + 5.0
    reasons = await installation.fetch("select distinct dead_reason::text from deliveries")
    assert [row["dead_reason"] for row in reasons] == ["exhausted"]
