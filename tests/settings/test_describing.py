"""Claims about how settings are shown."""

from relay.settings import Origin, effective, read, rows

SECRETS = {
    "DATABASE_URL": "postgresql://relay:hunter2@db/relay",
    "RELAY_SECRET_KEYS": "hunter2" * 6 + "A=," + "hunter2" * 6 + "B=",
    "RELAY_BROKER_URL": "redis://:hunter2@cache",
    "RELAY_API_KEY": "hunter2",
    "RELAY_TESTKIT_SECRET": "whsec_hunter2",
}


def test_every_setting_is_shown_with_its_value_and_where_it_came_from() -> None:
    shown = {line.name: line for line in effective(read({"RELAY_BIND": "[::1]:80"}))}
    assert list(shown) == [row.name for row in rows()]
    assert (shown["RELAY_BIND"].value, shown["RELAY_BIND"].origin) == ("[::1]:80", Origin.ENVIRONMENT)
    assert (shown["RELAY_ALLOWED_PORTS"].value, shown["RELAY_ALLOWED_PORTS"].origin) == (
        "443",
        Origin.FOLLOWS,
    )


def test_an_unset_setting_is_shown_as_nothing() -> None:
    shown = {line.name: line.value for line in effective(read({}))}
    assert (shown["RELAY_BROKER_URL"], shown["RELAY_LOG_FORMAT"], shown["DATABASE_URL"]) == ("", "", "")


def test_any_port_is_shown_as_a_star() -> None:
    shown = {line.name: line.value for line in effective(read({"RELAY_ALLOWED_PORTS": "*"}))}
    assert shown["RELAY_ALLOWED_PORTS"] == "*"


def test_what_is_shown_can_be_set_again() -> None:
    settings = read({"RELAY_ALLOWED_PORTS": "8443,443", "RELAY_EGRESS_ALLOW_CIDRS": "fd00::/8", "RELAY_WORKERS": "3"})
    again = read({line.name: line.value for line in effective(settings)})
    assert again == settings


def test_secrets_are_shown_as_stars() -> None:
    settings = read(SECRETS)
    shown = {line.name: line.value for line in effective(settings) if line.name in SECRETS}
    assert shown == {
        "DATABASE_URL": "postgresql://relay:***@db/relay",
        "RELAY_SECRET_KEYS": "***,***",
        "RELAY_BROKER_URL": "redis://:***@cache",
        "RELAY_API_KEY": "***",
        "RELAY_TESTKIT_SECRET": "***",
    }


def test_printing_the_settings_prints_no_secret() -> None:
    settings = read(SECRETS)
    assert "hunter2" not in f"{settings} {settings!r} {effective(settings)}"
