"""Claims about what `relay doctor` finds, each fault made for real where that can be done, and what it leaves alone."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import ssl
from collections import namedtuple
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from relay.app.doctor import Finding, Level, examine, findings, machine, receivers
from relay.app.doctor.clocks import compare
from relay.app.doctor.database import _version as judge_version
from relay.app.doctor.findings import bounded
from relay.app.doctor.gateway import examine_gateway
from relay.app.doctor.receivers import examine_receivers
from relay.app.doctor.standing import examine_standing
from relay.app.reencryption import reencrypt
from relay.domain.chat import transport_of
from relay.domain.endpoint import EndpointConfig
from relay.domain.secret import Secret
from relay.sender import NoAuthorities
from relay.settings import Bind, Settings, read
from relay.store.database import Database
from relay.store.endpoints import Endpoints
from relay.store.health import DISPATCHER, Health
from relay.store.keys import agree_on_keys
from relay.store.retention import DEFAULT_WINDOWS, Retention
from relay.store.vault import Vault, new_key
from tests.cli.scripted_api import scripted
from tests.store.test_faults import as_a_guest
from tests.store.world import World
from tests.support import certificates
from tests.support.cluster import Cluster
from tests.support.database import Server
from tests.support.days import make_day
from tests.support.deliveries import new_id
from tests.support.forbidden import SPELLINGS, Trap
from tests.support.installation import LOOPBACK, free_port

PRIVATE = {"RELAY_ALLOW_PRIVATE_ENDPOINTS": "true"}
NOW = datetime(2026, 1, 31, tzinfo=UTC)


async def examined(dsn: str, **settings: str) -> dict[str, Finding]:
    """What is found of an installation with that database, the last finding of each check."""
    environment = {
        "DATABASE_URL": dsn,
        "RELAY_SECRET_KEYS": new_key().expose(),
        "RELAY_URL": f"http://{LOOPBACK}:{free_port()}",
        "RELAY_BIND": f"{LOOPBACK}:{free_port()}",
        "RELAY_METRICS_BIND": f"{LOOPBACK}:{free_port()}",
        "RELAY_TESTKIT_BIND": f"{LOOPBACK}:{free_port()}",
        **settings,
    }
    return {each.check: each for each in await examine(read(environment), endpoint=None, is_here=True)}


def level_and_text(finding: Finding) -> tuple[Level, str]:
    return finding.level, finding.text


async def test_networks_opened_so_wide_that_nothing_is_shut_are_told(database_dsn: str) -> None:
    level, text = level_and_text((await examined(database_dsn, RELAY_EGRESS_ALLOW_CIDRS="0.0.0.0/0"))["settings"])
    assert (level, "0.0.0.0/0" in text) == (Level.WARNING, True)


async def test_a_fresh_installation_lacks_its_processes_alone(database_dsn: str) -> None:
    found = await examined(database_dsn)
    faults = [name for name, each in found.items() if each.level is not Level.OK]
    assert faults == ["gateway", "dispatcher"]
    assert found["dispatcher"].text == "none has ever reported: start one with `relay dispatcher`"
    assert {
        "settings",
        "authorities",
        "database",
        "role",
        "connections",
        "schema",
        "keys",
        "quorum",
        "endpoints",
    } <= set(found)


async def test_a_quorum_that_the_server_does_not_promise_is_a_fault_with_what_to_set(database_dsn: str) -> None:
    level, text = level_and_text((await examined(database_dsn, RELAY_JOURNAL_QUORUM="2"))["quorum"])
    assert level is Level.FAULT
    assert "set it to 'ANY 1 (name, name)'" in text


async def test_a_quorum_that_is_there_is_told_and_one_that_nobody_asks_for_is_a_warning(
    cluster: Cluster, cluster_database: str
) -> None:
    dsn = cluster.dsn(cluster_database)
    asked = (await examined(dsn, RELAY_JOURNAL_QUORUM="2"))["quorum"]
    assert level_and_text(asked) == (Level.OK, "a 202 waits for 2 of 3 servers")
    unasked = (await examined(dsn))["quorum"]
    assert unasked.level is Level.WARNING
    assert unasked.text.endswith("waits for one disk alone: set it to 2")


async def test_a_dispatcher_that_reports_is_seen(database_dsn: str, database: Database) -> None:
    await Health(database).beat(new_id(), DISPATCHER)
    assert (await examined(database_dsn))["dispatcher"].level is Level.OK


async def test_a_dispatcher_that_has_gone_silent_is_a_fault(database_dsn: str, database: Database) -> None:
    await Health(database).beat(new_id(), DISPATCHER)
    async with database.connection() as connection:
        await connection.execute("update heartbeats set reported_at = now() - interval '31 seconds'")
    level, text = level_and_text((await examined(database_dsn))["dispatcher"])
    assert level is Level.FAULT
    assert re.match(r"none has reported for 3\d s", text)


async def test_a_database_that_is_away_is_one_fault_without_its_password() -> None:
    found = await examined(f"postgresql://relay:hunter2@{LOOPBACK}:1/relay")
    level, text = level_and_text(found["database"])
    assert level is Level.FAULT
    assert "check that the server runs" in text
    assert "hunter2" not in text
    assert "schema" not in found


async def test_a_wrong_password_is_told_as_that(database_dsn: str, database_server: Server) -> None:
    found = await examined(await as_a_guest(database_dsn, database_server, "not this"))
    assert "put the role and the password" in found["database"].text


async def test_a_database_that_is_not_migrated_is_told_with_the_command(
    database_dsn: str, database_server: Server
) -> None:
    async with own_database(database_server) as dsn:
        found = await examined(dsn)
    assert level_and_text(found["schema"])[0] is Level.FAULT
    assert "run `relay migrate`" in found["schema"].text
    assert "keys" not in found


@asynccontextmanager
async def own_database(server: Server) -> AsyncIterator[str]:
    name = f"relay_doctor_{new_id().hex}"
    await server.run(f"create database {name}")
    yield server.dsn(name)
    await server.run(f"drop database {name} with (force)")


async def test_a_role_that_owns_nothing_is_told_with_what_it_lacks(database_dsn: str, database_server: Server) -> None:
    found = await examined(await as_a_guest(database_dsn, database_server, "guest"))
    assert found["role"].text == "relay_guest may create no table: ALTER DATABASE name OWNER TO relay_guest"
    assert found["schema"].text.startswith("the role does not own audit, deliveries, delivery_attempts, ")
    assert (found["role"].level, found["schema"].level) == (Level.FAULT, Level.FAULT)


async def test_too_few_connections_are_a_fault(database_dsn: str) -> None:
    found = await examined(database_dsn, RELAY_WORKERS="64", RELAY_DATABASE_POOL="100")
    assert found["connections"].level is Level.FAULT
    assert "RELAY_WORKERS at 64" in found["connections"].text


@pytest.mark.parametrize(("version", "level"), [("14.12", Level.FAULT), ("15.0", Level.OK), ("18.1", Level.OK)])
def test_a_server_before_15_is_too_old(version: str, level: Level) -> None:
    (found,) = judge_version(version, int(version.partition(".")[0]))
    assert found.level is level


async def marks(database: Database) -> int:
    async with database.connection() as connection:
        return int(await connection.fetchval("select count(*) from key_marks"))


async def test_keys_of_another_installation_are_a_fault_and_no_mark_is_left(
    database_dsn: str, database: Database
) -> None:
    assert (await examined(database_dsn))["keys"].text == "no secret was sealed yet"
    assert await marks(database) == 0
    key = new_key()
    await agree_on_keys(database, Vault([key]))
    found = await examined(database_dsn)
    assert found["keys"].level is Level.FAULT
    assert "the same RELAY_SECRET_KEYS" in found["keys"].text
    both = f"{new_key().expose()},{key.expose()}"
    assert (await examined(database_dsn, RELAY_SECRET_KEYS=both))["keys"].level is not Level.FAULT
    assert await marks(database) == 1


async def test_how_far_a_new_key_has_come_is_told(database_dsn: str, database: Database) -> None:
    old, new = new_key(), new_key()
    world = World.over(database, vault=Vault([old]))
    await agree_on_keys(database, Vault([old]))
    await world.add_endpoint()
    both = f"{new.expose()},{old.expose()}"
    level, text = level_and_text((await examined(database_dsn, RELAY_SECRET_KEYS=both))["keys"])
    assert level is Level.WARNING
    assert text.startswith("1 stored secret is under an older key")
    assert "run `relay keys reencrypt`" in text
    await reencrypt(
        read({"DATABASE_URL": database_dsn, "RELAY_SECRET_KEYS": both}), give_up=False, tell=lambda *_: None, say=print
    )
    level, text = level_and_text((await examined(database_dsn, RELAY_SECRET_KEYS=both))["keys"])
    assert level is Level.WARNING
    assert text.startswith("1 of the 2 keys in RELAY_SECRET_KEYS is retired")
    assert (await examined(database_dsn, RELAY_SECRET_KEYS=new.expose()))["keys"].level is Level.OK


async def test_secrets_that_no_key_opens_are_counted(database_dsn: str, database: Database) -> None:
    await World.over(database, vault=Vault([new_key()])).add_endpoint()
    level, text = level_and_text((await examined(database_dsn))["keys"])
    assert level is Level.WARNING
    assert text.startswith("1 stored secret is under no key of RELAY_SECRET_KEYS")


async def test_a_new_key_behind_the_old_one_is_no_news(database_dsn: str, database: Database) -> None:
    old = new_key()
    await agree_on_keys(database, Vault([old]))
    await World.over(database, vault=Vault([old])).add_endpoint()
    both = f"{old.expose()},{new_key().expose()}"
    assert (await examined(database_dsn, RELAY_SECRET_KEYS=both))["keys"].level is Level.OK


async def test_a_key_that_is_none_is_a_fault_of_the_keys(database_dsn: str) -> None:
    found = await examined(database_dsn, RELAY_SECRET_KEYS=new_key().expose())
    assert found["keys"].level is Level.OK


async def test_no_database_here_is_a_fault_unless_relay_runs_elsewhere(tmp_path: Path) -> None:
    ready = {"ready": True, "checks": {"database": "ok"}}
    with speaking(ready) as url:
        settings = read({"RELAY_DATA_DIR": str(tmp_path), "RELAY_URL": url})
        for is_here, level in [(True, Level.FAULT), (False, Level.WARNING)]:
            found = await examine(settings, endpoint=None, is_here=is_here)
            assert [each.level for each in found if each.check == "database"] == [level]


@contextmanager
def speaking(document: Any, status: int = 200, date: datetime | None = None) -> Iterator[str]:
    """An HTTP server that answers everything with that JSON, and with a date of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def date_time_string(self, timestamp: float | None = None) -> str:  # noqa: ARG002 - the parent has it
            return super().date_time_string((date or datetime.now(UTC)).timestamp())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer((LOOPBACK, 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://{LOOPBACK}:{server.server_port}"
        server.shutdown()


async def test_a_gateway_that_is_not_ready_is_told_check_by_check() -> None:
    said = {"ready": False, "checks": {"database": "ok", "queue": "the oldest is late", "dispatcher": "none"}}
    with speaking(said, status=503) as url:
        found = await examine_gateway(url, trust_env=False)
    texts = [each.text for each in found.findings if each.level is Level.FAULT]
    assert texts == ["queue: the oldest is late", "dispatcher: none"]


@pytest.mark.parametrize("document", [{"hello": "world"}, ["ready"], {"ready": True, "checks": None}])
async def test_something_else_at_its_address_is_no_relay(document: Any) -> None:
    with speaking(document) as url:
        found = await examine_gateway(url, trust_env=False)
    assert not found.answered
    assert "is no Relay" in found.findings[0].text


async def test_a_gateway_whose_clock_is_off_is_a_warning() -> None:
    ready = {"ready": True, "checks": {"database": "ok"}}
    with speaking(ready, date=datetime.now(UTC) - timedelta(seconds=90)) as url:
        found = await examine_gateway(url, trust_env=False)
    (clock,) = [each for each in found.findings if each.check == "gateway clock"]
    assert clock.level is Level.WARNING
    assert "behind this machine" in clock.text


@pytest.mark.parametrize(
    ("off", "says"),
    [
        (0.0, "agree"),
        (1.9, "agree"),
        (-1.9, "agree"),
        (3.0, "3 s ahead of this machine"),
        (-700.0, "700 s behind this machine"),
    ],
)
def test_clocks_may_differ_by_two_seconds(off: float, says: str) -> None:
    theirs = NOW + timedelta(seconds=off)
    assert says in compare("database", (theirs, theirs), NOW, NOW).text


def test_what_a_slow_answer_explains_is_no_difference() -> None:
    late = NOW + timedelta(seconds=30)
    assert compare("gateway", (late, late), NOW, late).level is Level.OK


def port_of(bound: socket.socket) -> Bind:
    return Bind(LOOPBACK, bound.getsockname()[1])


def test_a_port_is_free_or_relays_or_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PORT_SECONDS", 0.2)
    (free,) = machine.examine_port(Bind(LOOPBACK, free_port()), "RELAY_BIND")
    assert free.level is Level.OK
    with speaking({"status": "ok"}) as url:
        (ours,) = machine.examine_port(Bind(LOOPBACK, int(url.rpartition(":")[2])), "RELAY_BIND")
    assert level_and_text(ours) == (Level.OK, f"Relay answers at {url}")
    with closing(socket.create_server((LOOPBACK, 0))) as stranger:
        (taken,) = machine.examine_port(port_of(stranger), "RELAY_BIND")
        (unneeded,) = machine.examine_port(port_of(stranger), "RELAY_TESTKIT_BIND", needed=False)
    assert (taken.level, unneeded.level) == (Level.FAULT, Level.WARNING)
    assert "set RELAY_BIND to another address" in taken.text
    assert "cannot be known" in taken.text


def test_of_a_port_that_is_held_it_is_told_where_relay_was_found_and_no_more() -> None:
    """It may listen on less than the setting of this shell says."""
    with speaking({"status": "ok"}) as url:
        port = int(url.rpartition(":")[2])
        (ours,) = machine.examine_port(Bind("0.0.0.0", port), "RELAY_METRICS_BIND")
    assert level_and_text(ours) == (Level.OK, f"Relay answers at {url}")


async def test_the_clocks_of_database_and_gateway_are_told_apart(database_dsn: str) -> None:
    with speaking({"ready": True, "checks": {"database": "ok"}}) as url:
        found = await examined(database_dsn, RELAY_URL=url)
    assert {"database clock", "gateway clock"} <= set(found)


async def test_a_gateway_whose_database_is_away_is_one_fault() -> None:
    said = {"database": "it does not answer", "queue": "it is not known", "dispatcher": "it is not known"}
    with speaking({"ready": False, "checks": said}, status=503) as url:
        found = await examine_gateway(url, trust_env=False)
    assert [each.text for each in found.findings if each.level is Level.FAULT] == ["its database: it does not answer"]


async def test_a_gateway_whose_certificate_is_not_believed_is_not_called_silent(tmp_path: Path) -> None:
    server = certificates.issue(tmp_path, LOOPBACK)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    with scripted(lambda _: (200, {"ready": True, "checks": {"database": "ok"}}), context) as api:
        stranger = await examine_gateway(api.url, trust_env=False)
        trust = ssl.create_default_context(cafile=str(server.authority))
        known = await examine_gateway(api.url, trust_env=False, verify=trust)
    assert "is not believed (unable to get local issuer certificate): set SSL_CERT_FILE" in stranger.findings[0].text
    assert (stranger.answered, known.answered) == (False, True)


def test_an_address_of_another_machine_is_a_fault() -> None:
    (found,) = machine.examine_port(Bind("192.0.2.1", 8080), "RELAY_BIND")
    assert found.level is Level.FAULT
    assert "set RELAY_BIND to an address of this machine" in found.text


Usage = namedtuple("Usage", "total used free")  # noqa: PYI024 - what shutil answers is one, too


@pytest.mark.parametrize(
    ("free_percent", "total", "level"),
    [(50, 100, Level.OK), (9, 100, Level.WARNING), (1, 100, Level.FAULT), (1, 4_000, Level.OK)],
)
def test_a_disk_that_is_nearly_full_is_told_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_percent: int, total: int, level: Level
) -> None:
    size = total * machine.GIB
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(size, 0, size * free_percent // 100))
    (found,) = machine.examine_disk(read({"RELAY_DATA_DIR": str(tmp_path / "not" / "there" / "yet")}))
    assert found.level is level


def test_the_disk_of_an_outside_server_is_not_ours_to_see() -> None:
    settings = read({"DATABASE_URL": "postgresql://relay@db/relay", "RELAY_SECRET_KEYS": new_key().expose()})
    assert machine.examine_disk(settings) == ()


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n"])
def test_authorities_that_are_none_are_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(text)
    monkeypatch.setattr(machine, "find", lambda _: bundle)
    (found,) = machine.examine_authorities()
    assert found.level is Level.FAULT
    assert "ca-certificates" in found.text


def test_no_authorities_at_all_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(_: object) -> Path:
        raise NoAuthorities("no certificate authorities at /nowhere")

    monkeypatch.setattr(machine, "find", nowhere)
    (found,) = machine.examine_authorities()
    assert found.level is Level.FAULT


def test_a_broker_that_cannot_be_meant_is_a_fault() -> None:
    refused = machine.examine_settings(read({"RELAY_BROKER_URL": "redis+sentinel://cache"}))
    assert [each.level for each in refused] == [Level.FAULT]


def test_a_certificate_that_cannot_be_used_is_a_fault(tmp_path: Path) -> None:
    settings = read({"RELAY_TLS_CERT": str(tmp_path / "a.pem"), "RELAY_TLS_KEY": str(tmp_path / "b.pem")})
    (found,) = machine.examine_certificate(settings)
    assert found.level is Level.FAULT


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (ec.generate_private_key(ec.SECP256R1()), "the key is not that of the certificate"),
        (rsa.generate_private_key(65537, 2048), "the key is not that of the certificate"),
        (None, "one of them is no PEM file"),
    ],
    ids=["another key", "a key of another kind", "no key"],
)
def test_a_certificate_and_a_key_that_do_not_fit_are_told_in_words(
    tmp_path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None, says: str
) -> None:
    server, other = certificates.issue(tmp_path, "localhost"), tmp_path / "other.key"
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    other.write_bytes(b"none" if key is None else key.private_bytes(*pem))
    settings = read({"RELAY_TLS_CERT": str(server.certificate), "RELAY_TLS_KEY": str(other)})
    (found,) = machine.examine_certificate(settings)
    assert says in found.text
    assert "[" not in found.text


def authorities(folder: Path, *texts: bytes) -> Settings:
    """Settings of a gateway that asks for certificates of these authorities."""
    server, clients = certificates.issue(folder, "localhost"), folder / "clients.pem"
    clients.write_bytes(b"".join(texts))
    files = {"CERT": server.certificate, "KEY": server.key, "CLIENT_CA": clients}
    return read({f"RELAY_TLS_{name}": str(path) for name, path in files.items()})


def test_the_authorities_of_clients_are_counted_and_a_file_without_any_is_a_fault(tmp_path: Path) -> None:
    one, two = (certificates.ClientAuthority(tmp_path, name).path.read_bytes() for name in ("one", "two"))
    _, found = machine.examine_certificate(authorities(tmp_path, one, two))
    assert (found.level, found.text) == (Level.OK, f"2 in {tmp_path / 'clients.pem'}")
    (found,) = machine.examine_certificate(authorities(tmp_path))
    assert found.level is Level.FAULT
    assert "RELAY_TLS_CLIENT_CA" in found.text


def test_authorities_that_have_expired_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = authorities(tmp_path, certificates.ClientAuthority(tmp_path).path.read_bytes())
    monkeypatch.setattr("relay.app.doctor.machine.time.time", lambda: 4e9)
    _, found = machine.examine_certificate(settings)
    assert found.level is Level.WARNING
    assert found.text.startswith("1 of 1 in ")


def test_networks_of_proxies_that_are_nearly_everybody_are_a_warning() -> None:
    (found,) = machine.examine_settings(read({"RELAY_TRUSTED_PROXIES": "0.0.0.0/0,10.0.0.1"}))
    assert found.level is Level.WARNING
    assert "RELAY_TRUSTED_PROXIES names 0.0.0.0/0:" in found.text


async def test_a_check_that_hangs_ends_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "CHECK_SECONDS", 0.05)

    async def hang() -> findings.Findings:
        await asyncio.Event().wait()
        return ()

    (found,) = await bounded("database", hang(), "look at its log")
    assert level_and_text(found) == (Level.FAULT, "no answer within 0.05 s: look at its log")


class Listener:
    """Accepts connections on loopback, and keeps every byte that comes."""

    def __init__(self) -> None:
        self.connections = 0
        self.received = b""

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            self.received += await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[Listener, int]]:
    listener = Listener()
    async with await asyncio.start_server(listener.accept, LOOPBACK, 0, ssl=tls) as server:
        yield listener, server.sockets[0].getsockname()[1]


async def looked_at(database: Database, urls: dict[str, str], **settings: str) -> dict[str, Finding]:
    """What is found of endpoints with these names and urls."""
    endpoints = Endpoints(database, Vault([new_key()]))
    for name, url in urls.items():
        config = EndpointConfig(name=name, url=url, transport=transport_of(url))
        await endpoints.create("acct_default", new_id(), config, secret_id=new_id(), secret=Secret("whsec_x"))
    found = await examine_receivers(database, read({**PRIVATE, **settings}), None)
    return {each.check.removeprefix("endpoint "): each for each in found}


async def test_an_endpoint_that_listens_can_be_reached_and_hears_nothing(database: Database) -> None:
    async with listening() as (listener, port):
        found = await looked_at(database, {"ledger": f"http://{LOOPBACK}:{port}/hooks?token=secret"})
    assert level_and_text(found["ledger"]) == (Level.OK, f"{LOOPBACK}:{port} can be reached")
    assert (listener.connections, listener.received) == (1, b"")


async def test_of_a_chat_its_platform_is_looked_at(database: Database) -> None:
    async with listening() as (listener, port):
        bases = {"RELAY_TELEGRAM_URL": f"http://{LOOPBACK}:{port}", "RELAY_DISCORD_URL": "http://169.254.169.254/api"}
        found = await looked_at(database, {"ops": "telegram://42", "news": "discord://4711"}, **bases)
    assert level_and_text(found["ops"]) == (Level.OK, f"{LOOPBACK}:{port} can be reached")
    assert "169.254.169.254:80: the address is in" in found["news"].text
    assert (listener.connections, listener.received) == (1, b"")


async def test_why_an_endpoint_cannot_be_reached_is_told(database: Database) -> None:
    found = await looked_at(
        database,
        {
            "shut": f"http://{LOOPBACK}:{free_port()}/",
            "nowhere": "http://nowhere.invalid/",
            "metadata": "http://169.254.169.254/",
        },
    )
    assert {each.level for each in found.values()} == {Level.FAULT}
    assert "no connection to port" in found["shut"].text
    assert "nowhere.invalid:80: " in found["nowhere"].text
    assert "169.254.169.254:80: the address is in" in found["metadata"].text


async def test_no_spelling_of_an_address_that_the_policy_refuses_is_dialled(database: Database) -> None:
    """C41: looking whether an endpoint can be reached is no way around the policy."""
    with Trap() as trap:
        settings = {
            "RELAY_ALLOW_PRIVATE_ENDPOINTS": "false",
            "RELAY_REQUIRE_HTTPS": "false",
            "RELAY_ALLOWED_PORTS": "*",
        }
        hosts = [*SPELLINGS, socket.gethostname()]
        found = await looked_at(database, {f"n{n}": trap.url(host) for n, host in enumerate(hosts)}, **settings)
    assert [each.level for each in found.values()] == [Level.FAULT] * len(hosts)
    assert trap.connections == 0


async def test_a_url_that_cannot_be_read_is_not_shown(database: Database) -> None:
    """It may be from before urls were read as strictly, and what stands before an @ is a password."""
    found = await looked_at(database, {"old": "http://user:s3cret@example.test/", "odd": "http://[127.0.0.1]/?s3cret"})
    assert {each.level for each in found.values()} == {Level.FAULT}
    assert not [each.text for each in found.values() if "s3cret" in each.text]


async def test_relays_own_port_is_not_looked_at_although_loopback_is_opened(database: Database) -> None:
    with Trap() as ours, Trap() as other:
        settings = {
            "RELAY_ALLOW_PRIVATE_ENDPOINTS": "false",
            "RELAY_REQUIRE_HTTPS": "false",
            "RELAY_ALLOWED_PORTS": "*",
            "RELAY_EGRESS_ALLOW_CIDRS": "127.0.0.0/8",
            "RELAY_BIND": f"127.0.0.1:{ours.port}",
            "RELAY_METRICS_BIND": "127.0.0.1:1",
        }
        urls = {"ours": ours.url("127.0.0.1"), "other": other.url("127.0.0.1")}
        found = await looked_at(database, urls, **settings)
        assert (found["ours"].level, found["other"].level) == (Level.FAULT, Level.OK)
        other.wait_for(1)
        assert ours.connections == 0


async def test_a_certificate_that_nobody_vouches_for_is_told(database: Database, tmp_path: Path) -> None:
    issued = certificates.issue(tmp_path, "localhost")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(issued.certificate, issued.key)
    async with listening(tls) as (_, port):
        found = await looked_at(database, {"self-made": f"https://localhost:{port}/"})
    assert found["self-made"].level is Level.FAULT
    assert "its certificate is not accepted" in found["self-made"].text


async def a_relay_answers() -> bool:
    return True


async def test_endpoints_that_only_a_running_relays_settings_allow_are_one_warning(database: Database) -> None:
    await looked_at(database, {"one": f"http://{LOOPBACK}:9/", "two": f"http://{LOOPBACK}:9/b"})
    (found,) = await examine_receivers(database, read({}), None, a_relay_answers)
    assert (found.check, found.level) == ("egress", Level.WARNING)
    assert "2 active endpoints" in found.text
    assert "RELAY_ALLOW_PRIVATE_ENDPOINTS" in found.text


@pytest.mark.parametrize("settings", [{"RELAY_ALLOW_PRIVATE_ENDPOINTS": "false"}, {"RELAY_ALLOWED_PORTS": "443"}])
async def test_who_sets_the_policy_is_told_what_it_refuses(database: Database, settings: dict[str, str]) -> None:
    await looked_at(database, {"one": f"http://{LOOPBACK}:9/"})
    (found,) = await examine_receivers(database, read(settings), None, a_relay_answers)
    assert (found.check, found.level) == ("endpoint one", Level.FAULT)


async def test_what_waits_for_a_person_is_told(database: Database) -> None:
    await looked_at(database, {"gone": "http://nowhere.invalid/", "mute": "http://nowhere.invalid/"})
    assert await examine_standing(database, DEFAULT_WINDOWS) == ()
    async with database.connection() as connection:
        await connection.execute(
            "update endpoints set status = 'disabled', status_reason = 'it said 410' where name = 'gone'"
        )
        await connection.execute(
            "update endpoint_state s set breaker = 'open', trips = 1, cooldown_until = now() from endpoints e"
            " where e.id = s.endpoint_id and e.name = 'mute'"
        )
    disabled, breakers = await examine_standing(database, DEFAULT_WINDOWS)
    assert level_and_text(disabled) == (
        Level.WARNING,
        "disabled (it said 410): mend that, then `relay endpoints resume gone`",
    )
    assert (breakers.check, "for mute:" in breakers.text) == ("breakers", True)


async def test_an_endpoint_can_be_named_and_one_that_is_not_there_is_a_fault(database: Database) -> None:
    await looked_at(database, {"one": "http://nowhere.invalid/", "two": "http://nowhere.invalid/"})
    found = await examine_receivers(database, read(PRIVATE), "two")
    assert [each.check for each in found] == ["endpoint two"]
    (missing,) = await examine_receivers(database, read(PRIVATE), "three")
    assert level_and_text(missing) == (
        Level.FAULT,
        "none is called 'three': `relay endpoints list` shows them",
    )


async def test_an_endpoint_that_says_nothing_is_not_looked_at_for_long(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "LOOK_SECONDS", 0.2)
    async with listening() as (_, port):
        found = await looked_at(database, {"silent": f"https://localhost:{port}/"}, RELAY_CONNECT_TIMEOUT_SECS="9")
    assert found["silent"].text == f"localhost:{port}: no connection within 0.2 s"


async def test_days_that_should_have_gone_are_told_of(database: Database) -> None:
    """A day that is past its window is nothing to tell of before a day has passed."""
    today = datetime.now(UTC).date()
    await make_day(database, "delivery_attempts", today - timedelta(days=31))
    await make_day(database, "journal", today - timedelta(days=31))
    assert await examine_standing(database, DEFAULT_WINDOWS) == ()
    await make_day(database, "delivery_attempts", today - timedelta(days=33))
    await make_day(database, "journal", today - timedelta(days=33))
    (behind,) = await examine_standing(database, DEFAULT_WINDOWS)
    assert (behind.check, behind.level) == ("retention", Level.WARNING)
    assert "1 of attempts, 1 of events;" in behind.text
    retention = Retention(database)
    await retention.drop_day_of_attempts(30)
    for day in await retention.days_to_prune(30):
        await retention.prune_day(day, 30)
    assert await examine_standing(database, DEFAULT_WINDOWS) == ()
