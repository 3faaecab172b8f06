"""Claims about how a command that cannot do it says so: one line, what to do, the right exit code, no traceback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from relay.cli.main import COMMANDS
from tests.cli.conftest import EXAMPLE_KEY, Shell, broken, only_line
from tests.support.installation import LOOPBACK, free_port

HEAVY = {"asyncio", "asyncpg", "fastapi", "httpx", "pycurl", "rich", "starlette", "uvicorn", "relay.app", "relay.store"}


def test_the_help_and_its_list_load_no_command_and_no_room() -> None:
    program = "import sys; from relay.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stderr.split()) == set()
    assert [name for name in COMMANDS if f"  {name}" not in done.stdout] == []


@pytest.mark.parametrize(("command", "library"), [("verify", "asyncpg"), ("endpoints list", "httpx")])
def test_a_library_that_cannot_be_imported_is_one_line_with_what_to_do(
    lonely: Shell, tmp_path: Path, command: str, library: str
) -> None:
    broken(library, tmp_path)
    done = lonely.run(*command.split(), environment={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "(No module named 'missing_part'): install requirements.lock into" in only_line(done.stderr)


@pytest.mark.parametrize(
    "words", [(b"send", b"\xff"), (b"receipt", b"rcp_\xe9"), (b"dlq", b"list", b"--type", b"\xff.paid")]
)
def test_an_argument_that_is_no_text_is_a_wrong_usage(lonely: Shell, words: tuple[bytes, ...]) -> None:
    done = lonely.run(*map(os.fsdecode, words))
    assert done.returncode == 2
    assert "is no text here" in only_line(done.stderr)


@pytest.mark.parametrize("words", [(), ("endpoints",)], ids=["relay", "relay endpoints"])
def test_without_a_command_the_help_is_shown_as_a_wrong_usage(lonely: Shell, words: tuple[str, ...]) -> None:
    done = lonely.run(*words)
    assert done.returncode == 2
    assert b"Commands:" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("sned",), r"No such command 'sned'.* See `relay --help`\.$"),
        (("version",), r"it is `relay --version`\. See `relay --help`\.$"),
        (("recept",), r"Did you mean 'receipt'\? See `relay --help`\.$"),
        (("endpoints", "lst"), r"Did you mean 'list'\?"),
        (("send", "a.b", "-", "nope"), r"Got unexpected extra argument \(nope\)\. See `relay send --help`\.$"),
        (("send",), r"Missing argument 'TYPE'\. See `relay send --help`\.$"),
        (("up", "--workers", "0"), r"Invalid value for '--workers': 0 is not in the range.* See `relay up --help`\.$"),
        (("up", "--demo"), r"add --dev\. See `relay up --help`\.$"),
        (("send", "a.b", "no-such-file"), r"no-such-file cannot be read: No such file or directory\."),
        (("endpoints", "add", "https://a.example", "--header", "x"), r"'x' is not of the form NAME:VALUE\."),
        (("endpoints", "change", "ep_1"), r"Nothing to change: name what"),
        (("endpoints", "change", "ep_1", "--timeout", "5", "--reset", "timeout"), r"leave one of them out"),
        (("endpoints", "change", "ep_1", "--retry", "attempts=5"), r"'attempts' is none of max_attempts"),
        (("endpoints", "change", "ep_1", "--retry", "max_attempts=few"), r"'few' is no number for max_attempts"),
        (("endpoints", "add", "https://a.example", "--header-file", "X=/nowhere/at/all"), r"cannot be read"),
        (("endpoints", "add", "https://a.example", "--header-file", "X=-", "--secret-file", "-"), r"Only one value"),
        (("endpoints", "remove", "ep_1"), r"There is nobody to ask: add --yes\."),
        (("send", "naïve"), r"visible ASCII"),
    ],
    ids=lambda case: " ".join(case) if isinstance(case, tuple) else "",
)
def test_a_wrong_usage_is_one_line_and_2(lonely: Shell, words: tuple[str, ...], says: str) -> None:
    done = lonely.run(*words)
    assert done.returncode == 2
    assert re.search(says, only_line(done.stderr))
    assert done.stdout == b""


@pytest.mark.parametrize("command", ["config", "send a.b", "up", "gateway", "migrate", "testkit", "endpoints list"])
def test_all_faults_of_the_settings_are_told_at_once_by_every_command(lonely: Shell, command: str) -> None:
    done = lonely.run(*command.split(), environment={"RELAY_BINDD": "x", "RELAY_WORKERS": "many"})
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == [
        "relay: RELAY_BINDD is no setting: did you mean RELAY_BIND?",
        "relay: RELAY_WORKERS is 'many': it must be a whole number from 1 to 64",
    ]


@pytest.mark.parametrize(
    "url",
    [
        "redis://cache/abc",
        "redis://cache/0/1",
        "redis://cache?sream=x",
        "redis://cache:0",
        "redis+sentinel://cache",
        "rediss://cache?ssl_ca_certs=/nowhere.pem",
        "rediss://cache?ssl_ca_certs=/etc/hostname",
        "redis://default:9021?hunter2@cache",
    ],
)
def test_a_brokers_url_that_a_dispatcher_refuses_is_found_before_it_starts(lonely: Shell, url: str) -> None:
    told = [lonely.run(command, environment={"RELAY_BROKER_URL": url}) for command in ("config", "dispatcher")]
    assert [(done.returncode, b"hunter2" in done.stderr + done.stdout) for done in told] == [(2, False)] * 2
    assert told[0].stderr == told[1].stderr
    assert only_line(told[0].stderr).startswith("RELAY_BROKER_URL ")


@pytest.mark.parametrize("command", ["gateway", "dispatcher", "migrate", "up"])
def test_an_outside_database_without_keys_is_a_wrong_usage(lonely: Shell, command: str) -> None:
    settings = {
        "DATABASE_URL": f"postgresql://relay@{LOOPBACK}:1/relay",
        "RELAY_BIND": f"{LOOPBACK}:0",
        "RELAY_METRICS_BIND": f"{LOOPBACK}:0",
    }
    done = lonely.run(command, environment=settings)
    assert done.returncode == 2
    assert only_line(done.stderr).startswith("RELAY_SECRET_KEYS is required with DATABASE_URL: `relay secret-key`")


@pytest.mark.parametrize("command", ["gateway", "dispatcher", "migrate", "up"])
def test_a_database_that_is_away_is_told_without_its_password(lonely: Shell, command: str) -> None:
    settings = {
        "DATABASE_URL": f"postgresql://relay:hunter2@{LOOPBACK}:1/relay",
        "RELAY_SECRET_KEYS": EXAMPLE_KEY,
        "RELAY_BIND": f"{LOOPBACK}:0",
        "RELAY_METRICS_BIND": f"{LOOPBACK}:0",
    }
    done = lonely.run(command, environment=settings)
    assert done.returncode == 1
    assert "check that the server runs and that DATABASE_URL names it" in only_line(done.stderr)
    assert b"hunter2" not in done.stderr + done.stdout


@pytest.mark.parametrize("command", ["gateway", "dispatcher", "migrate"])
def test_without_any_database_the_ways_to_one_are_named(lonely: Shell, command: str, tmp_path: Path) -> None:
    done = lonely.run(command, environment={"RELAY_DATA_DIR": str(tmp_path)})
    assert done.returncode == 1
    assert re.search(r"`relay up`.*RELAY_DATA_DIR", only_line(done.stderr))
    assert list(tmp_path.iterdir()) == []


def test_the_url_of_no_broker_is_refused_at_the_start_and_its_password_is_not_told(
    lonely: Shell, tmp_path: Path
) -> None:
    url = "redis+sentinel://:hunter2@127.0.0.1"
    done = lonely.run("up", environment={"RELAY_BROKER_URL": url, "RELAY_DATA_DIR": str(tmp_path / "data")})
    assert done.returncode == 2
    assert "RELAY_BROKER_URL cannot be used: a Sentinel url ends in" in only_line(done.stderr)
    assert b"hunter2" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_relay_that_is_not_there_is_told_with_the_remedy(lonely: Shell) -> None:
    done = lonely.run("endpoints", "list")
    assert done.returncode == 1
    assert re.search(r"cannot be reached \(.*refused\): start it with `relay up`", only_line(done.stderr))


def test_a_proxy_of_the_environment_is_not_asked_for_a_relay_on_this_machine(lonely: Shell) -> None:
    done = lonely.run("endpoints", "list", environment={"HTTP_PROXY": "http://proxy.invalid:3128"})
    assert "refused" in only_line(done.stderr)


def test_a_proxy_of_the_environment_is_asked_for_a_relay_elsewhere(lonely: Shell) -> None:
    proxy = f"http://{LOOPBACK}:{free_port()}"
    done = lonely.run("endpoints", "list", environment={"HTTP_PROXY": proxy, "RELAY_URL": "http://relay.invalid"})
    assert done.returncode == 1
    assert re.search(r"Relay at http://relay\.invalid cannot be reached \(.*refused\)", only_line(done.stderr))


class Stranger(BaseHTTPRequestHandler):
    """Answers everything in the same way, and is no Relay."""

    status = 200

    def do_GET(self) -> None:
        body = b"<h1>It works!</h1>"
        self.send_response(self.status)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        if self.status == 302:
            self.send_header("location", "http://elsewhere.invalid/")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def stranger(status: int) -> Iterator[str]:
    handler = type("Answering", (Stranger,), {"status": status})
    with HTTPServer((LOOPBACK, 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{LOOPBACK}:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("status", [200, 302, 404, 502])
def test_a_server_that_is_no_relay_is_recognised(lonely: Shell, status: int) -> None:
    with stranger(status) as url:
        done = lonely.run("receipt", "rcp_1", environment={"RELAY_URL": url})
    assert done.returncode == 1
    assert re.search(rf"answered {status} .*is RELAY_URL a Relay\?$", only_line(done.stderr))


def test_a_key_with_odd_characters_is_a_wrong_usage(lonely: Shell) -> None:
    done = lonely.run("endpoints", "list", environment={"RELAY_API_KEY": "key\x01"})
    assert done.returncode == 2
    assert "RELAY_API_KEY" in only_line(done.stderr)


def test_the_environment_may_be_empty() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relay", "config"], env={}, cwd=os.fspath(Path.cwd()), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
