"""The commands of a page, run by a shell on a running Relay that has what they speak of.

Owns the stage: a home that is thrown away, free ports in the place of the usual ones, real ids in the place of samples,
and a few words of shell around what must not stay as a page has it. What is changed in a command is here and nowhere
else, so a page can say to people what it wants to.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.support.installation import LOOK_AGAIN_SECONDS, LOOPBACK, RELAY, TRUSTING_NOBODY, Installation, free_port
from tests.support.pages import Block

RUN_SECONDS = 150.0
REFUSED_SECONDS = 20.0
TOKEN, WEBHOOK_TOKEN = "1:any-token", "any-token"
JSON = {"content-type": "application/json"}
SCHEMA = '{"required": ["amount"]}'
FILES = {
    "invoice.json": '{"amount": 12}',
    "invoice.schema.json": SCHEMA,
    "events.ndjson": '{"type": "invoice.paid", "payload": {"amount": 12}}\n',
    "bot-token.txt": TOKEN,
    "webhook-token.txt": WEBHOOK_TOKEN,
    "token.txt": "Bearer any-token",
}

STAYS = re.compile(r"^((?:\w+=\S+ +)*relay (?:up|gateway|dispatcher|testkit)\b[^#\n]*?) *(?:#.*)?$", re.MULTILINE)

LOOKS = re.compile(r"relay (?:doctor|config)|curl -sS \S+")

PROLOGUE = """
set -euo pipefail
curl() {
    local key=${RELAY_API_KEY:-}
    command curl --silent --show-error --fail-with-body ${key:+-H "Authorization: Bearer $key"} "$@"
}
said() { grep -oE "$1" "$HOME/said" | tail -1; }
# A command that stays: it runs, and is stopped in order.
stays() {
    : > "$HOME/stays"
    "$BASH" -c "exec env RELAY_DATA_DIR=${2:-$RELAY_DATA_DIR} $1" > "$HOME/stays" 2>> "$HOME/stays.log" & local pid=$!
    for ((i = 0; i < 600; i++)); do
        if grep -q '"running"' "$HOME/stays" || ! kill -0 "$pid" 2> "$HOME/gone"; then break; fi
        sleep 0.1
    done
    grep -q '"running"' "$HOME/stays" || { cat "$HOME/stays.log" >&2; return 1; }
    kill -TERM "$pid"
    wait "$pid"
}
"""


class DidNotRun(AssertionError):
    """A block of a page failed."""


@dataclass(slots=True)
class Stage:
    """A running Relay with a home, and what stands in the place of a page's samples."""

    installation: Installation
    api: str
    metrics: str
    receiver: str
    database: str
    environment: dict[str, str]
    ids: dict[str, str] = field(default_factory=dict)
    key: str | None = None
    spoken: dict[str, str] = field(default_factory=dict)

    def here(self, text: str) -> str:
        """The commands of a page with this stage's names."""
        for pattern, instead in self._replacements():
            text = instead.join(re.split(pattern, text))  # as it stands, whatever is in it
        return STAYS.sub(lambda found: f"stays {_quoted(found[1])}{self._apart(found[1])}", text)

    def run(self, script: str, what: str) -> None:
        """Run commands to their end. Raises `DidNotRun`."""
        home = self.installation.folder
        with (home / "said").open("a") as said:
            try:
                done = subprocess.run(
                    ["bash", "-c", f"{PROLOGUE}\n{self.here(script)}"],
                    env=self._environment(),
                    cwd=home,
                    input=WEBHOOK_TOKEN,
                    stdout=said,
                    stderr=subprocess.PIPE,
                    text=True,
                    timeout=RUN_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired as late:
                raise DidNotRun(f"{what} does not end: {self.here(script)}") from late
        if done.returncode:
            tail = (home / "said").read_text()[-1500:]
            raise DidNotRun(f"{what} ended with {done.returncode}: {self.here(script)}\n{done.stderr}\n…{tail}")

    def _environment(self) -> dict[str, str]:
        """What a shell has from outside: a key, and what a receiver finds in a delivery's headers."""
        known = {"RELAY_API_KEY": self.key, "RECEIPT_ID": self.ids.get("rcp"), "DELIVERY_ID": self.ids.get("delivery")}
        return self.environment | {name: value for name, value in known.items() if value is not None}

    def _replacements(self) -> Iterator[tuple[str, str]]:
        yield r"0\.0\.0\.0:8080", f"0.0.0.0:{free_port()}"
        yield r"http://127\.0\.0\.1:8080", self.api
        yield r"http://127\.0\.0\.1:9091", self.metrics.removesuffix("/metrics")
        yield r"http://127\.0\.0\.1:9099", self.receiver
        yield r"\.venv/bin/relay", str(RELAY)
        # the shell's own bind is for what it starts; this looks for what runs
        yield r"\brelay top\b", f"RELAY_METRICS_BIND={urlsplit(self.metrics).netloc} relay top"
        yield r"'?postgresql://[\w:…]+@[\w.,]+/relay'?", _quoted(self.database)
        yield r"rlk_…", "$(said 'rlk_[A-Za-z0-9_-]+')"
        yield from self.spoken.items()
        yield r"rcp_…", self.ids.get("rcp", "rcp_…")
        for prefix, made in self.ids.items():
            yield rf"\b{prefix}_[0-9a-f]{{32}}\b", made
        if "delivery" in self.ids:
            yield r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b", self.ids["delivery"]

    def _apart(self, command: str) -> str:
        """`relay up` has a data folder of its own, since this one is in use."""
        return f" {_quoted(str(self.installation.folder / 'another'))}" if re.search(r"relay up\b", command) else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def stage(installation: Installation, database: str) -> Stage:
    """Start a Relay with everything that a page may speak of. The installation ends it."""
    testkit = f"{LOOPBACK}:{free_port()}"
    # the chats are those of the receiver
    chats = {"telegram_url": f"http://{testkit}", "discord_url": f"http://{testkit}/api"}
    running = installation.up("--dev", testkit_bind=testkit, **chats).started
    home = installation.folder
    for name, content in FILES.items():
        (home / name).write_text(content)
    (home / ".local" / "share").mkdir(parents=True)
    (home / ".local" / "share" / "relay").symlink_to(installation.environment["RELAY_DATA_DIR"])
    free = {f"RELAY_{name}": f"{LOOPBACK}:{free_port()}" for name in ("BIND", "METRICS_BIND", "TESTKIT_BIND")}
    kept = {name: installation.environment[name] for name in ("HOME", "TMPDIR", "RELAY_DATA_DIR")}
    path = f"{RELAY.parent}:{os.environ.get('PATH', os.defpath)}"
    named = {f"RELAY_{name.upper()}": url for name, url in chats.items()}
    environment = {
        **kept,
        **free,
        **named,
        "PATH": path,
        "RELAY_URL": running["api"],
        "RELAY_ALLOW_PRIVATE_ENDPOINTS": "true",
    }
    return Stage(installation, running["api"], running["metrics"][-1], running["receiver"], database, environment)


def play(on: Stage, blocks: Sequence[Block]) -> None:
    """Run the blocks of a page in one shell, so that each has what those before it set. Raises `DidNotRun`."""
    at = on.installation.folder / "at"
    seen: set[str] = set()
    script = "\n".join(f"echo {block} > {at}\n{_once(block.text, seen)}" for block in blocks)
    try:
        on.run(script, "the page")
    except DidNotRun as fault:
        raise DidNotRun(f"{at.read_text().strip()}: {fault}") from None


def _once(text: str, seen: set[str]) -> str:
    """The commands without those that only look and stood on the page before."""
    lines = []
    for line in text.splitlines():
        command = line.partition(" #")[0].strip()
        if command not in seen or not LOOKS.fullmatch(command):
            lines.append(line)
        seen.add(command)
    return "\n".join(lines)


class Properties:
    """What the examples of commands and calls speak of, made anew before each."""

    def __init__(self, on: Stage) -> None:
        self._stage = on
        self._tenants = 0
        self._client = httpx.Client(base_url=f"{on.api}/v1", verify=TRUSTING_NOBODY, trust_env=False, timeout=30)
        on.key = self._call("POST", "/keys", {"name": "ops", "scopes": ["operator"]})["secret"]
        self._client.headers["authorization"] = f"Bearer {on.key}"

    def close(self) -> None:
        """Let go of the gateway."""
        self._client.close()

    def ready(self) -> None:
        """Have everything that is spoken of, under the names and ids by which it is."""
        ids = self._stage.ids
        self._call("PUT", "/schemas/invoice.paid/v3", content=SCHEMA)
        ledger = {"url": f"{self._stage.receiver}/ok", "name": "ledger", "event_types": ["invoice.*"]}
        ids["ep"] = self._have("endpoints", ledger)
        self._call("PATCH", f"/endpoints/{ids['ep']}", {"url": ledger["url"], "headers": {"X-Team": "ops"}})
        self._have(
            "endpoints",
            {"url": "telegram://-1001234567890", "name": "ops-chat", "event_types": ["alert.*"], "secret": TOKEN},
        )
        ids["src"] = self._have("sources", {"name": "billing", "auth": ["bearer", "hmac"]})
        by_certificate = {"auth": ["mtls", "hmac"], "certificate_subject": "warehouse.example.com"}
        self._have("sources", {"name": "warehouse", **by_certificate})
        ids["key"] = self._have("keys", {"name": "shop", "scopes": ["ingest"]})
        if "rcp" not in ids:
            taken = self._call("POST", "/events", {"type": "invoice.paid", "amount": 12})
            self._delivery(taken, "ledger")
            self._call("GET", f"/receipts/{ids['rcp']}/wait?timeout=20")

    def delivered(self) -> None:
        """Have a delivery, and with it the endpoint that the pages for whoever is on call speak of."""
        self._have("endpoints", {"url": f"{self._stage.receiver}/ok", "name": "crm", "event_types": ["sample"]})
        self._delivery(self._call("POST", "/events", {"type": "sample"}), "crm")
        self._call("GET", f"/receipts/{self._stage.ids['rcp']}/wait?timeout=20")

    def refused(self) -> None:
        """Have a delivery that its endpoint has refused, and so waits for a person."""
        self._have(
            "endpoints", {"url": f"{self._stage.receiver}/status/400", "name": "broken", "event_types": ["broken"]}
        )
        taken = self._call("POST", "/events", {"type": "broken"})
        delivery = self._delivery(taken, "broken")
        ends = time.monotonic() + REFUSED_SECONDS
        while self._call("GET", f"/deliveries/{delivery}")["status"] != "dead":
            assert time.monotonic() < ends, "the delivery is not refused in time"
            time.sleep(LOOK_AGAIN_SECONDS)

    def tenant(self, example: str, *, is_there: bool) -> None:
        """Have the tenant that an example speaks of under another id, since none is given twice."""
        for spoken in set(re.findall(r"\bacct_(?!default)\w+", example)):
            self._tenants += 1
            self._stage.spoken[spoken] = f"acct_page{self._tenants}"
            if is_there:
                self._call("POST", "/tenants", {"name": "Acme", "id": self._stage.spoken[spoken]})

    def away(self, kind: str) -> None:
        """Have nothing of one kind but the key of this stage."""
        if kind == "tenants":
            return
        for each in self._call("GET", f"/{kind}?limit=100")["data"]:
            if each["name"] not in ("ops", "default") and each["id"] != "acct_default":
                self._call("DELETE", f"/{kind}/{each['id']}")

    def _delivery(self, taken: Mapping[str, Any], consumer: str) -> str:
        """The delivery to one endpoint, which samples stand for from now on."""
        (delivery,) = (each["id"] for each in taken["deliveries"] if each["consumer"] == consumer)
        self._stage.ids |= {"rcp": taken["receipt_id"], "delivery": delivery}
        return str(delivery)

    def _have(self, kind: str, wanted: Mapping[str, Any]) -> str:
        there = self._call("GET", f"/{kind}?limit=100")["data"]
        found = next((each for each in there if each["name"] == wanted["name"]), None)
        return str((found or self._call("POST", f"/{kind}", wanted))["id"])

    def _call(self, method: str, path: str, body: object = None, content: str | None = None) -> Any:
        json = None if content is not None else body
        answer = self._client.request(method, path, json=json, content=content, headers=JSON if content else None)
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json() if answer.content else None
