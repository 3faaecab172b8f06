"""TLS to a real server, with its own authority and with a certificate for the client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from relay.broker import BrokerUnavailable, RedisStreams
from tests.broker.grounds import deliveries, ids
from tests.support.certificates import ClientAuthority, ServerCertificate, issue
from tests.support.installation import LOOPBACK, free_port
from tests.support.stream_server import StreamServer

Connect = Callable[..., RedisStreams]

pytestmark = pytest.mark.parametrize("own_server", ["redis"], indirect=True)  # the wheel's server has no TLS


@pytest.fixture
def certificate(tmp_path: Path) -> ServerCertificate:
    (folder := tmp_path / "certificates").mkdir()
    return issue(folder, LOOPBACK)


def encrypted(
    certificate: ServerCertificate, *more: str, clients: ClientAuthority | None = None
) -> tuple[int, list[str]]:
    """A port, and the options with which a server speaks TLS there, to clients of an authority if one is given."""
    port = free_port()
    files = ["--tls-cert-file", str(certificate.certificate), "--tls-key-file", str(certificate.key)]
    authority = ["--tls-ca-cert-file", str(clients.path if clients else certificate.authority)]
    asked = ["--tls-auth-clients", "yes" if clients else "no"]
    return port, ["--tls-port", str(port), *files, *authority, *asked, *more]


async def test_ids_go_over_tls(
    own_server: Callable[..., StreamServer], connect: Connect, certificate: ServerCertificate
) -> None:
    port, options = encrypted(certificate)
    own_server(*options)
    broker = connect(f"rediss://{LOOPBACK}:{port}?ssl_ca_certs={certificate.authority}")
    await broker.announce([ids(3)])
    assert deliveries(tuple(await broker.receive(count=1, wait_seconds=1))) == ids(3)


async def test_a_server_of_an_unknown_authority_is_refused(
    own_server: Callable[..., StreamServer], connect: Connect, certificate: ServerCertificate
) -> None:
    port, options = encrypted(certificate)
    own_server(*options)
    with pytest.raises(BrokerUnavailable, match="certificate verify failed"):
        await connect(f"rediss://{LOOPBACK}:{port}").standing()


async def test_a_server_of_another_name_is_refused(
    own_server: Callable[..., StreamServer], connect: Connect, certificate: ServerCertificate
) -> None:
    port, options = encrypted(certificate)
    own_server(*options)
    with pytest.raises(BrokerUnavailable, match="certificate verify failed"):
        await connect(f"rediss://localhost:{port}?ssl_ca_certs={certificate.authority}").standing()


async def test_a_client_shows_its_certificate(
    own_server: Callable[..., StreamServer], connect: Connect, certificate: ServerCertificate, tmp_path: Path
) -> None:
    authority = ClientAuthority(tmp_path)
    port, options = encrypted(certificate, clients=authority)
    own_server(*options)
    own = authority.issue("relay")
    url = f"rediss://{LOOPBACK}:{port}?ssl_ca_certs={certificate.authority}"
    with pytest.raises(BrokerUnavailable):
        await connect(url).standing()
    await connect(f"{url}&ssl_certfile={own.certificate}&ssl_keyfile={own.key}").announce([ids(3)])


async def test_plain_words_to_an_encrypted_port_are_a_fault(
    own_server: Callable[..., StreamServer], connect: Connect, certificate: ServerCertificate
) -> None:
    port, options = encrypted(certificate)
    own_server(*options)
    with pytest.raises(BrokerUnavailable, match="cannot be reached"):
        await connect(f"redis://{LOOPBACK}:{port}").standing()


async def test_sentinels_and_their_primary_are_reached_over_tls(
    own_server: Callable[..., StreamServer], connect: Connect, certificate: ServerCertificate
) -> None:
    port, options = encrypted(certificate)
    own_server(*options)
    watcher, lines = encrypted(certificate, "--tls-replication", "yes")
    pairs = zip(lines[::2], lines[1::2], strict=True)
    monitor = f"sentinel monitor mymaster {LOOPBACK} {port} 1"
    own_server(*(f"{name.removeprefix('--')} {value}" for name, value in pairs), monitor, sentinel=True)
    url = f"rediss+sentinel://{LOOPBACK}:{watcher}/mymaster?ssl_ca_certs={certificate.authority}"
    broker = connect(url)
    await broker.announce([ids(3)])
    assert deliveries(tuple(await broker.receive(count=1, wait_seconds=1))) == ids(3)
