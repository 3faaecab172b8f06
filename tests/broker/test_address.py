"""The forms of the broker's url."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.broker import LONGEST_WAIT_SECONDS, Address, AddressRefused, read_address
from relay.broker.client import SOCKET_SECONDS
from tests.support.certificates import issue


def test_a_plain_url_is_a_host_with_the_usual_port() -> None:
    assert read_address("redis://cache") == Address("redis://cache", (("cache", 6379),))


def test_every_part_of_a_url_is_read() -> None:
    read = read_address("redis://rel%40y:p%2Fw@cache:7000/3?stream=relay.second&socket_timeout=30")
    assert (read.hosts, read.database, read.username, read.password) == ((("cache", 7000),), 3, "rel@y", "p/w")
    assert (read.stream, read.socket_timeout, read.tls, read.service) == ("relay.second", 30.0, None, None)


def test_a_password_may_stand_alone() -> None:
    read = read_address("redis://:secret@cache")
    assert (read.username, read.password) == (None, "secret")


def test_an_address_of_six_parts_needs_brackets() -> None:
    assert read_address("redis://[::1]:7000").hosts == (("::1", 7000),)


def test_sentinels_are_named_with_what_they_watch() -> None:
    read = read_address("redis+sentinel://:pw@one,two:26380,[::1]/mymaster/2?sentinel_username=w&sentinel_password=s")
    assert read.hosts == (("one", 26379), ("two", 26380), ("::1", 26379))
    assert (read.service, read.database, read.password) == ("mymaster", 2, "pw")
    assert (read.sentinel_username, read.sentinel_password) == ("w", "s")


@pytest.mark.parametrize("scheme", ["rediss", "rediss+sentinel"])
def test_tls_has_its_files_from_the_url(scheme: str, tmp_path: Path) -> None:
    authority = issue(tmp_path, "cache").authority
    read = read_address(f"{scheme}://cache/1?ssl_ca_certs={authority}&ssl_check_hostname=false&ssl_cert_reqs=none")
    assert read.tls == {"ssl_ca_certs": str(authority), "ssl_check_hostname": False, "ssl_cert_reqs": "none"}


def test_tls_needs_no_options() -> None:
    assert read_address("rediss://cache").tls == {}


def test_no_credential_is_shown() -> None:
    read = read_address("redis+sentinel://user:hunter2@one,two/mymaster/2?sentinel_password=hunter3")
    assert read.shown == "redis+sentinel://one,two/mymaster/2"
    assert "hunter" not in repr(read)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("ssl_ca_certs={key}", "ssl_ca_certs in the broker's url: .* holds no certificate"),
        ("ssl_ca_certs={folder}", "ssl_ca_certs in the broker's url: .* holds no certificate"),
        ("ssl_certfile={authority}&ssl_keyfile={key}", "ssl_certfile in the broker's url: .* is no certificate whose"),
        ("ssl_certfile={authority}", "ssl_certfile in the broker's url: .* is no certificate whose"),
    ],
)
def test_a_file_for_tls_that_is_none_is_named_with_its_option(options: str, why: str, tmp_path: Path) -> None:
    made = issue(tmp_path, "cache")
    with pytest.raises(AddressRefused, match=why):
        read_address("rediss://cache?" + options.format(key=made.key, authority=made.authority, folder=tmp_path))


def test_a_certificate_of_ones_own_comes_with_its_key(tmp_path: Path) -> None:
    made = issue(tmp_path, "cache")
    read = read_address(f"rediss://cache?ssl_certfile={made.certificate}&ssl_keyfile={made.key}")
    assert read.tls == {"ssl_certfile": str(made.certificate), "ssl_keyfile": str(made.key)}


def test_a_scheme_may_be_written_large() -> None:
    assert read_address("REDIS://cache").shown == "redis://cache"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://cache:0", "has port 0"),
        ("cache:6379", "must begin with"),
        ("http://cache", "must begin with"),
        ("redis://", "names no host"),
        ("redis://cache:port", "no host with a port"),
        ("redis://cache:70000", "no host with a port"),
        ("redis://cache/orders", "number of a database"),
        ("redis://cache/1/2", "number of a database"),
        ("redis://one,two", "only if they are Sentinels"),
        ("redis+sentinel://one", "ends in the name"),
        ("redis+sentinel://one/mymaster/x", "number of a database"),
        ("redis://cache?decode_responses=true", "no option"),
        ("redis://cache?ssl_ca_certs=/", "needs TLS"),
        ("rediss://cache?ssl_ca_certs=/nowhere.pem", "does not exist"),
        ("rediss://cache?ssl_check_hostname=perhaps", "no valid value for ssl_check_hostname"),
        ("rediss://cache?ssl_cert_reqs=optional", "no valid value for ssl_cert_reqs"),
        ("redis://cache?stream=", "no valid value for stream"),
        ("redis://cache?socket_timeout=soon", "no valid value for socket_timeout"),
        ("redis://cache?sentinel_password=x", "for urls of Sentinels"),
    ],
)
def test_a_url_that_cannot_be_used_says_why(url: str, why: str) -> None:
    with pytest.raises(AddressRefused, match=why):
        read_address(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:hunter2@cache?x=1",
        "redis://u:hunter2@a,b",
        "redis://:hunter2@",
        *(f"redis://u:9021{cut}hunter2@cache/0" for cut in ["?", "?stream=", "/", "/0?x=", "#", "?hunter2="]),
        "redis://u:9021?x@hunter2&stream=a",
        "redis+sentinel://u:9021?hunter2@one,two/mymaster",
        "redis://cache?Hunter2hunter2",
    ],
)
def test_a_refusal_shows_no_credential(url: str) -> None:
    with pytest.raises(AddressRefused) as refused:
        read_address(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("seconds", ["5", "0.5", "0", "-1", "nan"])
def test_a_socket_timeout_shorter_than_an_idle_read_is_refused(seconds: str) -> None:
    """C135: each idle read would be a fault."""
    with pytest.raises(AddressRefused, match="more than 5 s"):
        read_address(f"redis://cache?socket_timeout={seconds}")


def test_the_socket_timeout_is_longer_than_an_idle_read() -> None:
    """C135."""
    assert SOCKET_SECONDS > LONGEST_WAIT_SECONDS
