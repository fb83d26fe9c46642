"""Versions of other people's packages and of Python: what is put in their place.

A version is known by the distribution whose name stands before it, and by being the one that is
installed here: a figure that only looks like a version stays. Of a list of all that is installed
only those names are kept that the recorded sessions need. What follows a version in a column, or
is wrapped because of its length, is set as if versions had no length.
"""

from __future__ import annotations

import platform
import re
import sysconfig
from collections.abc import Mapping
from functools import cache
from importlib import metadata

PLACE = "<version>"
NEEDED = ("python", "kernel-agent", "ipykernel", "ipython", "pandas", "numpy", "matplotlib")
"""What every recording has, as the sessions themselves use it."""

VERSION = r"\d\w*(?:[.+!-]\w+)*"
LISTED = re.compile(rf"\bpython {VERSION}(?:,\s+[\w.-]+\s+{VERSION})+(?:[\w.+!, -]*…)?")
MAPPED = re.compile(r"""(\\*["']versions\\*["']: \{)([^{}]*?)(\s*\})""")
BETWEEN = r"""(?:\\*["'`]|[\s:=~>(│|]|</?\w[^<>]{0,80}>|&nbsp;|&gt;){1,12}"""
NAMED = re.compile(
    rf"(?<![\w.-])(?:(?<=\\)[nrt])?(?P<name>[A-Za-z][\w.-]*)(?P<between>{BETWEEN})"
    rf"(?P<version>{VERSION})(?P<padding> *)(?P<end>$|(?=\\n))?",
    re.MULTILINE,
)
FRAME = re.compile(r'"(?:[^"\\]|\\.)*?<packages>/([\w./-]+\.py):\d+(?:[^"\\]|\\.)*"')


def installed() -> dict[str, str]:
    """Return the version of Python, and of each distribution by its canonical name."""
    found = {"python": platform.python_version()}
    for distribution in metadata.distributions():  # the first of a name is the one in use
        found.setdefault(canonical(distribution.metadata["Name"]), distribution.version)
    return found


@cache  # to work them out takes longer than what is done with them
def folders() -> tuple[tuple[str, str], ...]:
    """Return the folders whose names hold the version of Python, and their places."""
    return (
        (sysconfig.get_path("purelib"), "<packages>"),
        (sysconfig.get_path("stdlib"), "<library>"),
    )


def canonical(name: str) -> str:
    """Return a distribution's name as all its spellings are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def without_versions(text: str, known: Mapping[str, str]) -> str:
    """Return a text with ``<version>`` for each version, which ``known`` has by name."""
    text = LISTED.sub(_list, text)
    text = MAPPED.sub(_mapping, text)
    text = NAMED.sub(lambda found: _version(found, known), text)
    text = FRAME.sub(r'"<frame in \1>"', text)
    return _python(text, known["python"])


def _list(found: re.Match[str]) -> str:
    """Return a list that may be cut at its end: what is needed stands first."""
    names = [entry.split()[0] for entry in found.group().split(", ")]
    return ", ".join(f"{name} {PLACE}" for name in names if name in NEEDED)


def _mapping(found: re.Match[str]) -> str:
    start, inner, end = found.groups()
    kept = [entry for entry in inner.split(",") if entry.split(":")[0].strip(" \n\\\"'") in NEEDED]
    return start + ",".join(kept) + end


def _version(found: re.Match[str], known: Mapping[str, str]) -> str:
    if known.get(canonical(found["name"])) != found["version"]:
        return found.group()
    before = found.group()[: found.start("between") - found.start()]
    between = found["between"]
    if between.isspace() and "\n" in between:  # wrapped
        between = " "
    padding = " " if found["padding"] and found["end"] is None else ""
    return f"{before}{between}{PLACE}{padding}"


def _python(text: str, version: str) -> str:
    """Replace Python's version where nobody names it: a notebook's language, a script's need."""
    minor = re.escape(".".join(version.split(".")[:2]))
    text = re.sub(rf'("version": "){re.escape(version)}"', rf'\1{PLACE}"', text)
    return re.sub(rf'(requires-python = \\*">=){minor}(?=\\*")', rf"\1{PLACE}", text)
