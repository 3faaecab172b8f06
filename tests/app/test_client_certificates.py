"""Claims about client certificates (C155), over real sockets, handshakes and a real database.

What a handshake does not refuse, each request is judged by: by the names of the connection's certificate, and by the
credentials that are in force when it comes.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from relay.app import peers
from relay.app.faults import CannotRun
from relay.app.listening import address_of, listen
from relay.app.peers import Peers
from relay.app.serving import NOBODYS, serve
from relay.app.tls import Tls, tls_of
from relay.domain.certificate import fingerprint_of
from relay.settings import Bind, read
from relay.web.certificates import LONGEST_HEADER, Unreadable
from tests.api.world import World
from tests.support.administration import Made, bearer, signed
from tests.support.certificates import (
    FOR_SERVERS,
    ClientAuthority,
    ClientCertificate,
    ServerCertificate,
    issue,
)
from tests.support.wire import Cut, Reply, Wire, request

PATIENCE_SECONDS = 20.0
EVENTS, BATCH, AUDIT = "/v1/events", "/v1/events/batch", "/v1/endpoints"
BODY = json.dumps({"type": "invoice.paid"}).encode()
OTHER = "acct_other"
NAME = "billing.example.com"
LONG = dt.timedelta(days=2)

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Site:
    """A gateway that speaks TLS and asks for certificates of `clients`, with an ingest key already made."""

    world: World
    url: str
    server: ServerCertificate
    clients: ClientAuthority
    admin: Made

    def context(self, client: ClientCertificate | None) -> ssl.SSLContext:
        """What a client connects with."""
        if client is not None:
            return client.context(self.server.authority)
        return ssl.create_default_context(cafile=str(self.server.authority))

    async def connect(self, client: ClientCertificate | None) -> Wire:
        """A connection that shows this certificate."""
        return await Wire.connect(self.url, self.context(client))

    async def post(self, client: ClientCertificate | None, *headers: tuple[str, str]) -> Reply:
        """One event on a connection of its own."""
        async with await self.connect(client) as wire:
            return await wire.ask(posting(*headers))

    async def is_refused_in_the_handshake(self, client: ClientCertificate) -> bool:
        """Whether no request of that client is answered, and the connection ended."""
        try:
            async with await self.connect(client) as wire:
                await wire.ask(posting(bearer(self.admin.secret)))
        except (Cut, OSError):
            return not await self.world.count("journal")
        return False


def posting(*headers: tuple[str, str], path: str = EVENTS, body: bytes = BODY) -> bytes:
    """A request with one event."""
    lines = [("content-type", "application/json"), ("content-length", str(len(body))), *headers]
    head = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"POST {path} HTTP/1.1\r\nhost: relay.test\r\n{head}\r\n".encode("latin-1") + body


@asynccontextmanager
async def listening(world: World, tls: Tls | None, peers: Peers) -> AsyncIterator[str]:
    stop, ready = asyncio.Event(), asyncio.Event()
    listener = listen(Bind("127.0.0.1", 0), "RELAY_BIND")
    url = f"https://{address_of(listener)}"
    task = asyncio.create_task(
        serve(world.app, listener, stop=stop, ready=ready.set, drain_seconds=5.0, tls=tls, peers=peers)
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        await ready.wait()
    try:
        yield url
    finally:
        stop.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await task


@asynccontextmanager
async def site_of(world: World, folder: Path, *, peers: Peers = NOBODYS) -> AsyncIterator[Site]:
    server, clients = issue(folder, "localhost", "127.0.0.1"), ClientAuthority(folder)
    admin = await world.credentials.key("operator")
    await world.credentials.tenant(OTHER)
    async with listening(world, Tls(server.certificate, server.key, clients.path), peers) as url:
        yield Site(world, url, server, clients, admin)


@pytest.fixture
async def site(database_dsn: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with World.over(database_dsn) as world, site_of(world, tmp_path) as made:
        yield made


def verdict(reply: Reply) -> tuple[int, str | None]:
    """The status, and the code of a refusal."""
    return reply.status, reply.json().get("code")


INVALID = (401, "credential_invalid")
MISSING = (401, "credential_missing")
TAKEN = (202, None)


async def source_of_last_event(site: Site) -> str:
    (row,) = await site.world.sql("select source from journal order by receipt_id desc limit 1")
    source: str = row["source"]
    return source


# -- what a handshake refuses -----------------------------------------------------------------------------------------


each_that_is_none_for_a_client_now = pytest.mark.parametrize(
    "make",
    [
        lambda authority: authority.issue(NAME, begins=-LONG, ends=-dt.timedelta(minutes=1)),
        lambda authority: authority.issue(NAME, begins=dt.timedelta(hours=1), ends=LONG),
        lambda authority: authority.issue(NAME, usages=FOR_SERVERS),
    ],
    ids=["expired", "not yet valid", "for servers only"],
)


@each_that_is_none_for_a_client_now
async def test_a_certificate_that_is_none_for_a_client_now_gets_no_connection(
    site: Site, make: Callable[[ClientAuthority], ClientCertificate]
) -> None:
    """C155."""
    await site.world.credentials.source("mtls", name="billing", subject=NAME)
    assert await site.is_refused_in_the_handshake(make(site.clients))


async def test_a_certificate_of_another_authority_gets_no_connection(site: Site, tmp_path: Path) -> None:
    """C155."""
    await site.world.credentials.source("mtls", name="billing", subject=NAME)
    assert await site.is_refused_in_the_handshake(ClientAuthority(tmp_path, "strangers").issue(NAME))


async def test_each_certificate_of_the_file_is_an_authority_as_it_stands_there(
    database_dsn: str, tmp_path: Path
) -> None:
    """Several, one of them in between: its root is nobody that senders are believed for."""
    server = issue(tmp_path, "localhost", "127.0.0.1")
    authorities = [ClientAuthority(tmp_path, "one"), ClientAuthority(tmp_path, "two", is_root=False)]
    file = tmp_path / "all.pem"
    file.write_bytes(b"".join(each.path.read_bytes() for each in authorities))
    async with (
        World.over(database_dsn) as world,
        listening(world, Tls(server.certificate, server.key, file), NOBODYS) as url,
    ):
        await world.credentials.key()
        await world.credentials.source("mtls", name="billing", subject=NAME)
        for each in authorities:
            async with await Wire.connect(url, each.issue(NAME).context(server.authority)) as wire:
                assert verdict(await wire.ask(posting())) == TAKEN


async def test_who_has_no_certificate_is_served_as_ever(site: Site) -> None:
    hmac = await site.world.credentials.source("hmac", name="signer")
    assert verdict(await site.post(None, bearer(site.admin.secret))) == TAKEN
    assert verdict(await site.post(None)) == MISSING
    async with await site.connect(None) as wire:
        assert (await wire.ask(request("GET", "/healthz"))).status == 200
        assert (await wire.ask(request("GET", "/metrics"))).status == 200
        sealed_elsewhere = await wire.ask(posting(*signed("nobody", hmac.secret, BODY)))
        assert verdict(sealed_elsewhere) == (401, "signature_invalid")


# -- whose a certificate is -------------------------------------------------------------------------------------------


async def test_a_certificate_sends_as_the_source_of_its_name_and_in_its_tenant(site: Site) -> None:
    await site.world.credentials.source("mtls", name="theirs", subject=NAME, tenant=OTHER)
    assert verdict(await site.post(site.clients.issue(NAME))) == TAKEN
    assert await source_of_last_event(site) == "theirs"
    assert [each["tenant"] for each in await site.world.sql("select tenant from journal")] == [OTHER]


@pytest.mark.parametrize("path", [EVENTS, BATCH, AUDIT])
async def test_a_certificate_of_a_trusted_authority_that_names_no_source_is_nobody(site: Site, path: str) -> None:
    """C155: the right authority, an unknown subject."""
    await site.world.credentials.source("mtls", name="billing", subject=NAME)
    async with await site.connect(site.clients.issue("stranger.example.com")) as wire:
        assert verdict(await wire.ask(posting(path=path))) == INVALID


@pytest.mark.parametrize(
    ("alternatives", "common_names"),
    [
        (["mine.example.com"], [NAME]),  # the common name of another tenant, beside a name of its own
        ([x509.IPAddress(ip_address("127.0.0.1"))], [NAME]),
        ([NAME + "\0.evil.example"], []),
        ([NAME + "\0"], []),
        ([NAME + "."], []),
        (["*.example.com"], []),
        (["stranger.example.com\0", NAME], []),
        ([x509.UniformResourceIdentifier("https://" + NAME)], []),
        ([x509.RFC822Name("ops@" + NAME)], []),
        ([x509.DNSName(NAME + "x")], []),
        ([], ["billing", NAME]),
        ([], [NAME + "\0"]),
        ([], [NAME + "."]),
    ],
)
async def test_only_exactly_its_name_makes_a_certificate_a_sources(
    site: Site, alternatives: list[str | x509.GeneralName], common_names: list[str]
) -> None:
    """C155: a common name of another tenant's, a SAN with NUL, one with a dot at its end."""
    await site.world.credentials.source("mtls", name="theirs", subject=NAME, tenant=OTHER)
    await site.world.credentials.source("mtls", name="billing", subject="unused.example.com")
    reply = await site.post(site.clients.issue(*alternatives, common_names=common_names))
    assert verdict(reply) == INVALID
    assert not await site.world.count("journal")


@pytest.mark.parametrize(
    ("subject", "alternatives", "common_names"),
    [
        (NAME, ["other.example.com", NAME.upper()], []),
        (NAME, [], [NAME]),
        ("Warehouse 7", [], ["Warehouse 7"]),
        ("spiffe://mesh/billing", [x509.UniformResourceIdentifier("spiffe://mesh/billing")], ["x"]),
        ("ops@example.com", [x509.RFC822Name("ops@example.com")], []),
    ],
)
async def test_any_name_of_a_certificate_may_be_the_sources(
    site: Site, subject: str, alternatives: list[str | x509.GeneralName], common_names: list[str]
) -> None:
    await site.world.credentials.source("mtls", name="billing", subject=subject)
    assert verdict(await site.post(site.clients.issue(*alternatives, common_names=common_names))) == TAKEN


async def test_a_fingerprint_lets_one_certificate_in_and_no_other_of_the_same_names(site: Site) -> None:
    """C155: a certificate that leaked is replaced although its names stay."""
    first, second = site.clients.issue(NAME), site.clients.issue(NAME)
    subject = fingerprint_of(sha256(first.der).digest())
    await site.world.credentials.source("mtls", name="billing", subject=subject)
    assert verdict(await site.post(first)) == TAKEN
    assert verdict(await site.post(second)) == INVALID


async def test_a_certificate_that_names_sources_of_two_tenants_is_neithers(site: Site) -> None:
    await site.world.credentials.source("mtls", name="ours", subject=NAME)
    await site.world.credentials.source("mtls", name="theirs", subject="theirs.example.com", tenant=OTHER)
    assert verdict(await site.post(site.clients.issue(NAME, "theirs.example.com"))) == INVALID


# -- several proofs at once -------------------------------------------------------------------------------------------


async def test_a_source_that_asks_for_a_bearer_and_a_certificate_is_proved_by_both(site: Site) -> None:
    made = await site.world.credentials.source("bearer", "mtls", name="billing", subject=NAME)
    key = await site.world.credentials.key("ingest", source="billing")
    right, wrong = site.clients.issue(NAME), site.clients.issue("stranger.example.com")
    for secret in (made.secret, key.secret):
        for _ in range(2):  # the second time the key is known
            assert verdict(await site.post(right, bearer(secret))) == TAKEN
            assert verdict(await site.post(None, bearer(secret))) == MISSING
            assert verdict(await site.post(wrong, bearer(secret))) == INVALID
    assert verdict(await site.post(right)) == MISSING


async def test_a_certificate_that_its_sender_need_not_show_changes_nothing(site: Site) -> None:
    """A machine shows its certificate to everybody; whoever is proved by a bearer alone is not asked whose it is."""
    await site.world.credentials.source("mtls", name="theirs", subject=NAME, tenant=OTHER)
    for client in (site.clients.issue(NAME), site.clients.issue("stranger.example.com")):
        assert verdict(await site.post(client, bearer(site.admin.secret))) == TAKEN
    assert {each["tenant"] for each in await site.world.sql("select tenant from journal")} == {"acct_default"}


# -- a connection that stays open -------------------------------------------------------------------------------------


Ending = Callable[[World, Made], Awaitable[object]]

ENDINGS: dict[str, Ending] = {
    "the source is removed": lambda world, made: world.credentials.remove(made),
    "its certificate is taken off it": lambda world, made: world.credentials.change(made, "bearer"),
    "it has another certificate": lambda world, made: world.credentials.change(made, "mtls", subject="new.example.com"),
    "it needs a signature, too": lambda world, made: world.credentials.change(made, "mtls", "hmac", subject=NAME),
}


@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS)
async def test_a_certificate_that_is_ended_is_refused_on_the_next_request_of_its_open_connections_at_every_gateway(
    database_dsn: str, tmp_path: Path, end: Ending
) -> None:
    """C155: the certificate was removed while the connection stays open."""
    async with (
        World.over(database_dsn) as one,
        World.over(database_dsn) as two,
        site_of(one, tmp_path) as site,
        listening(two, Tls(site.server.certificate, site.server.key, site.clients.path), NOBODYS) as url,
    ):
        made = await one.credentials.source("mtls", name="billing", subject=NAME)
        context, batch = site.context(site.clients.issue(NAME)), posting(path=BATCH, body=b'[{"type":"a","payload":1}]')
        listing = request("GET", "/v1/endpoints")
        asks = [(posting(), 202), (batch, 202), (listing, 403)]
        async with AsyncExitStack() as stack:
            open_ones = [
                (await stack.enter_async_context(await Wire.connect(each, context)), ask, status)
                for each in (site.url, url)
                for ask, status in asks
            ]
            bearing = await stack.enter_async_context(await Wire.connect(url, site.context(None)))
            for wire, ask, status in open_ones:
                assert (await wire.ask(ask)).status == status
            assert verdict(await bearing.ask(posting(bearer(site.admin.secret)))) == TAKEN
            await end(one, made)
            for wire, ask, _ in open_ones:
                assert (await wire.ask(ask)).status == 401
            assert verdict(await bearing.ask(posting(bearer(site.admin.secret)))) == TAKEN


async def test_a_certificate_that_a_source_is_given_counts_on_the_next_request_of_an_open_connection(
    site: Site,
) -> None:
    made = await site.world.credentials.source("mtls", name="billing", subject="old.example.com")
    listing = request("GET", "/v1/endpoints")
    async with await site.connect(site.clients.issue(NAME)) as wire:
        assert verdict(await wire.ask(listing)) == INVALID
        await site.world.credentials.change(made, "mtls", subject=NAME)
        assert verdict(await wire.ask(listing)) == (403, "scope_missing")
        assert verdict(await wire.ask(posting())) == TAKEN


async def test_who_names_the_source_of_a_certificate_is_told_that_it_need_not_be_named(site: Site) -> None:
    await site.world.credentials.source("mtls", name="billing", subject=NAME)
    async with await site.connect(site.clients.issue(NAME)) as wire:
        answer = await wire.ask(posting(("Relay-Source", "billing")))
    assert answer.status == 401
    assert "a source with mtls alone is known by its certificate, and needs no Relay-Source" in answer.body.decode()


async def test_requests_that_come_together_are_each_judged(site: Site) -> None:
    """HTTP pipelining: each request of a connection has the connection's certificate, and its own headers."""
    await site.world.credentials.source("mtls", name="billing", subject=NAME)
    async with await site.connect(site.clients.issue(NAME)) as wire:
        listing, wrong = request("GET", "/v1/endpoints"), request("GET", "/v1/keys", headers=dict([bearer("rlk_no")]))
        await wire.write(posting() + posting(bearer(site.admin.secret)) + listing + wrong + posting())
        await wire.write(request("GET", "/healthz") + posting(bearer("rlk_no")) + posting())
        received = await several(wire, 7)
        await wire.closed()  # behind a refused body nothing more is read
    assert received == [202, 202, 403, 401, 202, 200, 401]
    sources = [each["source"] for each in await site.world.sql("select source from journal order by receipt_id")]
    assert sorted(sources) == sorted(["billing", f"key:{site.admin.name}", "billing"])


async def several(wire: Wire, count: int) -> list[int]:
    """The statuses of answers that may come in one piece."""
    data, found = bytearray(), list[int]()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(found) < count:
            while not wire._came:
                wire._changed.clear()
                await wire._changed.wait()
            data += wire._came
            wire._came.clear()
            while b"\r\n\r\n" in data:
                head, rest = bytes(data).split(b"\r\n\r\n", 1)
                lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
                length = int(lines[b"content-length"])
                if len(rest) < length:
                    break
                found.append(int(head.split()[1]))
                data[:] = rest[length:]
    return found


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_resumed_session_has_its_certificate_and_no_right_that_was_taken(
    site: Site, version: ssl.TLSVersion
) -> None:
    """C155: the handshake is cut short, the judgement is not."""
    made = await site.world.credentials.source("mtls", name="billing", subject=NAME)
    context = site.context(site.clients.issue(NAME))
    context.maximum_version = version

    def ask(session: ssl.SSLSession | None) -> tuple[int, bool, ssl.SSLSession | None]:
        host, _, port = site.url.removeprefix("https://").partition(":")
        with (
            socket.create_connection((host, int(port)), PATIENCE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host, session=session) as secure,
        ):
            secure.sendall(posting())
            status = int(secure.recv(65_536).split()[1])
            return status, bool(secure.session_reused), secure.session

    status, reused, session = await asyncio.to_thread(ask, None)
    assert (status, reused) == (202, False)
    status, reused, session = await asyncio.to_thread(ask, session)
    assert (status, reused) == (202, True)
    await site.world.credentials.remove(made)
    assert (await asyncio.to_thread(ask, session))[:2] == (401, True)


async def test_a_certificate_that_expires_while_its_connection_is_open_names_nobody_from_then_on(site: Site) -> None:
    await site.world.credentials.source("mtls", name="billing", subject=NAME)
    client = site.clients.issue(NAME, ends=dt.timedelta(seconds=3))
    listing = request("GET", "/v1/endpoints")
    async with await site.connect(client) as wire:
        assert verdict(await wire.ask(posting())) == TAKEN
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (reply := await wire.ask(listing)).status == 403:
                await asyncio.to_thread(pass_some_time)
        assert verdict(reply) == INVALID
        assert "expired" in reply.json()["detail"]
        assert (await wire.ask(request("GET", "/healthz"))).status == 200
        assert verdict(await wire.ask(posting())) == INVALID


def pass_some_time() -> None:
    """The clock of certificates is the machine's, and counts in seconds."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        nobody.listen()
        nobody.settimeout(0.1)
        with pytest.raises(TimeoutError):
            nobody.accept()


async def test_a_certificate_that_only_the_handshake_can_read_names_nobody(
    database_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: bytes) -> None:
        raise Unreadable("odd")

    monkeypatch.setattr(peers, "read_certificate", unreadable)
    async with World.over(database_dsn) as world, site_of(world, tmp_path) as site:
        await world.credentials.source("mtls", name="billing", subject=NAME)
        assert verdict(await site.post(site.clients.issue(NAME))) == INVALID


# -- the header of a proxy --------------------------------------------------------------------------------------------


@asynccontextmanager
async def behind(world: World, folder: Path, *proxies: str) -> AsyncIterator[Site]:
    """A site that trusts these proxies."""
    networks = read({"RELAY_TRUSTED_PROXIES": ",".join(proxies)}).trusted_proxies
    async with site_of(world, folder, peers=Peers(networks)) as site:
        yield site


def in_bytes(der: bytes) -> tuple[str, str]:
    """The header of RFC 9440."""
    return "Client-Cert", f":{b64encode(der).decode()}:"


def in_pem(der: bytes) -> tuple[str, str]:
    """The header as nginx and Envoy write it."""
    return "Client-Cert", quote(ssl.DER_cert_to_PEM_cert(der), safe="")


HERE = "127.0.0.0/8"


@pytest.mark.parametrize("proxy", [HERE, "127.0.0.1/32"])
@pytest.mark.parametrize("written", [in_bytes, in_pem])
async def test_a_trusted_proxy_says_whose_certificate_its_client_showed(
    database_dsn: str, tmp_path: Path, proxy: str, written: Callable[[bytes], tuple[str, str]]
) -> None:
    async with World.over(database_dsn) as world, behind(world, tmp_path, proxy) as site:
        await world.credentials.source("mtls", name="billing", subject=NAME)
        header = written(site.clients.issue(NAME).der)
        async with await site.connect(None) as wire:
            assert verdict(await wire.ask(posting(header))) == TAKEN
            assert verdict(await wire.ask(posting(header, path=BATCH, body=b'[{"type":"a","payload":1}]'))) == TAKEN
            assert verdict(await wire.ask(request("GET", "/v1/endpoints", headers=dict([header])))) == (
                403,
                "scope_missing",
            )
        assert verdict(await site.post(None)) == MISSING
        assert verdict(await site.post(None, written(site.clients.issue("x.example.com").der))) == INVALID


@pytest.mark.parametrize("proxy", ["10.0.0.0/8", "127.0.0.2/32", "::1/128"])
async def test_from_anybody_else_the_header_is_nothing(database_dsn: str, tmp_path: Path, proxy: str) -> None:
    """Neither an identity nor a fault, whatever is in it."""
    async with World.over(database_dsn) as world, behind(world, tmp_path, proxy) as site:
        await world.credentials.source("mtls", name="billing", subject=NAME)
        mine = site.clients.issue("mine.example.com")
        await world.credentials.source("mtls", name="mine", subject="mine.example.com")
        for header in (in_bytes(site.clients.issue(NAME).der), ("Client-Cert", "nonsense")):
            assert verdict(await site.post(None, header)) == MISSING
            assert verdict(await site.post(None, header, bearer(site.admin.secret))) == TAKEN
            assert verdict(await site.post(mine, header)) == TAKEN
            assert await source_of_last_event(site) == "mine"


async def test_the_certificate_of_a_proxy_is_not_that_of_its_client(database_dsn: str, tmp_path: Path) -> None:
    async with World.over(database_dsn) as world, behind(world, tmp_path, HERE) as site:
        await world.credentials.source("mtls", name="billing", subject=NAME)
        await world.credentials.source("mtls", name="proxy", subject="proxy.example.com")
        proxy = site.clients.issue("proxy.example.com")
        assert verdict(await site.post(proxy)) == MISSING
        assert verdict(await site.post(proxy, in_bytes(site.clients.issue(NAME).der))) == TAKEN
        assert await source_of_last_event(site) == "billing"


BROKEN: dict[str, Callable[[bytes], Headers]] = {
    "no byte sequence": lambda der: [("Client-Cert", b64encode(der).decode())],
    "half of one": lambda der: [("Client-Cert", f":{b64encode(der).decode()}")],
    "no base64": lambda _: [("Client-Cert", ":=A=:")],
    "no certificate": lambda _: [("Client-Cert", ":AAAA:")],
    "cut off": lambda der: [in_bytes(der[:-1])],
    "one byte more": lambda der: [in_bytes(der + b"\0")],
    "two in one": lambda der: [in_bytes(der + der)],
    "two in a list": lambda der: [("Client-Cert", f"{in_bytes(der)[1]}, {in_bytes(der)[1]}")],
    "two headers": lambda der: [in_bytes(der), in_bytes(der)],
    "with a parameter": lambda der: [("Client-Cert", in_bytes(der)[1] + ";a=1")],
    "two in PEM": lambda der: [("Client-Cert", in_pem(der)[1] * 2)],
    "too long": lambda _: [("Client-Cert", ":" + "A" * LONGEST_HEADER + ":")],
    "PEM without an end": lambda _: [("Client-Cert", "-----BEGIN CERTIFICATE-----" + " " * 16_000 + "x")],
    "long and PEM": lambda der: [("Client-Cert", in_pem(der)[1] + "%0A" * LONGEST_HEADER)],
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_broken_header_of_a_proxy_is_refused(
    database_dsn: str, tmp_path: Path, broken: Callable[[bytes], Headers]
) -> None:
    """Also with a bearer beside it: what a proxy cannot say right may not be what it means."""
    async with World.over(database_dsn) as world, behind(world, tmp_path, HERE) as site:
        await world.credentials.source("mtls", name="billing", subject=NAME)
        headers = broken(site.clients.issue(NAME).der)
        for more in ([], [bearer(site.admin.secret)]):
            assert verdict(await site.post(None, *headers, *more)) == (400, "malformed")
        assert not await world.count("journal")


async def test_a_header_of_a_hundred_kilobytes_is_refused(database_dsn: str, tmp_path: Path) -> None:
    async with World.over(database_dsn) as world, behind(world, tmp_path, HERE) as site:
        try:
            reply = await site.post(None, ("Client-Cert", ":" + "A" * 100_000 + ":"), bearer(site.admin.secret))
        except Cut:  # the close overtook the answer, since there was more to read
            return
        assert verdict(reply) == (400, "malformed")


@each_that_is_none_for_a_client_now
async def test_a_certificate_that_a_proxy_hands_on_has_to_be_one_for_a_client_now(
    database_dsn: str, tmp_path: Path, make: Callable[[ClientAuthority], ClientCertificate]
) -> None:
    """C155."""
    async with World.over(database_dsn) as world, behind(world, tmp_path, HERE) as site:
        await world.credentials.source("mtls", name="billing", subject=NAME)
        assert verdict(await site.post(None, in_bytes(make(site.clients).der))) == INVALID


@pytest.mark.parametrize("empty", ["", "::"])
async def test_a_header_without_anything_is_no_certificate(database_dsn: str, tmp_path: Path, empty: str) -> None:
    async with World.over(database_dsn) as world, behind(world, tmp_path, HERE) as site:
        assert verdict(await site.post(None, ("Client-Cert", empty), bearer(site.admin.secret))) == TAKEN
        assert verdict(await site.post(None, ("Client-Cert", empty))) == MISSING


async def test_a_proxy_needs_no_tls(database_dsn: str) -> None:
    networks = read({"RELAY_TRUSTED_PROXIES": HERE}).trusted_proxies
    async with World.over(database_dsn) as world, listening(world, None, Peers(networks)) as url:
        await world.credentials.key()
        async with await Wire.connect(url) as wire:
            assert verdict(await wire.ask(posting(("Client-Cert", ":AAAA:")))) == (400, "malformed")


@pytest.mark.parametrize(
    ("proxies", "address", "is_proxy"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("10.0.0.0/8", "::10.1.2.3", False),
        ("fd00::/8", "fd00::1%eth0", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.0/8,fd00::/8", "fe80::1", False),
    ],
)
def test_a_proxy_is_known_by_its_address_in_either_family(proxies: str, address: str, is_proxy: bool) -> None:
    networks = read({"RELAY_TRUSTED_PROXIES": proxies}).trusted_proxies
    found = Peers(networks).look(asyncio.Transport(), address)
    assert (found is not None and found.is_proxy) == is_proxy


# -- the files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [None, "", "no certificate\n", "-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_authorities_that_cannot_be_used_are_told_in_one_line(tmp_path: Path, text: str | None) -> None:
    server, authorities = issue(tmp_path, "localhost"), tmp_path / "clients.pem"
    if text is not None:
        authorities.write_text(text)
    settings = {
        "RELAY_TLS_CERT": str(server.certificate),
        "RELAY_TLS_KEY": str(server.key),
        "RELAY_TLS_CLIENT_CA": str(authorities),
    }
    with pytest.raises(CannotRun, match="set RELAY_TLS_CLIENT_CA to a PEM file of the authorities") as told:
        tls_of(read(settings))
    assert "\n" not in str(told.value)
    assert str(authorities) in str(told.value)


def test_a_list_of_revoked_certificates_alone_is_no_authority(tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    crl = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(x509.Name([]))
        .last_update(now)
        .next_update(now + LONG)
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )
    server, authorities = issue(tmp_path, "localhost"), tmp_path / "clients.pem"
    authorities.write_bytes(crl.public_bytes(serialization.Encoding.PEM))
    with pytest.raises(CannotRun, match="holds no certificate"):
        Tls(server.certificate, server.key, authorities).context()
