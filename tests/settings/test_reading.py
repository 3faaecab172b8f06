"""Claims about reading the environment: what is taken, what is refused, and in which words."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.domain.backoff import RetryPolicy
from relay.domain.secret import Secret
from relay.settings import (
    LogFormat,
    Origin,
    Settings,
    SettingsError,
    cautions,
    check_database,
    read,
    rows,
)

KEY = "A" * 43 + "="


def faults(environ: dict[str, str]) -> dict[str, str]:
    """What is wrong with an environment that has to be refused, by variable."""
    with pytest.raises(SettingsError) as refused:
        read(environ)
    return {fault.name: fault.detail for fault in refused.value.faults}


def test_an_empty_environment_gives_the_documented_defaults() -> None:
    settings = read({})
    assert str(settings.bind) == "127.0.0.1:8080"
    assert (settings.connect_timeout_secs, settings.read_timeout_secs, settings.total_timeout_secs) == (
        3,
        5,
        10,
    )
    assert settings.retry == RetryPolicy(12, 2, 300, 1800, 0.2)
    assert (settings.database_url, settings.broker_url, settings.secret_keys) == (None, None, None)


def test_variables_of_other_programs_are_left_alone() -> None:
    assert read({"PATH": "/bin", "RELAYED": "1", "DATABASE_URLS": "x"}) == read({})


def test_every_fault_is_reported_at_once() -> None:
    wrong = faults({"RELAY_WORKERS": "many", "RELAY_BNID": "x", "RELAY_LEASE_SECS": "12", "RELAY_RETRY_JITTER": "1.5"})
    assert set(wrong) == {"RELAY_WORKERS", "RELAY_BNID", "RELAY_LEASE_SECS", "RELAY_RETRY_JITTER"}


def told(environ: dict[str, str]) -> str:
    """What is said of an environment, nothing if it is taken."""
    try:
        read(environ)
    except SettingsError as fault:
        return str(fault)
    return ""


URLS = [row.name for row in rows() if row.name.endswith(("_URL", "_ENDPOINT")) or row.name == "RELAY_URL"]


@given(
    st.sampled_from(URLS),
    st.sampled_from(["http", "postgresql", "redis", "ftp", ""]),
    st.text("abc019@:/?#[]%&=, \\'\"", max_size=6),
    st.sampled_from(["@host:1/x", "@host:x/", "@[::1/", "@", ""]),
)
def test_no_fault_shows_what_may_be_a_password(name: str, scheme: str, around: str, rest: str) -> None:
    said = told({name: f"{scheme}://user:hunter2{around}hunter2{rest}?api_key=hunter2"})
    assert "hunter2" not in said
    assert not said or name in said


@given(st.sampled_from([row.name for row in rows()]))
def test_no_fault_shows_a_url_that_was_meant_for_another_setting(name: str) -> None:
    assert "hunter2" not in told({name: "postgresql://user:hunter2@host:x/"})


def test_the_error_has_one_line_for_each_fault() -> None:
    with pytest.raises(SettingsError) as refused:
        read({"RELAY_WORKERS": "many", "RELAY_CLAIM_BATCH": "-1"})
    first, second = str(refused.value).splitlines()
    assert first == "RELAY_WORKERS is 'many': it must be a whole number from 1 to 64"
    assert second == "RELAY_CLAIM_BATCH is '-1': it must be a whole number from 1 to 5000"


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("RELAY_BREAKER_TRESHOLD", "RELAY_BREAKER_THRESHOLD"),
        ("RELAY_LEASE_SECONDS", "RELAY_LEASE_SECS"),
        ("RELAY_METRICS_BND", "RELAY_METRICS_BIND"),
        ("RELAY_DATABASE_URL", "DATABASE_URL"),
        ("RELAY_BREAKER_ENABLED", "RELAY_BREAKER"),
        ("RELAY_REQUIRE_HTTPS_DISABLED", "RELAY_REQUIRE_HTTPS"),
        ("RELAY_BROKER", "RELAY_BROKER_URL or RELAY_BROKER_SWEEP_SECS"),
        ("RELAY_WORKERS_ENABLED", "RELAY_WORKERS"),
        ("RELAY_TIMEOUT_SECS", "RELAY_CONNECT_TIMEOUT_SECS, RELAY_READ_TIMEOUT_SECS or RELAY_TOTAL_TIMEOUT_SECS"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_known_one(misspelt: str, meant: str) -> None:
    assert faults({misspelt: "5"}) == {misspelt: f"is no setting: did you mean {meant}?"}


@pytest.mark.parametrize(
    ("name", "text", "item"),
    [
        ("RELAY_EGRESS_ALLOW_CIDRS", "10.0.0.0/8,fo", "'fo'"),
        ("RELAY_EGRESS_ALLOW_CIDRS", "10.1.2.3/8, fd00::/8", "'10.1.2.3/8'"),
        ("RELAY_ALLOWED_PORTS", "443,https", "'https'"),
    ],
)
def test_the_wrong_item_of_a_list_is_named(name: str, text: str, item: str) -> None:
    assert faults({name: text})[name].endswith(f", and {item} in it is none")


@pytest.mark.parametrize("networks", ["0.0.0.0/0", "::/0", "10.0.0.0/8,0.0.0.0/1"])
def test_opening_nearly_every_network_is_cautioned_against(networks: str) -> None:
    (says,) = cautions(read({"RELAY_EGRESS_ALLOW_CIDRS": networks}))
    assert networks.rpartition(",")[2] in says
    assert "10.0.0.0/8" not in says


def test_networks_that_somebody_may_own_need_no_caution() -> None:
    assert cautions(read({"RELAY_EGRESS_ALLOW_CIDRS": "10.0.0.0/8,fc00::/7"})) == ()


def test_an_unknown_name_like_no_other_is_refused_with_the_way_to_the_list() -> None:
    assert "relay config" in faults({"RELAY_ZZZZZZZZZZZZ": "1"})["RELAY_ZZZZZZZZZZZZ"]


def test_an_unknown_name_is_refused_even_when_it_is_blank() -> None:
    assert "RELAY_LEASE_SEC" in faults({"RELAY_LEASE_SEC": ""})


@pytest.mark.parametrize(
    "name", ["RELAY_SERVICE_HOST", "RELAY_SERVICE_PORT_HTTP", "RELAY_PORT", "RELAY_PORT_8080_TCP_ADDR"]
)
def test_what_kubernetes_injects_is_no_setting_and_no_fault(name: str) -> None:
    assert read({name: "tcp://10.0.0.1:8080"}) == read({})


def test_a_blank_variable_counts_as_unset() -> None:
    settings = read({"RELAY_WORKERS": "  ", "DATABASE_URL": ""})
    assert settings == read({})
    assert settings.origin("RELAY_WORKERS") is Origin.DEFAULT


def test_space_around_a_value_is_no_part_of_it() -> None:
    assert read({"RELAY_API_KEY": " key\n"}).api_key == Secret("key")


def test_development_mode_also_allows_plain_http_and_any_port() -> None:
    settings = read({"RELAY_ALLOW_PRIVATE_ENDPOINTS": "true"})
    assert (settings.require_https, settings.allowed_ports) == (False, None)
    assert settings.origin("RELAY_REQUIRE_HTTPS") is Origin.FOLLOWS
    assert settings.origin("RELAY_ALLOWED_PORTS") == "follows RELAY_ALLOW_PRIVATE_ENDPOINTS"


def test_production_mode_requires_https_on_its_own_port() -> None:
    settings = read({})
    assert (settings.require_https, settings.allowed_ports) == (True, frozenset({443}))


@pytest.mark.parametrize("private", ["true", "false"])
def test_what_follows_the_development_switch_can_be_set_either_way(private: str) -> None:
    settings = read(
        {
            "RELAY_ALLOW_PRIVATE_ENDPOINTS": private,
            "RELAY_REQUIRE_HTTPS": private,
            "RELAY_ALLOWED_PORTS": "8443, 443",
        }
    )
    assert settings.require_https is (private == "true")
    assert settings.allowed_ports == frozenset({443, 8443})
    assert settings.origin("RELAY_REQUIRE_HTTPS") is Origin.ENVIRONMENT


def test_a_faulty_development_switch_is_reported_once_and_opens_nothing() -> None:
    assert set(faults({"RELAY_ALLOW_PRIVATE_ENDPOINTS": "perhaps"})) == {"RELAY_ALLOW_PRIVATE_ENDPOINTS"}


def test_the_command_line_beats_the_environment_which_beats_the_commands_defaults() -> None:
    settings = read(
        {"RELAY_WORKERS": "2", "RELAY_JOURNAL_QUORUM": "3"},
        command_defaults={"RELAY_JOURNAL_QUORUM": "2", "RELAY_METRICS_BIND": "127.0.0.1:9091"},
        command_line={"RELAY_WORKERS": "4", "RELAY_ALLOW_PRIVATE_ENDPOINTS": "true"},
    )
    assert (settings.workers, settings.journal_quorum, str(settings.metrics_bind)) == (4, 3, "127.0.0.1:9091")
    assert settings.allowed_ports is None
    assert [
        settings.origin(name) for name in ("RELAY_WORKERS", "RELAY_JOURNAL_QUORUM", "RELAY_METRICS_BIND", "RELAY_URL")
    ] == [Origin.COMMAND_LINE, Origin.ENVIRONMENT, Origin.COMMAND_DEFAULT, Origin.DEFAULT]


def test_the_origin_of_what_is_no_setting_is_asked_in_vain() -> None:
    with pytest.raises(KeyError):
        read({}).origin("RELAY_NOTHING")


@pytest.mark.parametrize(
    ("environ", "name", "advice"),
    [
        ({"RELAY_LEASE_SECS": "14.9"}, "RELAY_LEASE_SECS", "set it to at least 15"),
        ({"RELAY_TOTAL_TIMEOUT_SECS": "56"}, "RELAY_LEASE_SECS", "set it to at least 61"),
        ({"RELAY_CONNECT_TIMEOUT_SECS": "11"}, "RELAY_CONNECT_TIMEOUT_SECS", "raise the second"),
        ({"RELAY_READ_TIMEOUT_SECS": "10.5"}, "RELAY_READ_TIMEOUT_SECS", "RELAY_TOTAL_TIMEOUT_SECS = 10:"),
        ({"RELAY_GLOBAL_CONCURRENCY": "63"}, "RELAY_ENDPOINT_CONCURRENCY", "set it to at most 31"),
        ({"RELAY_MAX_BATCH_BYTES": "1048575"}, "RELAY_MAX_PAYLOAD_BYTES", "RELAY_MAX_BATCH_BYTES = 1048575"),
        ({"RELAY_RETRY_MAX_SECS": "1"}, "RELAY_RETRY_BASE_SECS", "RELAY_RETRY_MAX_SECS = 1"),
        ({"RELAY_RETRY_WINDOW_SECS": "1.9"}, "RELAY_RETRY_WINDOW_SECS", "RELAY_RETRY_BASE_SECS = 2: nothing"),
        ({"RELAY_BREAKER_MAX_COOLDOWN_SECS": "29"}, "RELAY_BREAKER_COOLDOWN_SECS", "raise the second"),
        ({"RELAY_RETAIN_DELIVERED_DAYS": "1", "RELAY_IDEMPOTENCY_RETENTION_SECS": "86401"},
         "RELAY_IDEMPOTENCY_RETENTION_SECS", "set it to at most 86400"),
        ({"RELAY_RETAIN_ATTEMPTS_DAYS": "2", "RELAY_RETRY_WINDOW_SECS": "172801"},
         "RELAY_RETAIN_ATTEMPTS_DAYS", "set it to at least 3"),
        ({"RELAY_TLS_CERT": "cert.pem"}, "RELAY_TLS_CERT", "set both or neither"),
        ({"RELAY_TLS_KEY": "key.pem"}, "RELAY_TLS_CERT", "set both or neither"),
        ({"RELAY_TLS_CLIENT_CA": "ca.pem"}, "RELAY_TLS_CLIENT_CA", "set RELAY_TLS_CERT"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused_with_advice(
    environ: dict[str, str], name: str, advice: str
) -> None:
    wrong = faults(environ)
    assert set(wrong) == {name}
    assert advice in wrong[name]


@pytest.mark.parametrize(
    "environ",
    [
        {"RELAY_LEASE_SECS": "15"},
        {"RELAY_TOTAL_TIMEOUT_SECS": "55"},
        {"RELAY_GLOBAL_CONCURRENCY": "64"},
        {"RELAY_MAX_BATCH_BYTES": "1048576"},
        {"RELAY_RETRY_MAX_SECS": "2", "RELAY_RETRY_BASE_SECS": "2"},
        {"RELAY_RETRY_WINDOW_SECS": "2"},
        {"RELAY_TLS_CERT": "cert.pem", "RELAY_TLS_KEY": "key.pem", "RELAY_TLS_CLIENT_CA": "ca.pem"},
    ],
)
def test_settings_that_just_fit_each_other_are_taken(environ: dict[str, str]) -> None:
    assert set(environ) == {name for name in environ if read(environ).origin(name) is Origin.ENVIRONMENT}


def test_a_fault_in_one_setting_starts_no_quarrel_with_its_neighbours() -> None:
    assert set(faults({"RELAY_TOTAL_TIMEOUT_SECS": "soon", "RELAY_LEASE_SECS": "9"})) == {"RELAY_TOTAL_TIMEOUT_SECS"}


@pytest.mark.parametrize("name", ["DATABASE_URL", "RELAY_SECRET_KEYS", "RELAY_BROKER_URL"])
def test_a_faulty_secret_is_not_quoted(name: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read({name: "hunter2 hunter2"})
    assert "hunter2" not in str(refused.value) + repr(refused.value.faults)


def test_an_outside_database_needs_keys_from_outside() -> None:
    settings = read({"DATABASE_URL": "postgresql://relay@db/relay"})
    with pytest.raises(SettingsError, match="relay secret-key"):
        check_database(settings)


@pytest.mark.parametrize("environ", [{}, {"DATABASE_URL": "postgres://db/relay", "RELAY_SECRET_KEYS": KEY}])
def test_a_database_with_its_keys_passes_and_so_does_the_embedded_one(environ: dict[str, str]) -> None:
    settings = read(environ)
    check_database(settings)
    assert (settings.database_url is None) == (settings.secret_keys is None)


def test_decimals_are_read_where_seconds_are_asked_for() -> None:
    settings = read({"RELAY_RETRY_BASE_SECS": "0.05", "RELAY_POLL_SECS": "0.25"})
    assert (settings.retry_base_secs, settings.poll_secs) == (0.05, 0.25)


def test_the_log_format_is_a_closed_choice_in_any_case() -> None:
    assert read({"RELAY_LOG_FORMAT": "JSON"}).log_format is LogFormat.JSON
    assert faults({"RELAY_LOG_FORMAT": "xml"}) == {"RELAY_LOG_FORMAT": "is 'xml': it must be json or text"}


def test_settings_cannot_be_changed_after_they_were_read() -> None:
    settings = read({})
    with pytest.raises(AttributeError):
        settings.workers = 2  # type: ignore[misc]  # that it is refused is the claim
    with pytest.raises(TypeError):
        settings.origins["RELAY_WORKERS"] = Origin.DEFAULT  # type: ignore[index]  # likewise


def test_every_field_is_a_row_of_the_table_under_its_own_name() -> None:
    fields = set(Settings.__dataclass_fields__) - {"origins"}
    assert {row.field for row in rows()} == fields
    assert {row.name for row in rows()} == {
        "DATABASE_URL" if field == "database_url" else f"RELAY_{field.upper()}" for field in fields
    }


SECRETS = {"DATABASE_URL": "postgresql://relay:hunter2@db/relay", "RELAY_SECRET_KEYS": KEY, "RELAY_API_KEY": "hunter2"}


def test_a_secret_may_stand_in_a_file_that_its_variable_names(tmp_path: Path) -> None:
    named = {}
    for name, text in SECRETS.items():
        named[f"{name}_FILE"] = str(tmp_path / name)
        (tmp_path / name).write_text(f"{text}\n")
    settings = read(named)
    assert settings == read(SECRETS)
    assert {settings.origin(name) for name in SECRETS} == {Origin.FILE}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "names a file that cannot be read: "),
        (b" \n", "names a file with nothing in it: "),
        (b"\xff\xfe", "names a file that is no text: "),
    ],
)
def test_a_file_that_holds_no_secret_is_a_fault_and_no_unset_secret(
    content: bytes | None, told: str, tmp_path: Path
) -> None:
    file = tmp_path / "url"
    if content is not None:
        file.write_bytes(content)
    assert faults({"DATABASE_URL_FILE": str(file)})["DATABASE_URL_FILE"].startswith(f"{told}{file}")


def test_what_is_wrong_in_a_file_is_told_of_its_setting_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("hunter2")
    wrong = faults({"RELAY_SECRET_KEYS_FILE": str(tmp_path / "keys")})
    assert list(wrong) == ["RELAY_SECRET_KEYS"]
    assert "hunter2" not in wrong["RELAY_SECRET_KEYS"]


def test_a_secret_in_two_places_is_a_fault() -> None:
    wrong = faults({"RELAY_API_KEY": "hunter2", "RELAY_API_KEY_FILE": "key"})
    assert wrong == {"RELAY_API_KEY_FILE": "and RELAY_API_KEY say the same: unset one of them"}


def test_only_secrets_are_looked_for_in_files() -> None:
    assert "RELAY_WORKERS_FILE" in faults({"RELAY_WORKERS_FILE": "workers"})


@pytest.mark.parametrize(
    "url",
    [
        "redis://cache",
        "rediss://:secret@cache:6380/2?ssl_ca_certs=/ca.pem",
        "redis+sentinel://s1:26379,s2,[::1]:26379/mymaster",
        "rediss+sentinel://user:p%40ss@s1/mymaster/1",
    ],
)
def test_a_brokers_url_names_a_server_or_sentinels(url: str) -> None:
    broker = read({"RELAY_BROKER_URL": url}).broker_url
    assert broker is not None
    assert broker.expose() == url


@pytest.mark.parametrize(
    "url",
    ["http://cache", "redis://", "redis://a,b", "redis+sentinel://a,b:99999/m", "redis+sentinel://a,/m", "redis:cache"],
)
def test_what_is_no_url_of_a_broker_is_a_fault(url: str) -> None:
    assert set(faults({"RELAY_BROKER_URL": url})) == {"RELAY_BROKER_URL"}


@pytest.mark.parametrize("special", ["?", "/", "#", "?stream=", "?x="])
@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("RELAY_BROKER_URL", "redis://default:9021{}hunter2@127.0.0.1:6379/0"),
        ("RELAY_BROKER_URL", "redis+sentinel://default:9021{}hunter2@s1,s2/mymaster"),
        ("RELAY_BROKER_URL", "redis+sentinel://s1,s2:9021{}hunter2@s1,s2/mymaster"),
        ("DATABASE_URL", "postgresql://relay:9021{}hunter2@127.0.0.1/relay"),
    ],
)
def test_a_password_that_is_cut_in_two_since_it_was_not_encoded_is_a_fault(name: str, url: str, special: str) -> None:
    """Its first half reads as a port, its second as what stands behind one."""
    with pytest.raises(SettingsError) as refused:
        read({name: url.format(special)})
    (fault,) = refused.value.faults
    assert (fault.name, "9021" in str(fault), "hunter2" in str(fault)) == (name, False, False)


def test_a_fleet_needs_a_connection_more() -> None:
    assert read({"RELAY_DATABASE_POOL": "6"}).database_pool == 6
    assert set(faults({"RELAY_DATABASE_POOL": "6", "RELAY_BROKER_URL": "redis://cache"})) == {"RELAY_DATABASE_POOL"}
