"""Claims about every call that takes a body, whichever it is: what it may be, and how much of it there may be."""

from __future__ import annotations

import pytest

from tests.api.description import operations
from tests.api.world import MAX_BODY_BYTES, World
from tests.support.asgi import Reply, call

PLACES = {
    "{type}": "invoice.paid",
    "{version}": "v1",
    "/tenants/{id}": f"/tenants/acct_{'1' * 32}",
    "/endpoints/{id}": f"/endpoints/ep_{'1' * 32}",
    "/receipts/{id}": f"/receipts/rcp_{'1' * 32}",
    "/sources/{id}": f"/sources/src_{'1' * 32}",
    "/deliveries/{id}": "/deliveries/11111111-1111-1111-1111-111111111111",
}
WITH_A_BODY = {name for name, operation in operations().items() if "requestBody" in operation}
LIMITS = {"post_batch": 4 * MAX_BODY_BYTES}

each_call = pytest.mark.parametrize("name", sorted(WITH_A_BODY))


async def ask(world: World, name: str, body: bytes | list[bytes], content_type: str = "application/json") -> Reply:
    """Make a call by its name in the description, about things that there are not."""
    operation = operations()[name]
    path = operation["path"]
    for place, value in PLACES.items():
        path = path.replace(place, value)
    assert "{" not in path, path
    headers = [("Content-Type", content_type)]
    return await call(
        world.app, operation["method"], path, headers=headers, body=body, declared=isinstance(body, bytes)
    )


@each_call
@pytest.mark.parametrize(
    ("content_type", "body", "status", "code"),
    [
        ("application/json; charset=test", b"{}", 415, "content_type"),
        ("application/json; charset=utf-16", '{"type":"a"}'.encode("utf-16"), 415, "content_type"),
        ("application/json; charset=latin-1", b'{"type":"\xe9"}', 415, "content_type"),
        ("application/json; charset=utf-8", b'{"type":"\xff"}', 400, "malformed"),
        ("application/json; charset=UTF-8", b'\xef\xbb\xbf{"type":"a"}', 400, "malformed"),
        ("application/json", '{"type":"a"}'.encode("utf-16"), 400, "malformed"),
    ],
)
async def test_a_body_is_utf_8_without_a_byte_order_mark(
    shared_world: World, name: str, content_type: str, body: bytes, status: int, code: str
) -> None:
    """Case C147: another charset is 415, whether it exists or not; bytes that are no UTF-8, and a mark, are 400."""
    reply = await ask(shared_world, name, body, content_type)
    assert (reply.status, reply.code) == (status, code)


@each_call
@pytest.mark.parametrize("content_type", ["multipart/form-data; boundary=zz", "application/x-www-form-urlencoded"])
async def test_a_form_is_refused_unread(shared_world: World, name: str, content_type: str) -> None:
    """Case C151: nothing of it is parsed, nor waited for: the answer ends the connection."""
    for body in ([b"no boundary\r\n" * 500, b"never"], b"&" * 1_000_000):
        reply = await ask(shared_world, name, body, content_type)
        assert (reply.status, reply.code, reply.headers["connection"]) == (415, "content_type", "close")


@each_call
@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_of_exactly_the_limit_is_read_and_a_byte_more_is_not(
    shared_world: World, name: str, declared: bool
) -> None:
    """Case C149: on every call, with a length and in chunks alike, and the limit stands in the answer."""
    limit = LIMITS.get(name, MAX_BODY_BYTES)
    for size, is_read in ((limit, True), (limit + 1, False)):
        text = b"x" * size
        reply = await ask(shared_world, name, text if declared else [text[:-1], text[-1:]])
        assert (reply.status, reply.code) == ((400, "malformed") if is_read else (413, "payload_too_large"))
        assert is_read or reply.json()["limit_bytes"] == limit
