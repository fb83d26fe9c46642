"""Exact versions, for whoever tests: ``constraints.txt``. Users' installs stay ranges."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINES = (ROOT / "constraints.txt").read_text().splitlines()
PYTHONS = ("3.11.2", "3.11.7", "3.12.0", "3.13.5", "3.14.0")


def requirements() -> Iterator[Requirement]:
    """Yield what is asked for: by the build, the package, its extras and the groups."""
    yield from map(Requirement, PROJECT["build-system"]["requires"])
    yield from map(Requirement, PROJECT["project"]["dependencies"])
    for wanted in PROJECT["project"]["optional-dependencies"].values():
        yield from map(Requirement, wanted)
    for group in PROJECT["dependency-groups"].values():
        yield from (Requirement(line) for line in group if isinstance(line, str))


def pins(python: str) -> dict[str, str]:
    """Return the version of each package that is pinned for a Python on Linux."""
    environment = {
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }
    found = [Requirement(line) for line in LINES]
    chosen = [p for p in found if not p.marker or p.marker.evaluate(environment)]
    names = [canonicalize_name(p.name) for p in chosen]
    assert len(names) == len(set(names)), "a package has two versions for one Python"
    return dict(zip(names, (str(p.specifier)[2:] for p in chosen), strict=True))


@pytest.mark.parametrize("python", PYTHONS)
def test_each_pin_lies_within_the_range_that_users_install(python: str) -> None:
    """What was tested is what a user may get."""
    pinned = pins(python)
    outside = [
        f"{wanted}: {pinned.get(canonicalize_name(wanted.name))}"
        for wanted in requirements()
        if pinned.get(canonicalize_name(wanted.name), "none") not in wanted.specifier
    ]
    assert not outside


def test_pins_are_plain() -> None:
    """A name, a version, perhaps a marker: no address, no option, no path."""
    assert len(LINES) > 150
    plain = re.compile(r"[a-z0-9-]+==[A-Za-z0-9.]+( ; [A-Za-z0-9_<>=!.'*() -]+)?")
    assert not [line for line in LINES if not plain.fullmatch(line)]


def test_ranges_have_no_upper_end() -> None:
    """Nobody is kept from a newer version of something else."""
    closed = [str(w) for w in requirements() if re.search(r"[<~]|==", str(w.specifier))]
    assert not closed
