"""What is read from files and from the table of processes: pure judgements, and the log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relay.embedded import log
from relay.embedded.configuration import Place, Setting, settings_text, usable_memory
from relay.embedded.files import place
from relay.embedded.log import Follower, LogFile, Trimmer, progress_in
from relay.embedded.postmaster import PidFile, Process, answers, look_up, serves, wait_until
from relay.embedded.programs import environment
from relay.embedded.sockets import usable

GIB = 1024**3
PLACE = Place("18.6", "--without-icu", 8 * GIB, Path("/data/pg/r1.run"), 5432, "relay-r1-1")


@pytest.mark.parametrize("text", ["", "\n", "ready\n", "12x\n"])
def test_a_process_number_file_without_a_number_says_nothing(text: str) -> None:
    assert PidFile.parse(text) is None


def test_a_server_that_only_begins_to_write_is_not_ready() -> None:
    said = PidFile.parse("4711\n/data\n")
    assert said == PidFile(4711, "", "")
    assert not said.ready


@pytest.mark.parametrize(
    ("status", "ready"), [("starting", False), ("ready   ", True), ("standby ", True), ("stopping", False)]
)
def test_a_server_takes_queries_when_it_says_so(status: str, ready: bool) -> None:
    said = PidFile.parse(f"4711\n/data\n1700000000\n5432\n/run\n\n  5432001  7\n{status}\n")
    assert said is not None
    assert said.sockets == "/run"
    assert said.ready is ready


def test_a_server_is_known_by_its_program_and_its_folder(tmp_path: Path) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    ours.mkdir()
    other.mkdir()
    (tmp_path / "link").symlink_to(ours)

    def judged(*words: str) -> bool:
        return serves(Process(1, 1, words), ours)

    assert judged("/opt/bin/postgres", "-D", str(ours))
    assert judged("postgres", "-D", str(tmp_path / "link"), "-c", "port=1")
    assert not judged("/opt/bin/postgres", "-D", str(other))
    assert not judged("/opt/bin/postgres", "-D", str(tmp_path / "gone"))
    assert not judged("vim", "-D", str(ours))
    assert not judged("postgres: relay-r1-1: checkpointer ", "-D", str(ours))
    assert not judged("postgres: a/postgres", "-D", str(ours))


@pytest.mark.parametrize("words", [("postgres",), ("postgres", "-D"), ("postmaster", "-D", "data")])
def test_a_server_that_was_started_by_hand_is_not_declared_dead(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert serves(Process(1, 1, words), tmp_path)


def test_a_dead_process_that_nobody_collected_is_no_process() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        assert wait_until(lambda: look_up(child.pid) is None, 30.0)
        os.kill(child.pid, 0)  # its number is still taken


def test_our_own_process_is_found_with_its_arguments() -> None:
    found = look_up(os.getpid())
    assert found is not None
    assert found.parent == os.getppid()
    assert found.words[0]


def test_nobody_answers_where_there_is_no_socket(tmp_path: Path) -> None:
    assert not answers("")
    assert not answers(str(tmp_path))


def test_a_wait_has_an_end() -> None:
    assert not wait_until(lambda: False, 0.0)


def test_the_programs_see_nothing_of_relay_s_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAY_SECRET_KEYS", "secret")
    monkeypatch.setenv("PGHOST", "elsewhere")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    assert environment(PGUSER="relay").keys() <= {"PATH", "LD_LIBRARY_PATH", "TMPDIR", "LC_ALL", "TZ", "PGUSER"}
    assert environment()["LD_LIBRARY_PATH"] == "/opt/lib"


def test_a_value_with_quotes_cannot_end_its_setting() -> None:
    assert str(Setting("name", "a'b\\c", "why")) == "# why\nname = 'a''b\\\\c'"


@pytest.mark.parametrize(("memory", "buffers"), [(128 * 1024**2, "32MB"), (GIB, "128MB"), (64 * GIB, "256MB")])
def test_a_small_machine_gets_a_small_cache(memory: int, buffers: str) -> None:
    text = settings_text(Place("18.6", "", memory, PLACE.sockets, 5432, "c"), {})
    assert f"\nshared_buffers = '{buffers}'\n" in text


@pytest.mark.parametrize(("built_with", "compression"), [("'--with-lz4'", "lz4"), ("'--without-icu'", "off")])
def test_the_log_is_compressed_only_where_that_is_cheap(built_with: str, compression: str) -> None:
    text = settings_text(Place("18.6", built_with, GIB, PLACE.sockets, 5432, "c"), {})
    assert f"\nwal_compression = '{compression}'\n" in text


def test_a_container_s_bound_counts_as_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bounded").write_text("1048576\n")
    (tmp_path / "unbounded").write_text("max\n")
    names = ("bounded", "unbounded", "missing")
    monkeypatch.setattr("relay.embedded.configuration._MEMORY_BOUNDS", tuple(str(tmp_path / name) for name in names))
    assert usable_memory() == 1048576


def test_every_setting_has_its_reason_in_the_file() -> None:
    lines = settings_text(PLACE, {"work_mem": "9MB"}).splitlines()
    values = [number for number, line in enumerate(lines) if not line.startswith("#")]
    assert all(lines[number - 1].startswith("# ") for number in values)
    assert lines[-1] == "work_mem = '9MB'"


def test_a_socket_s_path_may_have_107_bytes() -> None:
    longest = "/" + "x" * (107 - len("/.s.PGSQL.5432") - 1)
    assert usable(Path(longest))
    assert not usable(Path(longest + "x"))
    assert not usable(Path("/" + "ß" * 50))


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    for name in ("file", "file.new"):
        (tmp_path / name).symlink_to(target)
    place(tmp_path / "file", "new")
    assert target.read_text() == "untouched"
    assert (tmp_path / "file").read_text() == "new"
    assert not (tmp_path / "file").is_symlink()


def grown(tmp_path: Path) -> LogFile:
    file = LogFile(tmp_path / "r1.log")
    file.path.write_bytes(b"x" * log.KEEP_BYTES + b"\n")
    return file


def test_a_log_that_grew_too_long_is_cut_and_its_last_part_kept(tmp_path: Path) -> None:
    file = grown(tmp_path)
    with file.open() as output:
        output.write(b"after\n")
    assert file.path.read_text() == "after\n"
    assert (tmp_path / "r1.log.1").stat().st_size == log.KEEP_BYTES + 1
    assert (tmp_path / "r1.log.1").stat().st_mode & 0o077 == 0


def test_a_log_that_cannot_be_copied_is_cut_all_the_same(tmp_path: Path) -> None:
    file = grown(tmp_path)
    older = tmp_path / "r1.log.1"
    older.symlink_to("/dev/full")  # every write fails as on a full disk
    file.trim()
    assert file.size() == 0
    assert not older.is_symlink()


def test_a_log_is_cut_while_the_server_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "TRIM_SECONDS", 0.01)
    file = grown(tmp_path)
    trimmer = Trimmer(file)
    assert wait_until(lambda: file.size() == 0, 30.0)
    trimmer.stop()


def test_only_whole_lines_are_news_and_each_is_told_once(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "r1.log")
    with file.open() as output:
        output.write(b"old\n")
        output.flush()
        follower = Follower(file, file.size())
        output.write(b"one\nha")
        output.flush()
        assert list(follower.news()) == ["one"]
        output.write(b"lf\n")
        output.flush()
        assert list(follower.news()) == ["half"]
        assert list(follower.news()) == []


def test_a_log_that_was_cut_is_followed_from_its_beginning(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "r1.log")
    file.path.write_text("a long line\n")
    follower = Follower(file, file.size())
    file.path.write_text("new\n")
    assert list(follower.news()) == ["new"]


def test_the_end_of_a_log_leaves_out_what_came_before_this_start(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "r1.log")
    file.path.write_text("before\nsince\n")
    assert file.tail(len("before\n")) == "since"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("LOG:  redo in progress, elapsed time: 2.00 s, current LSN: 0/2A", "redo in progress, elapsed time: 2.00 s"),
        ("LOG:  redo done at 0/1AF7828 system usage: CPU: user: 0.00 s", "redo done at 0/1AF7828"),
        ("LOG:  syncing data directory (fsync), elapsed time: 4.00 s, current path: ./base", "syncing data directory"),
        ("LOG:  checkpoint starting: end-of-recovery immediate wait", "checkpoint starting: end-of-recovery"),
    ],
)
def test_a_line_about_a_recovery_is_passed_on(line: str, told: str) -> None:
    progress = progress_in(f"2026-11-30 04:00:00.000 UTC [7] {line}")
    assert progress is not None
    assert progress.startswith(told)


@pytest.mark.parametrize("line", ["LOG:  checkpoint starting: time", "ERROR:  redo starts at noon", ""])
def test_a_line_about_anything_else_is_not(line: str) -> None:
    assert progress_in(line) is None
