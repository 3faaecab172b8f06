"""Claims about the receivers that README.md and docs/receivers.md show: each takes what Relay signs, once, and no more.

A snippet is taken from its page, and given to its language with a few lines behind it that hand it requests. Those bear
the signatures that Relay's own code makes. docs/credentials.md shows how a sender signs.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import standardwebhooks
import stripe
import svix.webhooks

from relay.domain.endpoint import SignatureProfile
from relay.domain.secret import Secret
from relay.domain.signing import prepare
from tests.support.debian import unpacked
from tests.support.npm import find_node, kept_folder
from tests.support.pages import all_blocks, block

HARNESSES = Path(__file__).parents[1] / "support" / "receiving" / "snippets"
RUN_SECONDS = 270.0
"""Go compiles its own library first, where nobody has."""

OURS, NEWER, OTHERS = (f"whsec_{base64.b64encode(bytes([n]) * 32).decode()}" for n in range(3))
BODY = b'{"type": "order.paid", "caf\xe9": "\x00"}'

Cache = Callable[[str], Path]


@dataclass(frozen=True, slots=True)
class Request:
    """What comes in, and the answer that it should get."""

    headers: dict[str, str]
    body: bytes
    status: int


def signed(*secrets: str, status: int, age: int = 0, body: bytes = BODY, delivery: UUID | None = None) -> Request:
    """A delivery as Relay makes it, `age` seconds ago."""
    signer = prepare(SignatureProfile.RELAY, tuple(map(Secret, secrets)))
    delivery = delivery or uuid4()
    headers = dict(signer.headers(int(time.time()) - age, delivery, "order.paid", body))
    return Request({name.lower(): text for name, text in headers.items()} | _named(delivery), body, status)


def _named(delivery: UUID) -> dict[str, str]:
    return {"relay-delivery-id": str(delivery)}


def requests() -> list[Request]:
    """Good ones, then all that has to be refused."""
    delivery = uuid4()
    good = signed(OURS, status=204, delivery=delivery)
    signature = good.headers["relay-signature"]
    forged = [
        Request(good.headers, BODY + b" ", 401),
        Request(good.headers | {"relay-timestamp": str(int(good.headers["relay-timestamp"]) + 1)}, BODY, 401),
        Request(good.headers | {"relay-signature": signature.removeprefix("v1=")}, BODY, 401),
        Request(good.headers | {"relay-signature": signature[:-1]}, BODY, 401),
        Request(good.headers | {"relay-signature": "v1=" + "é" * 64}, BODY, 401),
        Request(good.headers | {"relay-signature": ""}, BODY, 401),
        Request(_named(delivery), BODY, 401),
        Request({**_named(delivery), "relay-signature": signature, "relay-timestamp": "now"}, BODY, 401),
    ]
    return [
        good,
        good,  # a duplicate
        signed(OURS, status=204, delivery=delivery, age=2),  # a retry of it, signed anew
        signed(NEWER, OURS, status=204),  # a rotation, seen from the older secret
        signed(OURS, NEWER, status=204),  # and from the newer one
        signed(OURS, status=204, body=b""),
        signed(OURS, status=204, age=290),
        signed(OURS, status=401, age=310),
        signed(OURS, status=401, age=-310),
        signed(OTHERS, status=401),
        *forged,
    ]


def works_of(asked: list[Request]) -> list[int]:
    """How often the work is done, after each request: once for each delivery that is let in."""
    seen: set[str] = set()
    counts = []
    for each in asked:
        if each.status == 204:
            seen.add(each.headers["relay-delivery-id"])
        counts.append(len(seen))
    return counts


def python(source: Path, cache: Cache) -> list[str]:
    """This Python."""
    return [sys.executable, str(source)]


def node(source: Path, cache: Cache) -> list[str]:
    """The machine's node, or that of a package."""
    return [*find_node().node, str(source)]


GO_FOLDER = "/usr/local/go/bin"
"""Where Go's own installation puts it, whatever the PATH."""


def go(source: Path, cache: Cache) -> list[str]:
    """A program that is built first, where Go is installed: unlike the others, no small package brings it."""
    found = shutil.which("go") or shutil.which("go", path=GO_FOLDER)
    if found is None:
        pytest.skip("Go is not installed on this machine")
    shutil.copy(HARNESSES / "harness.go", source.parent)
    environment = {**os.environ, "GO111MODULE": "off", "GOTOOLCHAIN": "local"}
    built = source.parent / "receiver"
    files = [str(source), str(source.parent / "harness.go")]
    subprocess.run([found, "build", "-o", built, *files], env=environment, check=True, timeout=RUN_SECONDS)
    return [str(built)]


def php(source: Path, cache: Cache) -> list[str]:
    """The machine's PHP, or that of Debian's package."""
    if found := shutil.which("php"):
        return [found, "-n", str(source)]
    root = unpacked("php-cli", cache("php"))
    return [*_with_libraries(root), str(next(root.glob("usr/bin/php[0-9]*"))), "-n", str(source)]


def ruby(source: Path, cache: Cache) -> list[str]:
    """The machine's Ruby, or that of Debian's package."""
    if found := shutil.which("ruby"):
        return [found, str(source)]
    root = unpacked("ruby", cache("ruby"))
    paths = [f"-I{path}" for path in root.glob("usr/lib/**/ruby/[0-9]*") if path.is_dir()]
    program = next(root.glob("usr/bin/ruby[0-9]*"))
    return [*_with_libraries(root), str(program), "--disable-gems", *paths, str(source)]


def _with_libraries(root: Path) -> list[str]:
    return ["env", "LD_LIBRARY_PATH=" + ":".join(map(str, root.glob("usr/lib/*-linux-*")))]


RECEIVERS = {
    "py": ("README.md", "def receive", python),
    "js": ("docs/receivers.md", "function receive(headers", node),
    "go": ("docs/receivers.md", "func receive", go),
    "php": ("docs/receivers.md", "function receive(array", php),
    "rb": ("docs/receivers.md", "def receive", ruby),
}


@pytest.fixture
def cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cache:
    """Folders that are kept between runs."""
    return lambda name: kept_folder(name, request.config, tmp_path_factory)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("language", RECEIVERS)
def test_a_receiver_takes_what_relay_signs_and_nothing_else(language: str, tmp_path: Path, cache: Cache) -> None:
    page, beginning, command = RECEIVERS[language]
    text = block(page, beginning).text.replace("whsec_…", OURS)
    assert OURS in text
    if language != "go":
        text += "\n" + (HARNESSES / f"harness.{language}").read_text()
    source = tmp_path / f"receiver.{language}"
    source.write_text(text)
    words = command(source, cache)

    asked = requests()
    lines = [{"headers": each.headers, "body": base64.b64encode(each.body).decode()} for each in asked]
    done = subprocess.run(
        words,
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert answers == [(each.status, works) for each, works in zip(asked, works_of(asked), strict=True)]


def test_every_receiver_that_is_shown_is_tried() -> None:
    shown = {(each.page, each.language) for each in all_blocks() if "whsec_…" in each.text}
    names = {"py": "python", "rb": "ruby"}
    assert shown == {(page, names.get(language, language)) for language, (page, _, _) in RECEIVERS.items()}


def test_the_libraries_verify_by_the_lines_that_are_shown() -> None:
    body, delivery = b'{"type": "order.paid"}', uuid4()
    lines = block("docs/receivers.md", "standardwebhooks.Webhook").text.splitlines()
    profiles = [SignatureProfile.STANDARD, SignatureProfile.STANDARD, SignatureProfile.STRIPE]
    known = {"standardwebhooks": standardwebhooks, "svix": svix, "stripe": stripe}
    for line, profile in zip(lines, profiles, strict=True):
        for secret in (OURS, OTHERS):
            headers = dict(prepare(profile, (Secret(OURS),)).headers(int(time.time()), delivery, "order.paid", body))
            names = {**known, "secret": secret, "body": body, "headers": headers}
            try:
                exec(line, names)  # noqa: S102 - a line of our own page
                verified = True
            except Exception:  # noqa: BLE001 - each library has its own
                verified = False
            assert verified == (secret == OURS), line


def test_a_sender_signs_as_relay_does() -> None:
    names: dict[str, object] = {}
    exec(block("docs/credentials.md", "def signed").text, names)  # noqa: S102 - a block of our own page
    made = names["signed"]("billing", OURS, BODY)  # type: ignore[operator] # what exec has made has no type
    ours = prepare(SignatureProfile.RELAY, (Secret(OURS),)).headers(int(made["Relay-Timestamp"]), uuid4(), "", BODY)
    assert made == {"Relay-Source": "billing", **dict(ours)}
