"""What a dispatcher's environment brings along and must not count: proxies, credentials, authorities (C25, C42)."""

from __future__ import annotations

from tests.support.forbidden import Trap
from tests.support.installation import Installation, add_endpoint, eventually, post
from tests.support.receiver import Receiver

WITHIN = 60.0


async def test_no_proxy_and_no_netrc_of_the_environment_has_a_part_in_sending(
    installation: Installation, receiver: Receiver
) -> None:
    """C42."""
    with Trap() as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            installation.environment[name] = f"http://127.0.0.1:{proxy.port}"
        installation.environment |= {"no_proxy": "", "NO_PROXY": "", "NETRC": str(installation.folder / ".netrc")}
        (installation.folder / ".netrc").write_text(
            "machine 127.0.0.1 login someone password hush\nmachine localhost login someone password hush\n"
            "default login anyone password hush\n"
        )
        gateway = installation.gateway()
        installation.dispatcher()
        for host in ("127.0.0.1", "localhost"):
            add_endpoint(gateway, f"http://{host}:{receiver.port}/ok", event_types=["env.sent"])
        assert post(gateway, b"{}", relay_event_type="env.sent").status_code == 202
        arrivals = receiver.wait_for(2, WITHIN)
        assert proxy.connections == 0
    names = {name.lower() for arrival in arrivals for name, _ in arrival.headers}
    assert not names & {"authorization", "proxy-authorization", "proxy-connection", "via"}


async def test_no_setting_of_the_environment_turns_verification_off(installation: Installation) -> None:
    """C25: the receiver's authority is named by variables that other programs heed, and by nobody that Relay asks."""
    with Receiver(tls=True) as secure:
        installation.environment |= {
            "SSL_CERT_FILE": str(secure.ca_file),
            "SSL_CERT_DIR": str(secure.ca_file.parent),
            "CURL_CA_BUNDLE": str(secure.ca_file),
            "REQUESTS_CA_BUNDLE": str(secure.ca_file),
            "PYTHONHTTPSVERIFY": "0",
            "CURL_INSECURE": "1",
        }
        gateway = installation.gateway()
        installation.dispatcher(retry_max_attempts="1")
        add_endpoint(gateway, secure.url("/ok"), event_types=["env.tls"])
        assert post(gateway, b"{}", relay_event_type="env.tls").status_code == 202
        classes = await attempted(installation)
        assert secure.received() == []
    assert classes == ["tls_certificate"]


async def attempted(installation: Installation) -> list[str]:
    """The error classes of all attempts, once there is one."""

    async def classes() -> list[str]:
        return [row[0] for row in await installation.fetch("select error_class from delivery_attempts")]

    return await eventually(classes, WITHIN, "an attempt is on record")
