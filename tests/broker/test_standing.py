"""What is unread, counted where the server's own `lag` is null or wrong, on real servers of each kind."""

from __future__ import annotations

from relay.broker import Standing
from relay.broker.redis_streams import GROUP, MOST_COUNTED
from tests.broker.grounds import RedisGround, ids

STREAM = "relay.deliveries"


async def test_unread_is_right_after_deletes(redis_ground: RedisGround) -> None:
    """The server's lag is null after them, and all that is acknowledged is deleted."""
    broker = redis_ground.consumer()
    await broker.announce([[each] for each in ids(5)])
    names = [entry.decode() for entry, _ in redis_ground.server.client.xrange(STREAM)]
    await broker.receive(count=1, wait_seconds=0)
    redis_ground.server.client.xdel(STREAM, names[2])
    assert redis_ground.server.client.xinfo_groups(STREAM)[0]["lag"] is None
    assert await broker.standing() == Standing(unread=3, pending=1)


async def test_unread_is_right_after_a_trim(redis_ground: RedisGround) -> None:
    """The server's lag is too large then before 7.4.2."""
    broker = redis_ground.consumer()
    await broker.receive(count=1, wait_seconds=0)
    await broker.announce([[each] for each in ids(5)])
    redis_ground.server.client.xtrim(STREAM, maxlen=2, approximate=False)
    assert await broker.standing() == Standing(unread=2, pending=0)


async def test_unread_is_right_for_a_group_at_an_arbitrary_id(redis_ground: RedisGround) -> None:
    broker = redis_ground.consumer()
    await broker.announce([[each] for each in ids(5)])
    names = [entry.decode() for entry, _ in redis_ground.server.client.xrange(STREAM)]
    redis_ground.server.client.xgroup_create(STREAM, GROUP, names[3])
    assert await broker.standing() == Standing(unread=1, pending=0)


async def test_nothing_is_unread_where_there_is_no_group(redis_ground: RedisGround) -> None:
    broker = redis_ground.consumer()
    await broker.announce([ids(1)])
    redis_ground.server.client.xgroup_create(STREAM, "somebody-else", "0")
    assert await broker.standing() == Standing(unread=0, pending=0)


async def test_unread_is_counted_up_to_a_bound(redis_ground: RedisGround) -> None:
    broker = redis_ground.consumer()
    await broker.receive(count=1, wait_seconds=0)
    await broker.announce([[each] for each in ids(MOST_COUNTED + 5)])
    assert (await broker.standing()).unread == MOST_COUNTED


async def test_the_oldest_unread_message_says_for_how_long_it_stands_there(redis_ground: RedisGround) -> None:
    broker, client = redis_ground.consumer(), redis_ground.server.client
    await broker.receive(count=1, wait_seconds=0)
    assert (await broker.standing()).unread_seconds == 0
    seconds, _ = client.time()
    for ago in (90, 60, 30):
        client.xadd(STREAM, {"ids": ids(1)[0].bytes}, id=f"{(seconds - ago) * 1000}-0")
    await broker.receive(count=1, wait_seconds=0)
    assert 60 <= (await broker.standing()).unread_seconds < 80


async def test_a_message_of_the_time_to_come_stands_there_for_less_than_nothing(redis_ground: RedisGround) -> None:
    """The server's clock was put back: ids go on from the latest."""
    broker, client = redis_ground.consumer(), redis_ground.server.client
    await broker.receive(count=1, wait_seconds=0)
    seconds, _ = client.time()
    client.xadd(STREAM, {"ids": ids(1)[0].bytes}, id=f"{(seconds + 3_600) * 1000}-0")
    assert -3_601 < (await broker.standing()).unread_seconds < -3_500


async def test_the_stream_keeps_nothing_that_was_acknowledged(redis_ground: RedisGround) -> None:
    broker = redis_ground.consumer()
    await broker.announce([[each] for each in ids(2_500)])
    read = await broker.receive(count=2_500, wait_seconds=0)
    await broker.acknowledge([message.id for message in read])
    assert redis_ground.server.client.xlen(STREAM) == 0
    assert await broker.standing() == Standing(unread=0, pending=0)


async def test_an_entry_holds_the_ids_and_nothing_else(redis_ground: RedisGround) -> None:
    await redis_ground.consumer().announce([ids(3)])
    ((_, fields),) = redis_ground.server.client.xrange(STREAM)
    assert fields == {b"ids": b"".join(each.bytes for each in ids(3))}
