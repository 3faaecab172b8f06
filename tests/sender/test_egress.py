"""What is never dialled, whatever a url, a name or the environment says."""

import socket
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import pycurl
import pytest

from relay.domain.egress import EgressPolicy, Target, check_url
from relay.domain.sending import ErrorClass
from relay.sender import HttpSender
from relay.sender.places import Origin
from relay.sender.route import Route, pin
from tests.sender.conftest import OPEN, sending
from tests.support.scripted_dns import Records, ScriptedDns
from tests.support.scripted_server import OK, ScriptedServer, answering

STRICT = EgressPolicy(require_https=False, allowed_ports=None)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{}/", "http://[::1]:{}/", "http://[::ffff:127.0.0.1]:{}/", "http://localhost:{}/"]
)
async def test_loopback_is_refused_by_default(url: str) -> None:
    with ScriptedServer(answering(OK)) as server:
        async with sending(policy=STRICT) as here:
            facts = await here.post(url.format(server.port))
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.REFUSED_ADDRESS)
    assert server.connections == 0


async def test_a_name_that_leads_to_relays_own_port_is_refused_where_loopback_is_opened_for_others() -> None:
    """The port is judged when the address is dialled: a name is looked up once for all its ports."""
    with (
        ScriptedServer(answering(OK)) as ours,
        ScriptedServer(answering(OK)) as other,
        ScriptedDns(lambda _name, _asked: Records(["127.0.0.1", "::1"], ttl=60)) as dns,
    ):
        policy = replace(
            STRICT,
            allow_cidrs=(ip_network("127.0.0.0/8"), ip_network("::1/128")),
            own_loopback_ports=frozenset({ours.port}),
        )
        async with sending(policy=policy, dns=dns.address) as here:
            for host in ("inside.test", "127.0.0.1", "localhost"):
                facts = await here.post(ours.url(host=host))
                assert (facts.status_code, facts.error_class) == (None, ErrorClass.REFUSED_ADDRESS)
                assert (await here.post(other.url(host=host))).status_code == 200
        assert ours.connections == 0


@pytest.mark.parametrize("url", ["ftp://a.test/", "http://user:secret@a.test/", "http://2130706433/", "gopher://x", ""])
async def test_a_url_that_the_policy_cannot_read_is_refused_without_repeating_it(url: str) -> None:
    async with sending(policy=STRICT) as here:
        facts = await here.post(url)
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.REFUSED_URL)
    assert "secret" not in facts.detail


async def test_the_environment_brings_no_proxy_and_no_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """C42; with a real process: `test_environment_of_sending`."""
    (tmp_path / ".netrc").write_text("default login someone password hush\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with ScriptedServer(answering(OK)) as proxy, ScriptedServer(answering(OK)) as server:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url(""))
        monkeypatch.setenv("no_proxy", "")
        async with sending() as here:
            assert (await here.post(server.url())).status_code == 200
        assert proxy.connections == 0
    assert server.requests[0].values("authorization") == []
    assert server.requests[0].values("proxy-authorization") == []


async def test_an_address_that_was_not_pinned_is_not_dialled() -> None:
    """Even if libcurl came to dial another address than it was told to."""
    with ScriptedServer(answering(OK)) as server:
        async with sending() as here:
            url = server.url()
            target = check_url(OPEN, url)
            assert isinstance(target, Target)
            _plant(here.sender, url, Route(target, Origin()), dialled="127.0.0.1", judged="127.0.0.9")
            facts = await here.post(url)
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.REFUSED_ADDRESS)
    assert server.connections == 0


async def test_an_address_that_the_policy_refuses_is_not_dialled_although_it_was_pinned() -> None:
    with ScriptedServer(answering(OK)) as server:
        async with sending(policy=STRICT) as here:
            url = server.url()
            target = check_url(OPEN, url)
            assert isinstance(target, Target)
            _plant(here.sender, url, Route(target, Origin()), dialled="127.0.0.1", judged="127.0.0.1")
            facts = await here.post(url)
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.REFUSED_ADDRESS)
    assert server.connections == 0


def _plant(sender: HttpSender[int], url: str, route: Route, *, dialled: str, judged: str) -> None:
    """Give the sender a route that its own judgement would never have made."""
    assert route.pin is not None
    told = pin(route.target, [dialled])
    route.pin = type(told)(told.url, told.connect_to, told.resolve, frozenset({judged}))
    sender._routes._known[url] = route


@pytest.mark.parametrize("address", ["::1", "2600::1", "2600:0:0:1::", "2600:1:2:3:4:5:6:7", "2600:0:1:2:3:4:5:6"])
def test_the_pinned_spelling_of_an_address_is_the_one_that_libcurl_reports(address: str) -> None:
    """pycurl reports what inet_ntop writes; were ipaddress to differ, a pin would refuse its own address."""
    target = check_url(OPEN, f"http://[{address}]/")
    assert isinstance(target, Target)
    pinned = Route(target, Origin()).pin
    assert pinned is not None
    assert pinned.addresses == {socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, address))}


def test_libcurl_is_the_one_that_was_tried() -> None:
    """What libcurl does with pins, heads and errors was tried on 8.23; older ones than 8.10 lack an instant we read."""
    version = tuple(int(part) for part in pycurl.version_info()[1].split(".")[:2])
    assert version >= (8, 10)
