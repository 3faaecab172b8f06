"""Claims about whom the commands believe a certificate: the authorities of the environment, on this machine too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Shell, only_line
from tests.cli.scripted_api import Answer, Call, scripted
from tests.sender.authority import Authority
from tests.support.installation import LOOPBACK

HERE = "localhost"
NOTHING_LISTENS = "http://127.0.0.1:9"
PROXIES = {"HTTPS_PROXY": NOTHING_LISTENS, "ALL_PROXY": NOTHING_LISTENS}


def nothing(_: Call) -> Answer:
    """An empty list."""
    return 200, {"data": [], "next_cursor": None}


def named(url: str) -> str:
    """The same place by its name, which is what the certificates have."""
    return url.replace(LOOPBACK, HERE)


@pytest.fixture(scope="module")
def authority() -> Authority:
    """A private one."""
    return Authority()


def test_a_private_authority_is_believed_on_this_machine_and_no_proxy_asked(
    lonely: Shell, authority: Authority, tmp_path: Path
) -> None:
    bundle = str(authority.bundle(tmp_path))
    with scripted(nothing, authority.issue(HERE).context()) as api:
        here = {"RELAY_URL": named(api.url), "SSL_CERT_FILE": bundle, **PROXIES}
        done = lonely.run("keys", "list", environment=here)
    assert (done.returncode, done.stdout) == (0, b"[]\n")


@pytest.mark.parametrize(
    ("name", "expired", "trusted", "remedy"),
    [
        (HERE, False, False, "set SSL_CERT_FILE to a file with the certificate of its authority, in PEM"),
        ("relay.example.com", False, True, "set RELAY_URL to a name that it has"),
        (HERE, True, True, "renew it there, or set the clock here"),
    ],
    ids=["unknown authority", "another name", "expired"],
)
def test_a_certificate_that_is_not_believed_is_told_with_the_remedy(
    lonely: Shell, authority: Authority, tmp_path: Path, name: str, expired: bool, trusted: bool, remedy: str
) -> None:
    environment = {"SSL_CERT_FILE": str(authority.bundle(tmp_path))} if trusted else {}
    with scripted(nothing, authority.issue(name, expired=expired).context()) as api:
        done = lonely.run("keys", "list", environment={"RELAY_URL": named(api.url), **environment})
    assert done.returncode == 1
    said = only_line(done.stderr)
    assert said.startswith(f"Relay at {named(api.url)} shows a certificate that is not believed (")
    assert said.endswith(f"): {remedy}")


def test_authorities_that_cannot_be_read_are_told_of(lonely: Shell, tmp_path: Path) -> None:
    none = {"RELAY_URL": f"https://{LOOPBACK}:9", "SSL_CERT_FILE": str(tmp_path / "none.pem")}
    done = lonely.run("keys", "list", environment=none)
    assert done.returncode == 2
    assert only_line(done.stderr).startswith("SSL_CERT_FILE cannot be read (No such file or directory)")


def test_authorities_are_not_looked_for_without_tls(lonely: Shell, tmp_path: Path) -> None:
    with scripted(nothing) as api:
        none = {"RELAY_URL": api.url, "SSL_CERT_FILE": str(tmp_path / "none.pem")}
        assert lonely.run("keys", "list", environment=none).returncode == 0


def test_who_speaks_without_tls_to_a_server_of_tls_is_told(lonely: Shell, authority: Authority) -> None:
    with scripted(nothing, authority.issue(HERE).context()) as api:
        done = lonely.run("keys", "list", environment={"RELAY_URL": api.url.replace("https:", "http:")})
    assert done.returncode == 1
    assert only_line(done.stderr).endswith("if it speaks TLS, RELAY_URL begins with https://")
