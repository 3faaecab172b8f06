"""Claims about the forms of settings, each from its text to its value and back."""

from contextlib import suppress
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.domain.secret import Secret
from relay.settings import Bind, Row, kinds, rows

DECIMAL = kinds.decimal(0, 100)
WHOLE = kinds.whole(1, 100)


def is_refused(kind: kinds.Kind[Any], text: str) -> bool:
    """Whether the kind does not take the text."""
    try:
        kind.parse(text)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("0.0.0.0:0", "0.0.0.0", 0),
        ("localhost:65535", "localhost", 65535),
        ("relay.internal-1.example:80", "relay.internal-1.example", 80),
        ("[::1]:9091", "::1", 9091),
        ("[2001:DB8::0:1]:443", "2001:db8::1", 443),
    ],
)
def test_an_address_to_listen_on_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert kinds.BIND.parse(text) == Bind(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "", "8080", ":8080", "localhost", "localhost:", "localhost:65536", "localhost:-1", "localhost:80a",
        "::1:80", "[::1]", "[::1]80", "[::g]:80", "[]:80", "127.1:80", "256.0.0.1:80", "0177.0.0.1:80",
        "0x7f.1:80", "2130706433:80", "-a:80", "a..b:80", "a b:80", "http://a:80", "a:80/", "a" * 254 + ":80",
        "local\u00adhost:80",
    ],
)  # fmt: skip
def test_what_two_readers_could_take_for_different_addresses_is_refused(text: str) -> None:
    assert is_refused(kinds.BIND, text)


@pytest.mark.parametrize("text", ["127.0.0.1:1", "127.9.9.9:1", "localhost:1", "LOCALHOST:1", "[::1]:1"])
def test_only_this_machine_reaches_a_loopback_address(text: str) -> None:
    assert kinds.BIND.parse(text).is_loopback


@pytest.mark.parametrize("text", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost.example:1"])
def test_every_other_address_counts_as_open(text: str) -> None:
    assert not kinds.BIND.parse(text).is_loopback


@pytest.mark.parametrize("text", ["true", "1", "yes", "on", "TRUE", "On"])
def test_a_switch_is_on(text: str) -> None:
    assert kinds.BOOLEAN.parse(text) is True


@pytest.mark.parametrize("text", ["false", "0", "no", "off", "False"])
def test_a_switch_is_off(text: str) -> None:
    assert kinds.BOOLEAN.parse(text) is False


@pytest.mark.parametrize("text", ["", "2", "y", "enabled", "trueish"])
def test_a_switch_is_never_guessed(text: str) -> None:
    assert is_refused(kinds.BOOLEAN, text)


@pytest.mark.parametrize("text", ["0", "101", "1.0", "1e1", "+5", "-5", "0x10", "1_0", "٣", " 5", "9" * 400])
def test_a_whole_number_is_digits_within_its_bounds(text: str) -> None:
    assert is_refused(WHOLE, text)
    assert (WHOLE.parse("1"), WHOLE.parse("100")) == (1, 100)


@pytest.mark.parametrize("text", ["nan", "inf", "1e2", ".5", "5.", "-0.1", "100.1", "1,5", "1.2.3"])
def test_a_decimal_is_plain_and_finite(text: str) -> None:
    assert is_refused(DECIMAL, text)
    assert (DECIMAL.parse("0"), DECIMAL.parse("0.05"), DECIMAL.parse("100")) == (0, 0.05, 100)


@pytest.mark.parametrize("text", ["", ",", "443,", "*,443", "0", "65536", "80-90", "443;80"])
def test_ports_are_a_list_or_a_star(text: str) -> None:
    if text == "443,":
        assert kinds.PORTS.parse(text) == frozenset({443})
    else:
        assert is_refused(kinds.PORTS, text)


def test_a_star_stands_for_any_port() -> None:
    assert kinds.PORTS.parse("*") is None


def test_networks_are_read_in_both_families() -> None:
    assert kinds.NETWORKS.parse("10.1.0.0/16, fd00::/8,192.0.2.7") == (
        ip_network("10.1.0.0/16"),
        ip_network("fd00::/8"),
        ip_network("192.0.2.7/32"),
    )


@pytest.mark.parametrize("text", ["10.1.2.3/16", "10.0.0.0/33", "example.com", "10.0.0.0/8 fd00::/8"])
def test_a_network_with_host_bits_is_a_slip_and_refused(text: str) -> None:
    assert is_refused(kinds.NETWORKS, text)


@pytest.mark.parametrize("text", ["http://127.0.0.1:8080", "https://relay.example/base/", "http://[::1]:8080"])
def test_a_base_address_loses_its_last_slash_only(text: str) -> None:
    assert kinds.BASE_URL.parse(text) == text.rstrip("/")


@pytest.mark.parametrize(
    "text",
    [
        "relay.example", "ftp://relay.example", "http://", "http://u:p@relay.example", "http://a/?q=1", "http://a/#f",
        "http://a:99999", "http://a b", "http://a\\b", "http://[::1",
    ],
)  # fmt: skip
def test_a_base_address_has_nothing_that_a_path_could_not_follow(text: str) -> None:
    assert is_refused(kinds.BASE_URL, text)


@pytest.mark.parametrize("text", [
        "mysql://db/relay", "db/relay", "host=db password=x", "postgresql://db/a b", "postgresql://u:p@db:s3cr/relay",
        "postgresql://u:s3#cr@db/relay", "postgresql://u:s3/cr@db/relay", "postgresql://u:5?cr@db/relay",
        "postgresql://u:s3@cr@db/relay", "postgresql://db:99999/relay", "postgresql://db:0/relay",
        "postgresql://[::1/relay", "postgresql://::1]/relay", "postgresql://[::x]:5432/relay", "postgresql://[::1]x/relay",
        "postgresql://h1,,h2/relay", "postgresql://db/relay?port=x", "postgresql://h1,h2,h3/relay?port=1,2",
        "postgresql://db/relay?sslmode=maybe", "postgresql://db/relay?target_session_attrs=any-old", "postgresql://db/?x",
        "postgresql://d b/relay", "postgresql://d%zz/relay",
    ],
)  # fmt: skip
def test_a_database_is_named_by_a_url_that_can_be_read(text: str) -> None:
    assert is_refused(kinds.DATABASE_URL, text)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://relay@db/relay", "postgres://relay:a%40b%2Fc@db:6432/relay", "postgresql:///relay",
        "postgresql://h1:5432,h2/relay?target_session_attrs=read-write", "postgresql://[::1]:5432,[fd00::2]/relay",
        "postgresql://u:p@/relay?host=/var/run/postgresql&port=5433", "postgresql://%2Fvar%2Frun/relay",
        "postgresql://h1,h2/relay?port=1,2&sslmode=verify-full", "postgresql://db_1/relay?password=a@b",
    ],
)  # fmt: skip
def test_a_database_may_be_named_in_all_the_ways_of_the_driver(text: str) -> None:
    assert kinds.DATABASE_URL.parse(text).expose() == text


@pytest.mark.parametrize("text", ["short", "A" * 44, "A" * 43 + "==", "A" * 43 + "=" + "A" * 43 + "=", ","])
def test_a_key_that_fernet_would_not_take_is_refused(text: str) -> None:
    assert is_refused(kinds.SECRET_KEYS, text)


def test_keys_keep_their_order_newest_first() -> None:
    newest, older = "B" * 43 + "=", "A" * 43 + "="
    assert kinds.SECRET_KEYS.parse(f"{newest}, {older}") == (Secret(newest), Secret(older))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:hunter2@db/relay", "postgresql://u:***@db/relay"),
        ("postgresql://u:hunter2@h1:5432,h2:5433/relay", "postgresql://u:***@h1:5432,h2:5433/relay"),
        ("postgresql://u:hun@ter/2@db/relay?x=y", "postgresql://u:***@db/relay?x=y"),
        ("postgresql://u@db/relay?password=hunter2&x=y", "postgresql://u@db/relay?password=***&x=y"),
        ("postgresql://u@db/relay?x=y&sslPassword=hunter2", "postgresql://u@db/relay?x=y&sslPassword=***"),
        ("redis://:hunter2@cache:6379/0", "redis://:***@cache:6379/0"),
        ("postgresql://u@db/relay", "postgresql://u@db/relay"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert kinds.mask(url) == shown


@given(st.text(min_size=1).map(lambda text: text.replace("&", "")))
def test_no_password_shows_whatever_it_is_made_of(password: str) -> None:
    marked = f"hunter2{password}hunter2"
    assert "hunter2" not in kinds.mask(f"redis://user:{marked}@cache/0")
    assert "hunter2" not in kinds.mask(f"postgresql://user@db/relay?password={marked}&x=y")


def test_the_home_of_nobody_is_no_path() -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its text is nobody's to read: the setting says what is wanted
        kinds.PATH.parse("~nobody-of-that-name/relay")


@given(st.sampled_from(rows()), st.text())
def test_a_form_takes_a_text_or_refuses_it_but_never_breaks(row: Row, text: str) -> None:
    with suppress(ValueError):
        value = row.kind.parse(text)
        assert row.kind.secret or row.kind.parse(row.kind.show(value)) == value


@pytest.mark.parametrize("row", [row for row in rows() if row.default is not None], ids=lambda row: row.name)
def test_a_default_is_written_as_it_is_shown(row: Row) -> None:
    assert row.kind.show(row.kind.parse(row.default or "")) == row.default
