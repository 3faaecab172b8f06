"""What a run of the tests leaves behind, however it ends: nothing. And what its workers share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from relay.embedded import ServerInUse
from tests.support.installation import children
from tests.support.run import Run

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0

BEGIN = """
import subprocess, sys
from tests.support.run import Run
run = Run.begin()
"""
WITH_A_PROCESS = f"""{BEGIN}
subprocess.Popen(["sleep", "600"])
print(run.folder, flush=True)
sys.stdin.read()
print(*run.end(within=0), sep=chr(10))
"""
WITH_A_DISK = f"""{BEGIN}
from tests.support.small_disk import mount
(run.folder / "disk").mkdir()
print(run.folder, mount(run.folder / "disk") or "", flush=True)
sys.stdin.read()
"""
ONCE = """
import sys
from pathlib import Path
from tests.support.run import once
def make():
    with Path(sys.argv[1]).open("a") as made:
        made.write("made\\n")
    return {"the": "thing"}
assert once("thing", make) == {"the": "thing"}
"""


@contextmanager
def begun(folder: Path, code: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the code, with temporary files in that folder where there is no room in memory."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        env={"TMPDIR": str(folder), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def folder_of(process: subprocess.Popen[str]) -> Path:
    """What a run said when it had begun."""
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def test_what_a_killed_run_left_is_ended_by_the_next(tmp_path: Path) -> None:
    with begun(tmp_path, WITH_A_PROCESS) as killed:
        folder = folder_of(killed)
        (sleeper,) = children(killed.pid)
        killed.kill()
        killed.wait(DEADLINE)
        assert Path(f"/proc/{sleeper}").exists()
        with begun(tmp_path, f"{BEGIN}run.end()") as following:
            assert following.wait(DEADLINE) == 0
    assert not folder.exists()
    assert b"sleep" not in command_line(sleeper)


def test_a_disk_that_a_killed_run_had_mounted_is_taken_off_by_the_next(tmp_path: Path) -> None:
    with begun(tmp_path, WITH_A_DISK) as killed:
        assert killed.stdout is not None
        place, _, why_not = killed.stdout.readline().strip().partition(" ")
        killed.kill()
        killed.wait(DEADLINE)
        with begun(tmp_path, f"{BEGIN}run.end()") as following:
            assert following.wait(DEADLINE) == 0
    assert not Path(place).exists()
    if why_not:
        pytest.skip(why_not)


def test_a_run_that_goes_on_is_left_alone_by_others(tmp_path: Path) -> None:
    with begun(tmp_path, WITH_A_PROCESS) as going_on:
        folder = folder_of(going_on)
        with begun(tmp_path, f"{BEGIN}run.end()") as other:
            assert other.wait(DEADLINE) == 0
        with pytest.raises(ServerInUse):
            Run(folder)
        assert len(children(going_on.pid)) == 1


def test_a_run_tells_what_it_left_and_ends_it(tmp_path: Path) -> None:
    with begun(tmp_path, WITH_A_PROCESS) as run:
        folder = folder_of(run)
        (folder / "forgotten").touch()
        (sleeper,) = children(run.pid)
        told, _ = run.communicate("", DEADLINE)
    assert told.splitlines() == [f"process {sleeper}: sleep 600", f"{folder}/forgotten"]
    assert not folder.exists()


def test_what_workers_share_is_made_once(tmp_path: Path) -> None:
    made = tmp_path / "made"

    def run(_: int) -> int:
        with begun(tmp_path, ONCE, str(made)) as worker:
            return worker.wait(DEADLINE)

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, range(3))) == [0] * 3
    assert made.read_text() == "made\n"


def command_line(pid: int) -> bytes:
    """The words of a process; none of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
