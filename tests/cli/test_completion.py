"""Claims about completion: what each shell is told, and that a real bash offers it."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.cli.conftest import Shell
from tests.support.installation import RELAY, START_SECONDS

ASK_BASH = """
eval "$(_RELAY_COMPLETE=bash_source relay)"
complete -p relay
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
"$(complete -p relay | sed 's/.*-F \\([^ ]*\\) .*/\\1/')" relay
printf '%s\\n' "${COMPREPLY[@]}"
"""


def offered_by_bash(*words: str) -> list[str]:
    """What bash knows of the command after its start-up line, then what it offers for the last of the words."""
    path = os.pathsep.join([str(RELAY.parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK_BASH, "bash", *words],
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.requires_tool("bash")
def test_bash_is_told_how_to_complete() -> None:
    assert offered_by_bash("relay", "rec") == ["complete -o nosort -F _relay_completion relay", "receipt"]


@pytest.mark.requires_tool("bash")
@pytest.mark.parametrize(
    ("words", "offers"),
    [
        (("relay", "endpoints", "r"), ["remove", "resume", "rotate-secret"]),
        (("relay", "receipt", "--w"), ["--watch"]),
        (("relay", "endpoints", "add", "--signature", "s"), ["standard", "stripe"]),
    ],
    ids=lambda case: " ".join(case) if isinstance(case, tuple) else "",
)
def test_bash_offers_what_can_follow(words: tuple[str, ...], offers: list[str]) -> None:
    assert [each for each in offered_by_bash(*words)[1:] if each] == offers


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_for_its_startup_file(lonely: Shell, shell_name: str) -> None:
    if shell_name == "bash" and shutil.which("bash") is None:
        pytest.skip("the script for bash asks it for its version")
    done = lonely.run(environment={"_RELAY_COMPLETE": f"{shell_name}_source"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert f"_RELAY_COMPLETE={shell_name}_complete" in done.stdout.decode()


@pytest.mark.parametrize(
    ("shell_name", "asked", "answer"),
    [
        ("zsh", {"COMP_WORDS": "relay rec", "COMP_CWORD": "1"}, ["plain", "receipt", "Show what became of an event."]),
        ("fish", {"COMP_WORDS": "relay", "COMP_CWORD": "rec"}, ["plain,receipt\tShow what became of an event."]),
    ],
    ids=["zsh", "fish"],
)
def test_shells_that_show_help_get_it(lonely: Shell, shell_name: str, asked: dict[str, str], answer: list[str]) -> None:
    done = lonely.run(environment={**asked, "_RELAY_COMPLETE": f"{shell_name}_complete"})
    assert done.stdout.decode().splitlines() == answer
