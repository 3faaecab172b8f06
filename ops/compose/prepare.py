"""The `init` step of docker-compose.yml: a migrated database, the key of its secrets, and a first credential.

It may run any number of times: what is there already stays as it is. The two keys lie in a volume, each in a file that
only Relay's user can read, and are printed nowhere.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

RELAY = "relay"


def main() -> None:
    """Prepare everything. Raises `CalledProcessError` where a command of Relay's fails; it has said why."""
    secret_key, api_key = Path(os.environ["RELAY_SECRET_KEYS_FILE"]), Path(os.environ["API_KEY_FILE"])
    if not secret_key.exists():
        # before there is a key there is none to read
        without = {name: text for name, text in os.environ.items() if name != "RELAY_SECRET_KEYS_FILE"}
        place(secret_key, run("secret-key", environment=without))
    run("migrate")
    if not api_key.exists():
        place(api_key, json.loads(run("keys", "create", "--local", "--scope", "admin", "--json"))["secret"])
    tell(f"ready; the first key is in {api_key}: docker compose exec gateway cat {api_key}")


def run(*words: str, environment: dict[str, str] | None = None) -> str:
    """Run a command of Relay's; answers what it printed."""
    return subprocess.run([RELAY, *words], env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def place(path: Path, text: str) -> None:
    """Write a new file that only its owner can read, and that appears whole or not at all."""
    aside = path.with_name(f".{path.name}.new")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text.strip() + "\n")
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    tell(f"made {path}")


def tell(line: str) -> None:
    """Say something to whoever reads the log."""
    print(line, file=sys.stderr)  # noqa: T201 - its output is the log


if __name__ == "__main__":
    main()
