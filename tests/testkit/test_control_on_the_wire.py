"""Claims about what the receiver tells of itself: `/received`, `/secret`, and what `/verify` makes of it."""

import hashlib
import hmac
import json
import socket
import time
import uuid
from datetime import UTC, datetime

import httpx
import pytest

from tests.support.receiver import Receiver

SECRET = "whsec_bm90IGEgc2VjcmV0"
DELIVERY = str(uuid.UUID(int=7))


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    timestamp = str(int(time.time()))
    signature = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Relay-Delivery-Id": DELIVERY, "Relay-Timestamp": timestamp, "Relay-Signature": f"v1={signature}"}


def arrivals(client: httpx.Client, **options: str) -> list[dict[str, object]]:
    response = client.get("/received", params=options)
    assert response.status_code == 200, response.text
    data: list[dict[str, object]] = response.json()["data"]
    return data


def numbers(client: httpx.Client, **options: str) -> list[object]:
    return [arrival["number"] for arrival in arrivals(client, **options)]


def test_what_arrived_can_be_asked_for(client: httpx.Client) -> None:
    body = b'{"n": 1.00, "n": 2}'
    headers = {"Relay-Delivery-Id": DELIVERY, "Relay-Receipt-Id": "rcp_a", "Relay-Event-Id": "evt_b", "X-Custom": "c"}
    client.post("/status/503/ledger-writer?tenant=a", content=body, headers=headers)
    (arrival,) = arrivals(client)

    assert {name: arrival[name] for name in ("number", "method", "path", "query", "size", "sha256", "status")} == {
        "number": 1,
        "method": "POST",
        "path": "/status/503/ledger-writer",
        "query": "tenant=a",
        "size": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "status": 503,
    }
    assert (arrival["delivery_id"], arrival["receipt_id"], arrival["event_id"]) == (DELIVERY, "rcp_a", "evt_b")
    assert isinstance(arrival["headers"], dict)
    assert arrival["headers"]["x-custom"] == "c"


def test_an_arrival_bears_its_time_in_utc(client: httpx.Client) -> None:
    before = time.time()
    client.post("/ok")
    at = datetime.fromisoformat(str(arrivals(client)[0]["at"]))

    assert at.tzinfo is UTC
    assert before - 0.001 <= at.timestamp() <= time.time()


def test_a_header_that_came_twice_is_named(client: httpx.Client) -> None:
    client.post("/ok", headers=[("X-A", "1"), ("X-A", "2"), ("X-B", "3")])
    (arrival,) = arrivals(client)

    assert arrival["repeated_headers"] == ["x-a"]
    assert isinstance(arrival["headers"], dict)
    assert arrival["headers"]["x-a"] == "1, 2"


def test_headers_can_be_left_out(client: httpx.Client) -> None:
    client.post("/ok")

    assert "headers" not in arrivals(client, headers="0")[0]


def test_deliveries_are_counted_by_their_id(client: httpx.Client) -> None:
    for _ in range(3):
        client.post("/always500", headers={"Relay-Delivery-Id": DELIVERY})
    client.post("/ok")

    assert client.get("/received").json()["counts"] == {DELIVERY: 3}
    assert client.get("/received/counts").json() == {
        "total": 4,
        "distinct": 1,
        "forgotten": 0,
        "duplicates": 2,
        "counts": {DELIVERY: 3},
    }


def test_arrivals_can_be_narrowed_to_a_path_or_a_delivery(client: httpx.Client) -> None:
    client.post("/ok/a", headers={"Relay-Delivery-Id": "one"})
    client.post("/ok/b", headers={"Relay-Delivery-Id": "two"})

    assert numbers(client, path="/ok/b") == numbers(client, delivery_id="two") == [2]


def test_since_a_number_means_after_it(client: httpx.Client) -> None:
    for _ in range(3):
        client.post("/ok")

    assert numbers(client, since="1") == [2, 3]
    assert numbers(client, since="0", limit="2") == [1, 2]
    assert client.get("/received?limit=2").json()["next_since"] == 2


def test_since_an_instant_means_from_it_on_however_it_is_written() -> None:
    instants = iter((1_764_474_000.0, 1_764_474_001.5))
    with Receiver(clock=lambda: next(instants)) as receiver, httpx.Client(base_url=receiver.url("")) as client:
        client.post("/ok")
        client.post("/ok")

        assert numbers(client, since="2025-11-30T03:40:01Z") == [2]
        assert numbers(client, since="2025-11-30T03:40:01") == [2]
        assert client.get("/received?since=2025-11-30T04:40:01+01:00").json()["data"][0]["number"] == 2
        assert numbers(client, since="1764474001.5") == numbers(client, since="1764474001500") == [2]


@pytest.mark.parametrize("query", ["since=yesterday", "limit=-1", "limit=x", "headers=2", "pathh=/ok", "since=nan"])
def test_an_option_that_makes_no_sense_is_refused(client: httpx.Client, query: str) -> None:
    response = client.get(f"/received?{query}")

    assert response.status_code == 400
    assert response.json()["code"] == "bad_option"


def test_an_unknown_option_is_answered_with_the_known_ones(client: httpx.Client) -> None:
    assert "delivery_id" in client.get("/received?delivery=1").json()["detail"]


def test_deleting_starts_everything_over(client: httpx.Client) -> None:
    client.post("/toggle")
    assert client.delete("/received").status_code == 204

    assert client.get("/received").json()["total"] == 0
    assert client.post("/toggle").status_code == 200
    assert numbers(client) == [1]


def test_a_long_record_is_one_valid_document(client: httpx.Client) -> None:
    for number in range(120):
        client.post("/ok", headers={"Relay-Delivery-Id": str(number)})
    document = client.get("/received").json()

    assert [arrival["number"] for arrival in document["data"]] == list(range(1, 121))
    assert document["counts"] == {str(number): 1 for number in range(120)}


def test_deliveries_are_answered_while_a_long_record_is_read(
    receiver: Receiver, client: httpx.Client, connection: socket.socket
) -> None:
    for _ in range(300):
        client.post("/ok", headers={"X-Padding": "x" * 4000})
    # Over a megabyte, of which this reader takes nothing yet.
    connection.sendall(b"GET /received HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert client.post("/ok").status_code == 200
    received = b""
    while piece := connection.recv(65536):
        received += piece

    assert received.endswith(b"0\r\n\r\n")
    assert len(receiver.received()) == 301


def test_the_bytes_of_a_delivery_are_kept_where_its_url_says_so() -> None:
    body = bytes(range(256))
    with Receiver() as receiver, httpx.Client(base_url=receiver.url("")) as client:
        client.post("/ok?body=1", content=b"first", headers={"Relay-Delivery-Id": DELIVERY})
        client.post("/ok?body=1", content=body, headers={"Relay-Delivery-Id": DELIVERY})
        response = client.get(f"/received/{DELIVERY}/body")

    assert response.content == body
    assert response.headers["content-type"] == "application/octet-stream"


def test_the_bytes_of_an_unknown_delivery_are_404(client: httpx.Client) -> None:
    assert client.get(f"/received/{DELIVERY}/body").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("POST", "/received", "GET, DELETE"), ("GET", "/secret", "POST, DELETE"), ("POST", "/", "GET")],
)
def test_a_method_that_a_path_does_not_take_is_405(client: httpx.Client, method: str, path: str, allowed: str) -> None:
    response = client.request(method, path)

    assert (response.status_code, response.headers["allow"]) == (405, allowed)


def test_a_posted_secret_lets_its_deliveries_pass(client: httpx.Client) -> None:
    body = json.dumps({"amount": 4999}).encode()

    assert client.post("/verify", content=body, headers=signed(body)).json()["code"] == "secret_missing"
    assert client.post("/secret", content=f"{SECRET}\n".encode()).status_code == 204
    assert client.post("/verify", content=body, headers=signed(body)).status_code == 200


def test_the_record_says_why_a_delivery_was_refused(client: httpx.Client) -> None:
    client.post("/secret", content=b"another")
    client.post("/verify", content=b"{}", headers=signed(b"{}"))

    assert [(a["status"], a["refusal"]) for a in arrivals(client)] == [(401, "signature_mismatch")]


def test_a_named_secret_counts_at_its_own_path_alone(client: httpx.Client) -> None:
    client.post("/secret", content=b"everyone's")
    client.post("/secret/mailer", content=SECRET.encode())
    verdicts = [
        client.post(path, content=b"{}", headers=signed(b"{}", secret)).status_code
        for path in ("/verify", "/verify/mailer")
        for secret in ("everyone's", SECRET)
    ]

    assert verdicts == [200, 401, 401, 200]


def test_a_deleted_secret_does_not_count_any_more(client: httpx.Client) -> None:
    client.post("/secret", content=SECRET.encode())
    client.delete("/secret")

    assert client.post("/verify", content=b"{}", headers=signed(b"{}")).json()["code"] == "secret_missing"


@pytest.mark.parametrize("text", [b"", b" \n", b"two words", b"x" * 513, "ä".encode(), b"a\x00b"])
def test_what_is_no_secret_is_refused(client: httpx.Client, text: bytes) -> None:
    assert client.post("/secret", content=text).status_code == 400


def test_the_receiver_never_shows_a_secret(client: httpx.Client) -> None:
    client.post("/secret", content=SECRET.encode())
    client.post("/verify", content=b"{}", headers=signed(b"{}"))

    for path in ("/", "/received", "/received/counts"):
        assert SECRET not in client.get(path).text


def test_the_receiver_for_tests_trusts_what_it_is_given(receiver: Receiver, client: httpx.Client) -> None:
    receiver.trust(SECRET)

    assert client.post("/verify", content=b"{}", headers=signed(b"{}")).status_code == 200


def test_waiting_for_more_than_arrives_fails_and_says_how_much_did(receiver: Receiver, client: httpx.Client) -> None:
    client.post("/ok/a")

    with pytest.raises(AssertionError, match="1 of 2 arrived at /ok/a"):
        receiver.wait_for(2, 0.05, path="/ok/a")


async def test_arrivals_can_be_awaited(receiver: Receiver) -> None:
    async with httpx.AsyncClient() as client:
        await client.post(receiver.url("/ok/b"), content=b"1")
        arrived = await receiver.arrive(1, 5.0, path="/ok/b")

    assert [arrival.body for arrival in arrived] == [b"1"]
