"""Claims about what another program sees on its connection, mode by mode."""

import gzip
import http.client
import socket
import ssl
import time

import httpx
import pytest

from tests.support.receiver import Receiver
from tests.testkit.conftest import WITHIN


def post(path: str, body: bytes = b"{}") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: receiver\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(body), body)


def read_until(connection: socket.socket, end: bytes) -> bytes:
    received = b""
    while end not in received:
        piece = connection.recv(65536)
        assert piece, received
        received += piece
    return received


def read_until_reset(connection: socket.socket) -> bytes:
    received = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            return received
        assert piece, "the connection was closed in good order"
        received += piece


def test_slow_answers_not_before_its_time(client: httpx.Client) -> None:
    began = time.monotonic()
    response = client.post("/slow?ms=60&status=201")

    assert response.status_code == 201
    assert time.monotonic() - began >= 0.06


def test_a_connection_is_kept_from_one_answer_to_the_next(connection: socket.socket) -> None:
    for _ in range(3):
        connection.sendall(post("/ok"))
        assert read_until(connection, b"\r\n\r\nok\n").startswith(b"HTTP/1.1 200 ")


def test_requests_in_one_piece_are_answered_in_their_order(connection: socket.socket) -> None:
    connection.sendall(post("/status/201") + post("/slow?ms=30&status=202") + post("/status/203"))
    received = read_until(connection, b"203 Non-Authoritative Information\n")

    assert [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]] == [201, 202, 203]


def test_bigbody_is_as_long_as_it_says(client: httpx.Client) -> None:
    response = client.post("/bigbody?kb=300")

    assert len(response.content) == int(response.headers["content-length"]) == 300 * 1024


def test_a_reader_that_leaves_a_big_body_does_not_stop_the_others(
    receiver: Receiver, connection: socket.socket, client: httpx.Client
) -> None:
    connection.sendall(post(f"/bigbody?kb={64 * 1024}"))
    read_until(connection, b"\r\n\r\n")
    connection.close()

    assert client.post("/ok").status_code == 200
    assert [arrival.status for arrival in receiver.wait_for(2, WITHIN)] == [200, 200]


def test_gzipbomb_is_small_and_unpacks_to_its_size(client: httpx.Client) -> None:
    with client.stream("POST", "/gzipbomb?mb=8") as response:
        packed = b"".join(response.iter_raw())

    assert response.headers["content-encoding"] == "gzip"
    assert len(packed) == int(response.headers["content-length"]) < 16 * 1024
    assert gzip.decompress(packed) == bytes(8 * 1024 * 1024)


def test_trickle_says_200_and_then_drips_for_ever(connection: socket.socket) -> None:
    connection.sendall(post("/trickle?ms=1"))

    assert read_until(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    assert read_until(connection, b"1\r\n.\r\n" * 2).count(b".") >= 2
    # Twenty drops more, and still no last chunk.
    dripped = b""
    while dripped.count(b".") < 20:
        dripped += connection.recv(65536)
    assert b"0\r\n\r\n" not in dripped


def test_hang_reads_the_request_and_never_answers(receiver: Receiver, connection: socket.socket) -> None:
    connection.sendall(post("/hang", b"held"))
    (arrival,) = receiver.wait_for(1, WITHIN)
    connection.settimeout(0.1)

    assert (arrival.body, arrival.status) == (b"held", None)
    with pytest.raises(TimeoutError):
        connection.recv(1)


def test_reset_breaks_off_in_the_middle_of_a_response(connection: socket.socket) -> None:
    connection.sendall(post("/reset"))
    head, _, body = read_until_reset(connection).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200 ")
    assert 0 < len(body) < int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])


def test_reset_can_come_before_the_first_byte(connection: socket.socket) -> None:
    connection.sendall(post("/reset?at=start"))

    assert read_until_reset(connection) == b""


def test_redirect_leads_where_it_is_told_to(client: httpx.Client) -> None:
    response = client.post("/redirect?to=http://127.0.0.1:1/x&status=307")

    assert (response.status_code, response.headers["location"]) == (307, "http://127.0.0.1:1/x")


def test_429_bears_the_retry_after_that_is_asked_for(client: httpx.Client) -> None:
    response = client.post("/429?retry_after=17")

    assert (response.status_code, response.headers["retry-after"]) == (429, "17")


def test_toggle_counts_each_path_by_itself(client: httpx.Client) -> None:
    paths = ["/toggle/a", "/toggle/a", "/toggle/b", "/toggle/a"]

    assert [client.post(path).status_code for path in paths] == [200, 500, 200, 200]


@pytest.mark.parametrize("path", ["/status/204", "/status/304"])
def test_an_answer_without_a_body_leaves_the_connection_usable(connection: socket.socket, path: str) -> None:
    connection.sendall(post(path) + post("/ok"))
    received = read_until(connection, b"\r\n\r\nok\n")

    assert received.count(b"HTTP/1.1 ") == 2
    assert received.endswith(b"\r\n\r\nok\n")


def test_a_bad_option_is_answered_with_what_would_do(client: httpx.Client) -> None:
    response = client.post("/slow?ms=soon")

    assert response.status_code == 400
    assert response.headers["content-type"] == "application/problem+json"
    assert "ms" in response.json()["detail"]


def test_an_unknown_mode_is_404_and_not_recorded(receiver: Receiver, client: httpx.Client) -> None:
    assert client.post("/nonsense").status_code == 404
    assert client.post("/ok").status_code == 200
    assert [arrival.path for arrival in receiver.received()] == ["/ok"]


def test_the_front_page_names_every_mode(client: httpx.Client) -> None:
    page = client.get("/").text

    for mode in ("ok", "verify", "always500", "status", "slow", "flaky", "429", "bigbody", "trickle", "hang", "reset",
                 "redirect", "gzipbomb", "toggle", "ack-later"):  # fmt: skip
        assert f"/{mode}" in page


def test_a_body_in_chunks_arrives_whole(receiver: Receiver, client: httpx.Client) -> None:
    pieces = [bytes([number]) * 40_000 for number in range(10)]
    client.post("/ok", content=iter(pieces))

    assert receiver.bodies() == [b"".join(pieces)]


def test_a_request_that_breaks_off_is_counted_and_not_recorded(
    receiver: Receiver, connection: socket.socket, client: httpx.Client
) -> None:
    connection.sendall(b"POST /ok HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
    connection.close()
    deadline = time.monotonic() + WITHIN
    while (answer := client.get("/received").json())["incomplete"] == 0:
        assert time.monotonic() < deadline

    assert (answer["total"], answer["incomplete"], receiver.received()) == (0, 1, [])


def test_a_body_beyond_all_measure_is_refused(connection: socket.socket) -> None:
    connection.sendall(b"POST /ok HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"1000000\r\n" + bytes(16 * 1024 * 1024) + b"\r\n"
    for _ in range(4):
        connection.sendall(chunk)
    connection.sendall(b"1\r\nx\r\n")

    assert read_until(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 413 ")


def test_with_a_certificate_it_speaks_https_and_resets_there_too() -> None:
    with Receiver(tls=True) as secure:
        context = ssl.create_default_context(cafile=secure.ca_file)
        assert httpx.post(secure.url("/ok"), verify=context, trust_env=False, timeout=WITHIN).status_code == 200
        broken = http.client.HTTPSConnection("localhost", secure.port, timeout=WITHIN, context=context)
        broken.request("POST", "/reset", b"{}")
        with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
            broken.getresponse().read()
        broken.close()


def test_it_stops_at_once_whatever_is_held_open() -> None:
    with Receiver() as running:
        held = [socket.create_connection(("127.0.0.1", running.port), timeout=WITHIN) for _ in range(4)]
        for connection, path in zip(held, ["/hang", "/trickle?ms=600000", "/slow?ms=600000", "/ok"], strict=True):
            connection.sendall(post(path))
        running.wait_for(4, WITHIN)
        began = time.monotonic()
    assert time.monotonic() - began < WITHIN
    for connection in held:
        connection.close()


def test_it_stops_although_a_request_never_gets_complete() -> None:
    with Receiver() as running, socket.create_connection(("127.0.0.1", running.port), timeout=WITHIN) as connection:
        connection.sendall(post("/ok") + b"POST /ok HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
        read_until(connection, b"\r\n\r\nok\n")
        began = time.monotonic()
        running.close()
        assert time.monotonic() - began < WITHIN
        assert connection.recv(1) == b""
