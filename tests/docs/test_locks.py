"""Claims about the locks: whatever Python of those that are supported installs them, it gets all that it needs."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.docs.tree import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MADE_BY = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)

OLDEST = re.sub(r"^>=", "", PROJECT["requires-python"]) + ".0"
NEWEST = max(
    (each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)),
    key=lambda version: int(version.partition(".")[2]),
)
PYTHONS = [OLDEST, "3.11.2", f"{NEWEST}.99"]
"""The oldest, Debian 12's own, and the newest."""


def _locked(name: str) -> dict[str, str]:
    """The versions of what a lock names."""
    return {canonicalize_name(each): version for each, version in MADE_BY.findall((ROOT / name).read_text())}


def _wanted(requirements: list[str], python: str, extras: set[str]) -> list[Requirement]:
    """Those of the requirements that hold for that Python on Linux."""
    where = {
        "python_version": ".".join(python.split(".")[:2]),
        "python_full_version": python,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    read = [Requirement(text) for text in requirements]
    return [
        each for each in read if each.marker is None or any(each.marker.evaluate(where | {"extra": e}) for e in extras)
    ]


def _missing(locked: dict[str, str], python: str, extras: set[str]) -> list[str]:
    """What is asked for and not locked, or locked in a version that is not asked for, as lines."""
    own = [*PROJECT["dependencies"], *(each for extra in extras for each in PROJECT["optional-dependencies"][extra])]
    open_, seen, missing = [("relay", each) for each in _wanted(own, python, {""})], set(), []
    while open_:
        by, asked = open_.pop()
        name, wanted = canonicalize_name(asked.name), frozenset(asked.extras) | {""}
        if not asked.specifier.contains(locked.get(name, "0"), prereleases=True) or name not in locked:
            missing.append(f"{by} on Python {python} asks for {asked}, and the lock has {name} {locked.get(name)}")
        elif (name, wanted) not in seen:
            seen.add((name, wanted))
            needs = distribution(name).requires or []
            open_ += [(name, each) for each in _wanted(needs, python, set(wanted))]
    return missing


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("name", "extras"), [("requirements.lock", set()), ("requirements-dev.lock", {"dev"})])
def test_a_lock_has_whatever_its_distributions_ask_for_on_each_supported_python(
    name: str, extras: set[str], python: str
) -> None:
    assert _missing(_locked(name), python, extras) == []


@pytest.mark.parametrize("python", PYTHONS)
def test_what_is_locked_runs_on_each_supported_python(python: str) -> None:
    told = {name: distribution(name).metadata["Requires-Python"] or "" for name in _locked("requirements-dev.lock")}
    assert {name: asked for name, asked in told.items() if not SpecifierSet(asked).contains(python)} == {}


def test_a_distribution_that_the_lock_lacks_on_debians_python_alone_would_be_seen() -> None:
    """redis asks for async-timeout before Python 3.11.3, which no later one sees."""
    locked = _locked("requirements.lock")
    del locked["async-timeout"]
    seen = {
        python: [each for each in _missing(locked, python, set()) if each.startswith("redis")] for python in PYTHONS
    }
    assert [bool(seen[python]) for python in PYTHONS] == [True, True, False]
