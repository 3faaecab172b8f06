"""Client certificates as the deployment page sets them up: its commands, OpenSSL, curl, and a gateway of two workers.

The cases of the handshake and of each name are in tests/app/test_client_certificates.py.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.docs.tree import ROOT
from tests.support.certificates import ClientAuthority, issue
from tests.support.installation import Installation, eventually

PAGE = ROOT / "docs" / "deployment.md"
MARK = "<!-- run by tests/system/test_client_certificates.py -->"
WITHIN = 20.0
CONNECTIONS = 12
"""So many that each of two workers has some of them."""


def blocks() -> list[str]:
    """The commands of the page that are run here."""
    pattern = re.escape(MARK) + r"\n(?:<!-- [^\n]*\n)?```sh\n(.*?)```"
    return [found[1] for found in re.finditer(pattern, PAGE.read_text(), re.DOTALL)]


def run(command: str, folder: Path) -> str:
    """Run commands as a person does."""
    done = subprocess.run(["sh", "-ec", command], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def curl_of(block: str, url: str) -> str:
    """The call of the page's block, to the gateway of the test."""
    call = block[block.index("curl ") :].replace("https://relay.example.com:8443", url)
    return f"{call.rstrip()} --silent"


@pytest.mark.requires_tool("openssl", "curl")
def test_the_pages_commands_let_a_sender_in_and_a_change_ends_it_in_every_worker_on_its_open_connections(
    installation: Installation,
) -> None:
    """C155: the certificate was taken off its source while connections stay open."""
    folder = installation.folder
    making, serving, using = blocks()
    run(making, folder)
    run(serving, folder)
    authority = folder / "relay.pem"
    key = json.loads(installation.run("keys", "create", "admin", "--local", "--json").stdout)["secret"]
    gateway = installation.gateway(
        tls_cert=str(authority),
        tls_key=str(folder / "relay.key"),
        tls_client_ca=str(folder / "clients-ca.pem"),
        workers="2",
        log_level="debug",
    )
    trusting = ssl.create_default_context(cafile=str(authority))
    showing = ssl.create_default_context(cafile=str(authority))
    showing.load_cert_chain(folder / "billing.pem", folder / "billing.key")
    with httpx.Client(
        base_url=gateway.url, verify=trusting, trust_env=False, headers={"authorization": f"Bearer {key}"}
    ) as admin:

        def change(method: str, path: str, body: object = None) -> Any:
            reply = admin.request(method, path, json=body)
            assert reply.is_success, reply.text
            return reply.json() if reply.content else None

        words = shlex.split(using.partition("\n")[0])
        assert words[:3] == ["relay", "sources", "create"]
        made = change("POST", "/v1/sources", {"name": words[3], "auth": [words[5]], "certificate_subject": words[7]})
        accepted = json.loads(run(curl_of(using, gateway.url), folder))
        assert accepted["receipt_id"].startswith("rcp_")
        clients = [httpx.Client(base_url=gateway.url, verify=showing, trust_env=False) for _ in range(CONNECTIONS)]
        try:
            assert {each.get("/v1/receipts").status_code for each in clients} == {403}
            change("PATCH", f"/v1/sources/{made['id']}", {"auth": ["bearer"]})
            assert {each.get("/v1/receipts").status_code for each in clients} == {401}
            assert {each.post("/v1/events", json={"type": "a"}).status_code for each in clients} == {401}
        finally:
            for each in clients:
                each.close()
        assert change("POST", "/v1/events", {"type": "a"})["receipt_id"]
    stranger = ClientAuthority(folder, "strangers").issue("billing.example.com")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{gateway.url}/healthz", verify=stranger.context(authority), trust_env=False)

    async def is_told() -> bool:
        return "certificate verify failed" in gateway.log.read_text()

    asyncio.run(eventually(is_told, WITHIN, "the log says why"))


def test_a_file_without_an_authority_ends_the_start_in_one_line(installation: Installation) -> None:
    server = issue(installation.folder, "127.0.0.1")
    empty = installation.folder / "clients-ca.pem"
    empty.write_text("")
    installation.environment |= {
        "RELAY_TLS_CERT": str(server.certificate),
        "RELAY_TLS_KEY": str(server.key),
        "RELAY_TLS_CLIENT_CA": str(empty),
    }
    for words in (["gateway"], ["up"]):
        done = installation.run(*words)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert "set RELAY_TLS_CLIENT_CA to a PEM file of the authorities of your clients" in line
