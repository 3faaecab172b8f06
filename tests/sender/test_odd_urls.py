"""One url, one host: what Relay reads in a url, every other reader sees too, and libcurl asks for and dials (C45)."""

from __future__ import annotations

import json
import subprocess
from urllib.parse import urlsplit

import httpx
import urllib3.util

from relay.domain.addresses import read_address
from relay.domain.egress import EgressPolicy
from relay.domain.sending import ErrorClass
from relay.domain.target import DEFAULT_PORTS, Target, read_target
from tests.sender.conftest import OPEN, request, sending
from tests.support.npm import find_node
from tests.support.odd_urls import REFUSED, TAKEN
from tests.support.scripted_dns import Records, ScriptedDns
from tests.support.scripted_server import OK, ScriptedServer, answering

Place = tuple[str, str, int | None]
"""Scheme, host without brackets, and the port if it is no default."""

WHATWG = """
const seen = (url) => [url.protocol, url.hostname, url.port];
const read = (text) => { try { return seen(new URL(text)); } catch { return null; } };
process.stdout.write(JSON.stringify(JSON.parse(require("fs").readFileSync(0, "utf8")).map(read)));
"""


def taken(url: str) -> Target:
    target = read_target(url)
    assert isinstance(target, Target)
    return target


def place(target: Target) -> Place:
    return target.scheme, target.host, None if target.port == DEFAULT_PORTS[target.scheme] else target.port


def plain(scheme: str | None, host: str | None, port: int | None) -> Place:
    assert scheme is not None
    assert host is not None
    return scheme, host.strip("[]"), None if port == DEFAULT_PORTS[scheme] else port


def test_the_libraries_see_the_same_host_and_port_in_every_url_that_is_taken() -> None:
    for url in TAKEN:
        target = taken(url)
        split, parsed, other = urlsplit(target.url), httpx.URL(target.url), urllib3.util.parse_url(target.url)
        assert plain(split.scheme, split.hostname, split.port) == place(target), url
        assert plain(parsed.scheme, parsed.raw_host.decode(), parsed.port) == place(target), url
        assert plain(other.scheme, other.host, other.port) == place(target), url


def test_browsers_see_the_same_host_and_port_in_every_url_that_is_taken_as_it_was_written() -> None:
    written = [*TAKEN, *TAKEN.values()]
    done = subprocess.run(
        [*find_node().node, "-e", WHATWG], input=json.dumps(written), capture_output=True, text=True, check=True
    )
    for url, seen in zip(written, json.loads(done.stdout), strict=True):
        assert seen is not None, url
        protocol, host, port = seen
        # a mapped address is the IPv4 address that it dials; a browser keeps its form
        dialled = read_address(host.strip("[]")) or host
        assert (protocol.rstrip(":"), str(dialled), int(port) if port else None) == place(taken(url)), url


async def test_libcurl_asks_for_the_host_that_was_judged_and_dials_its_address() -> None:
    """Every name leads to this machine by a name server of the test's, and every url to one port."""
    asked: list[str] = []

    def zone(name: str, _asked: int) -> Records:
        asked.append(name)
        return Records(["127.0.0.9"], ttl=0)

    named = [target for url in TAKEN if (target := taken(url)).address is None]
    with ScriptedServer(answering(OK), host="127.0.0.9") as server, ScriptedDns(zone) as dns:
        async with sending(dns=dns.address) as here:
            for target in named:
                asked.clear()
                facts = await here.send(request(f"http://{target.host}:{server.port}{target.path}"))
                assert facts.status_code == 200, target.url
                assert set(asked) <= {target.host}
                arrived = server.requests[-1]
                assert arrived.values("host") == [f"{target.host}:{server.port}"]
                assert arrived.line == f"POST {target.path} HTTP/1.1"
    assert len(server.requests) == len(named) > 20


async def test_a_url_that_is_refused_is_neither_looked_up_nor_dialled() -> None:
    asked: list[str] = []

    def zone(name: str, _asked: int) -> Records:
        asked.append(name)
        return Records(["127.0.0.9"], ttl=0)

    with ScriptedDns(zone) as dns:
        for policy in (OPEN, EgressPolicy()):
            async with sending(policy=policy, dns=dns.address) as here:
                facts = await here.send_all(*[request(url) for url in REFUSED])
            assert {each.error_class for each in facts} == {ErrorClass.REFUSED_URL}
    assert asked == []
