"""What Relay tells PostgreSQL.

Owns the two files that are written anew at each start: ``relay.conf``, which ``postgresql.conf`` includes, and
``pg_hba.conf``. Invariant: what was answered with yes survives a loss of power (fsync, full pages, synchronous
commit), and nobody is let in without a password.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SETTINGS_FILE = "relay.conf"
ACCESS_FILE = "pg_hba.conf"

INCLUDE = f"""
# Relay's settings, written anew at each start. What you set below this line wins over them.
include '{SETTINGS_FILE}'
"""
"""What is added to ``postgresql.conf`` once."""

ACCESS = """\
# Written by Relay at each start. Over the unix socket only, and with a password only.
# TYPE  DATABASE     USER  METHOD
local   all          all   scram-sha-256
local   replication  all   scram-sha-256
"""
"""The whole of ``pg_hba.conf``."""

_MIB = 1024 * 1024
_LEAST_BUFFERS = 32 * _MIB
_MOST_BUFFERS = 256 * _MIB
# Version 2 and 1 of control groups: how much a container may use. Outside of one, the files are missing or hold no
# bound.
_MEMORY_BOUNDS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


CONNECTIONS = 100
"""How many connections a server allows that nobody told how many it will have."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the settings depend on: the machine's memory in bytes, and what belongs to this one server."""

    version: str
    built_with: str
    memory: int
    sockets: Path
    port: int
    cluster_name: str
    connections: int = CONNECTIONS


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting and why it is so."""

    name: str
    value: str
    why: str

    def __str__(self) -> str:
        quoted = self.value.replace("\\", "\\\\").replace("'", "''")
        return f"# {self.why}\n{self.name} = '{quoted}'"


def usable_memory() -> int:
    """The bytes of memory that this machine, or the container around us, has."""
    bounds = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for name in _MEMORY_BOUNDS:
        path = Path(name)
        text = path.read_text(encoding="ascii").strip() if path.is_file() else "max"
        if text.isdecimal():
            bounds.append(int(text))
    return min(bounds)


def settings_text(place: Place, more: Mapping[str, str], replication: Sequence[Setting] = ()) -> str:
    """The text of ``relay.conf``; `more` is added at its end, where it wins."""
    settings = [*_access(place), *_durability(place), *_memory(place), *_upkeep(), *_diagnosis(place), *replication]
    settings += [Setting(name, value, "asked for by whoever started this server") for name, value in more.items()]
    head = f"# Written by Relay at each start, for PostgreSQL {place.version}; changes here are lost.\n"
    return head + "\n".join(map(str, settings)) + "\n"


def _access(place: Place) -> Sequence[Setting]:
    return (
        Setting("listen_addresses", "", "only processes of this machine, over the unix socket"),
        Setting("unix_socket_directories", str(place.sockets), "a folder that only the right users can enter"),
        Setting("unix_socket_permissions", "0777", "the folder is the guard; the server's account may not be ours"),
        Setting("port", str(place.port), "only a part of the socket's name"),
        Setting("password_encryption", "scram-sha-256", "the password never leaves its file"),
        Setting("max_connections", str(place.connections), "as many as are asked for; each connection is a process"),
        Setting(
            "client_connection_check_interval", "5s", "the locks of a killed process go soon, not after its statement"
        ),
    )


def _durability(place: Place) -> Sequence[Setting]:
    compression = "lz4" if "--with-lz4" in place.built_with else "off"
    return (
        Setting("fsync", "on", "an acknowledged event survives a loss of power"),
        Setting("synchronous_commit", "on", "a commit returns when it is on disk"),
        Setting("full_page_writes", "on", "a page torn by a loss of power can be restored"),
        Setting("wal_level", "replica", "standbys can be added without stopping this server for it"),
        Setting("max_slot_wal_keep_size", "4GB", "a standby that is away fills no disk; it is built anew instead"),
        Setting("max_wal_size", "3GB", "a checkpoint by time, not by volume: each writes whole pages again"),
        Setting("min_wal_size", "256MB", "segments are reused rather than created under load"),
        Setting("checkpoint_timeout", "15min", "few whole-page images, and still minutes at most to recover"),
        Setting(
            "wal_compression",
            compression,
            "lz4 is cheap; pglz costs 75 µs of processor time per page to save 40 % of it",
        ),
    )


def _memory(place: Place) -> Sequence[Setting]:
    buffers = min(max(place.memory // 8, _LEAST_BUFFERS), _MOST_BUFFERS)
    return (
        Setting(
            "shared_buffers", f"{buffers // _MIB}MB", "an eighth of the memory, which others on this machine need too"
        ),
        Setting(
            "effective_cache_size", f"{place.memory // 2 // _MIB}MB", "what the planner may expect the system to cache"
        ),
        Setting("random_page_cost", "1.1", "solid state disks; the queue is read by index"),
        Setting("jit", "off", "compiling costs more than any statement here takes"),
        Setting("max_parallel_workers_per_gather", "0", "the few cores are busy; and /dev/shm is tiny in containers"),
    )


def _upkeep() -> Sequence[Setting]:
    return (
        Setting("autovacuum_naptime", "10s", "a queue's rows die as fast as they are born"),
        Setting("autovacuum_vacuum_cost_limit", "2000", "and vacuum has to keep pace with that"),
        Setting("autovacuum_vacuum_scale_factor", "0.05", "so it begins before a table has grown by a fifth"),
    )


def _diagnosis(place: Place) -> Sequence[Setting]:
    return (
        Setting("timezone", "UTC", "days are UTC days, whatever the machine thinks"),
        Setting("log_timezone", "UTC", "the same in the log"),
        Setting("lc_messages", "C", "messages that can be searched for"),
        Setting("logging_collector", "off", "the log is one file, which Relay keeps short"),
        Setting("log_destination", "stderr", "which is that file"),
        Setting("log_min_messages", "warning", "what happens in order is not worth a line"),
        Setting("log_startup_progress_interval", "2s", "a long recovery shows that it moves"),
        Setting("log_line_prefix", "%m [%p] %q%u %a ", "when, which process, who"),
        Setting("cluster_name", place.cluster_name, "its processes can be told from those of other servers"),
    )
